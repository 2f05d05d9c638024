/** What the HTTP service takes and gives as JSON. Objects are strict: an unknown field is refused. */
import * as z from 'zod'
import {
  AnswerDuration,
  AnswerReach,
  ApprovalRecord,
  ApprovalRequest,
  ApprovalRule,
  ApprovalScope,
} from '../protocol/approval.ts'
import { RunSectionInput } from '../protocol/context-section.ts'
import { EgressRule } from '../protocol/egress.ts'
import { Delta, HostDelta, HostEvent, JournalEvent } from '../protocol/event.ts'
import { RunMetadata, RunPriority, StartWithin } from '../protocol/host-event.ts'
import { ImagePath, imagesMaxCount } from '../protocol/image.ts'
import { limits } from '../protocol/limits.ts'
import { Effort, Plan } from '../protocol/plan.ts'
import { UserAnswer } from '../protocol/question.ts'
import { FallbackModels, StepModels } from '../protocol/run-models.ts'
import { AnswerForm, RunLimits, Usage } from '../protocol/task.ts'
import {
  AgentPath,
  Count,
  Document,
  Id,
  JsonValue,
  Line,
  Milliseconds,
  RunId,
  Sha256,
  Text,
  WorkspacePath,
} from '../protocol/text.ts'
import { workOfStep } from '../protocol/workflow.ts'
import {
  FindingResource,
  GrantResource,
  NoteResource,
  SkillsResource,
  TemplateResource,
} from './state-resources.ts'
import { ChatRequest, TaskAnswer, TaskRequest } from './task-resources.ts'

/** An uploaded workspace: random, with a mark of whose it is. */
export const WorkspaceId = z
  .string()
  .regex(/^workspace-[0-9a-f]{32}$/, 'expected the id of an uploaded workspace')

/** An error, as RFC 9457 (`application/problem+json`) has it. */
export const Problem = z.strictObject({
  /** Anchor of the code in the reference at `/docs`. */
  type: z.string(),
  title: z.string(),
  status: z.int(),
  /** A code of specs/errors.md, or the service's own `unauthorized`, `forbidden`, `not_found`, … */
  code: z.string(),
  /** What failed, what was expected, what was seen. */
  detail: z.string(),
  /** What to do. */
  remedy: z.string().optional(),
  /** For a request that does not fit the schema: each wrong field. */
  errors: z.array(z.strictObject({ field: z.string(), message: z.string() })).optional(),
})
export type Problem = z.infer<typeof Problem>

const RunFields = z.strictObject({
  /** The task for the agent. It may be empty only with `plan.from`. */
  prompt: Document,
  /** Files of the workspace that the model sees with the task: PNG, JPEG, GIF or WebP of 1 MiB each, 3 MiB together. */
  images: z.array(ImagePath).max(imagesMaxCount).optional(),
  /** Absolute path below an allowed folder of the service. Absent: that of `continue`, else an empty one of its own. */
  workspace: z
    .string()
    .min(1)
    .max(4_096)
    .regex(/^\/[^\0]*$/, 'expected an absolute path')
    .optional(),
  /** An uploaded workspace, in place of `workspace`. */
  uploadedWorkspace: WorkspaceId.optional(),
  /** Absent: the default of the service. */
  model: Line.min(1).optional(),
  /** How much the model reasons. Absent: the configuration's, or what the model does by itself. */
  effort: Effort.optional(),
  /** Models that are asked in this order where the other cannot answer. Absent: the configuration's. */
  fallback: FallbackModels.optional(),
  /** Models that the agent may choose for a step or a sub-agent: ids, or names with their ids. Absent: the configuration's. */
  stepModels: StepModels.optional(),
  /** What the service must make of `model` and its own settings, or it refuses the request (409). Absent: anything. */
  expectedModel: z
    .strictObject({
      /** Empty: left to the server's list. */
      id: Line,
      /** Address of its server without a trailing slash; null: the offline model. */
      server: z.string().max(2_048).nullable(),
    })
    .optional(),
  /** Names of allowed tools, or a map from names to true or false. Absent: all. */
  tools: z.union([z.array(Line).max(256), z.record(Line, z.boolean())]).optional(),
  /** Further facts for the model, by name: texts, or sections with a budget and a place. */
  context: z.record(Line.min(1), z.union([Document, RunSectionInput])).optional(),
  /** Facts for lists, such as a ticket; the agent does not get them. */
  metadata: RunMetadata.optional(),
  /** JSON schema that the final answer must fit. */
  outputSchema: AnswerForm.optional(),
  /** The run to continue, on the same workspace. */
  continue: RunId.optional(),
  files: z
    .strictObject({
      /** Patterns of ignored or secret paths to copy anyway. */
      include: z.array(z.string().max(4_096)).max(1_000).optional(),
      /** Accepts the ignore rules as earlier runs left them. */
      acceptIgnoreRules: z.boolean().optional(),
    })
    .optional(),
  plan: z
    .strictObject({
      /** The run ends with its plan and changes nothing. */
      only: z.boolean().optional(),
      /** The plan and each revision need approval. */
      approve: z.boolean().optional(),
      /** The plan to execute: a plan, or the run that has it. */
      from: z.union([RunId, Plan]).optional(),
    })
    .optional(),
  approvals: z
    .strictObject({
      /** What answers when no rule does: a person, always yes, always no. Absent: `ask`. */
      mode: z.enum(['ask', 'all', 'none']).optional(),
      rules: z.array(ApprovalRule).max(1_000).optional(),
      /** Whether somebody answers what no rule and no mode does. False: it is denied. Absent: true. */
      interactive: z.boolean().optional(),
    })
    .optional(),
  egress: z.strictObject({ rules: z.array(EgressRule).max(1_000).optional() }).optional(),
  limits: RunLimits.partial().optional(),
  /** Among the waiting runs of the same key, subject or owner. Absent: `normal`. */
  priority: RunPriority.optional(),
  /** Time, ms, after which a run that has not begun ends with the reason `queue_timeout`. Absent: it waits without a limit. */
  startWithinMs: StartWithin.optional(),
  vm: z
    .strictObject({
      memoryBytes: z.int().positive().optional(),
      cpus: z.int().positive().optional(),
      diskBytes: z.int().positive().optional(),
      /** Saves the VM at the end for a run that continues this one. */
      keep: z.boolean().optional(),
      /** Wait for a person, ms, before the VM is saved; 0 for never. Absent: 5 minutes. */
      hibernateAfterMs: z.int().min(0).optional(),
      /** Wait for answers, ms, before the run sleeps without a VM; 0 for never. Absent: the configuration's, 1 hour. */
      sleepAfterMs: z.int().min(0).optional(),
    })
    .optional(),
})
/** What a run is started with; as the options of `host.run` in the library. */
export const RunRequest = RunFields.refine(({ prompt, plan }) => prompt !== '' || plan?.from !== undefined, {
  path: ['prompt'],
  message: 'expected a task',
}).refine(({ workspace, uploadedWorkspace }) => workspace === undefined || uploadedWorkspace === undefined, {
  path: ['uploadedWorkspace'],
  message: 'expected no workspace beside it',
})
export type RunRequest = z.infer<typeof RunRequest>

/** What a run of a workflow is started with. */
export const WorkflowRunRequest = RunFields.omit({
  prompt: true,
  images: true,
  context: true,
  outputSchema: true,
  continue: true,
  plan: true,
})
  .extend({
    /** The workflow file, as text or JSON; or `AGENT@VERSION` of a published one. */
    workflow: z.union([
      z
        .string()
        .min(1)
        .max(512 * 1024),
      z.record(z.string(), z.unknown()),
    ]),
    /** Input of the workflow. Absent: null. */
    input: z.unknown().optional(),
  })
  .refine(({ workspace, uploadedWorkspace }) => workspace === undefined || uploadedWorkspace === undefined, {
    path: ['uploadedWorkspace'],
    message: 'expected no workspace beside it',
  })
export type WorkflowRunRequest = z.infer<typeof WorkflowRunRequest>

/** A workflow to look at. */
export const WorkflowCheckRequest = z.strictObject({ workflow: WorkflowRunRequest.shape.workflow })
export type WorkflowCheckRequest = z.infer<typeof WorkflowCheckRequest>

/** What a workflow is, or what is wrong with it. */
export const WorkflowCheckResource = z.strictObject({
  /** Null where it has problems. Its texts are untrusted. */
  workflow: z
    .strictObject({
      name: z.string(),
      version: z.string(),
      description: z.string().optional(),
      /** JSON schema of its input. Absent: any. */
      input: z.record(z.string(), z.unknown()).optional(),
      /** In the order of the file; the first one begins. */
      steps: z.array(
        z.strictObject({
          id: z.string(),
          name: z.string(),
          /** `from`: it is a step of another workflow. */
          work: z.enum([...workOfStep.options, 'from']),
          /** What follows, in the order in which conditions are tried; `-` ends the workflow. */
          next: z.array(
            z.strictObject({
              to: z.string(),
              on: z.enum(['completed', 'failed']),
              /** Whether it is one of several cases; the first that holds is taken. */
              isCase: z.boolean(),
              when: z.string().optional(),
            }),
          ),
          when: z.string().optional(),
          /** Expression of the list for whose entries it runs. */
          each: z.string().optional(),
          repeat: z.string().optional(),
        }),
      ),
    })
    .nullable(),
  /** In the order of the file, at most 100. */
  problems: z.array(
    z.strictObject({
      /** Key of the file; empty for the file as a whole. */
      key: z.string(),
      /** Below the key, names joined by dots. */
      path: z.string(),
      message: z.string(),
      /** From 1; of a workflow that was sent as JSON, of its compact text. */
      line: Count,
      column: Count,
    }),
  ),
})
export type WorkflowCheckResource = z.infer<typeof WorkflowCheckResource>

/** What was uploaded. */
export const WorkspaceResource = z.strictObject({
  /** For `uploadedWorkspace` of a run. */
  id: WorkspaceId,
  /** Files, directories and links. */
  entries: Count,
  /** Of all files. */
  contentBytes: Count,
})

/** A run, as lists and `GET /v1/runs/{run}` show it. Texts of lists are cut to 500 characters. */
export const RunResource = z.strictObject({
  id: RunId,
  /** `queued`, `running`, `waiting`, `sleeping`, `interrupted`, `damaged`, or how it ended. */
  status: Line,
  /** Since when it is queued, waits, sleeps or is interrupted. */
  since: Milliseconds.optional(),
  /** Whether it sleeps because a person paused it; answers alone do not wake it. Absent: not so. */
  isPaused: z.literal(true).optional(),
  /** Absent: it does not wait in the queue. */
  queue: z
    .strictObject({
      /** 1 is next, as far as it is known now. */
      place: Count.min(1),
      /** Runs that wait, of all callers. */
      waiting: Count,
      priority: RunPriority,
      /** The run ends if it has not begun by then. Absent: it waits without a limit. */
      startBy: Milliseconds.optional(),
    })
    .optional(),
  startedAt: Milliseconds,
  prompt: Line,
  /** Path on the service's machine. */
  workspace: z.string(),
  model: Line,
  metadata: RunMetadata.optional(),
  /** Options of the request that have no effect with its model, a sentence or two each. Absent: none. */
  notes: z.array(Text).optional(),
  continues: RunId.optional(),
  /** The run that it continues from an earlier moment, as its fork. */
  forkedFrom: RunId.optional(),
  phase: z.enum(['preparing', 'planning', 'working', 'ended']),
  toolCalls: Count,
  usage: Usage,
  isUsageEstimated: z.boolean(),
  /** US dollars; null where a price is unknown. */
  costUsd: z.number().nullable(),
  /** Changed paths; null while the run has brought no changes. */
  changes: Count.nullable(),
  /** Applied paths; null before the first apply. */
  applied: Count.nullable(),
  pendingApprovals: Count,
  /** Whether a process works on it now. */
  isLive: z.boolean(),
  /** How it ended; null before. */
  end: z.strictObject({ outcome: Line, reason: Line, message: Line }).nullable(),
  /** Why its journal cannot be read. Absent: it can. */
  problem: z.string().optional(),
})
export type RunResource = z.infer<typeof RunResource>

/** The result of an ended run. */
export const RunResultResource = z.strictObject({
  runId: RunId,
  outcome: Line,
  reason: Line,
  /** Why it ended so; empty when it completed. */
  message: Text,
  /** The agent's answer. Untrusted text. */
  summary: Document,
  /** The value of `summary` where the run has an output schema. Untrusted. */
  value: z.unknown().optional(),
  changes: z.strictObject({ entries: Count, flagged: z.array(z.string()) }).nullable(),
  usage: Usage,
  isUsageEstimated: z.boolean(),
  costUsd: z.number().nullable(),
  /** SHA-256 of the journal's last line. */
  journalHead: z.string(),
})

/** A question that a run waits for. Everything but `kind`, `access` and `answers` is what the agent says. */
export const ApprovalResource = z.strictObject({
  runId: RunId,
  /** Time of the question. */
  at: Milliseconds,
  approval: ApprovalRequest.omit({ runId: true }).extend({
    kind: z.enum(['enforced', 'cooperative']),
    access: z.unknown().optional(),
    because: z.string().optional(),
    answers: z.array(z.unknown()).optional(),
  }),
})

/** The answer of a person. */
export const AnswerRequest = z.strictObject({
  decision: z.enum(['allow', 'deny']),
  /** How long it applies. Absent: `once`. */
  scope: ApprovalScope.default('once'),
  reach: AnswerReach.optional(),
  /** With scope `run`: ms after which it expires. Absent: with the run. */
  forMs: AnswerDuration.optional(),
  /** For a denial: what the agent should do instead. */
  hint: Text.optional(),
  /** For the question about a plan: the plan to execute instead. */
  plan: Plan.optional(),
  /** For a question of the agent. */
  answer: UserAnswer.optional(),
  /** Who answers, for the journal. Absent: the name of the key. */
  by: Line.min(1).optional(),
})

const PushId = z.string().regex(/^[A-Za-z0-9_-]{24}$/, 'expected the id of a browser')

/** A browser that subscribed to messages, as `PushSubscription.toJSON()` has it. */
export const PushRequest = z.strictObject({
  /** Of its push service. */
  endpoint: z.url({ protocol: /^https?$/ }).max(2_048),
  keys: z.strictObject({
    p256dh: z.string().regex(/^[A-Za-z0-9_-]{87}$/, 'expected 65 bytes in base64url'),
    auth: z.string().regex(/^[A-Za-z0-9_-]{22}$/, 'expected 16 bytes in base64url'),
  }),
})
export type PushRequest = z.infer<typeof PushRequest>

/** A browser that gets messages. */
export const PushResource = z.strictObject({
  /** Made of its endpoint. */
  id: PushId,
})

export const PushParams = z.strictObject({ browser: PushId })

export const PushKeyResource = z.strictObject({
  /** `applicationServerKey`, in base64url. */
  publicKey: z.string(),
})

/** An answer of a person that applies to later calls of the run, until it is revoked or expires. */
export const RunAnswerResource = z.strictObject({
  /** The approval that was answered so. */
  approvalId: Id,
  decision: z.enum(['allow', 'deny']),
  tool: z.string(),
  /** Canonical JSON of the call's arguments, when the answer is for the same command alone. Untrusted text. */
  arguments: z.string().optional(),
  /** For network access: the address that was asked about, how broadly the answer applies, and what that is in words. */
  access: z
    .strictObject({ address: z.string(), reach: z.enum(['host', 'suffix', 'path']), allows: z.string() })
    .optional(),
  /** Who answered; absent in older journals. */
  name: z.string().optional(),
  /** When it expires, ms since 1970. Absent: with the run. */
  until: Milliseconds.optional(),
})

/** A status that the next one makes obsolete; it has no number and is not stored. */
export const DeltaItem = z.strictObject({
  source: z.literal('delta'),
  runId: RunId,
  agentPath: AgentPath,
  delta: z.union([Delta, HostDelta]),
})

export const EventPage = z.strictObject({
  events: z.array(JournalEvent),
  /** `from` of the next page. */
  next: z.int().min(1),
  /** Whether the run has ended and `events` has its last one. */
  isLast: z.boolean(),
})

const ChangeState = z.looseObject({ kind: z.string() })
/** A changed path, compared with the files on the host now. */
export const ChangeResource = z.strictObject({
  path: z.string(),
  change: z.enum(['added', 'modified', 'deleted', 'mode', 'unsupported']),
  /** Why it is left out unless it is named. */
  flagged: z.string().optional(),
  binary: z.boolean().optional(),
  renamedFrom: z.string().optional(),
  renamedTo: z.string().optional(),
  filesBelow: Count.optional(),
  reason: z.string().optional(),
  before: z.unknown().optional(),
  after: z.unknown().optional(),
  state: ChangeState,
  /** Unified diff, or null with the reason in `noDiff`. Untrusted text. */
  diff: z.string().nullable(),
  noDiff: z.string().optional(),
  /** Parts of the diff that can be applied by themselves, in its order. */
  hunks: z.array(
    z.strictObject({
      /** Stays the same while other hunks of the file are applied. */
      id: z.string(),
      ...{ oldStart: Count, oldLines: Count, newStart: Count, newLines: Count },
    }),
  ),
})

const Paths = z.array(z.string().min(1)).min(1).max(100_000)
/** By path: numbers of hunks in the diff of now, from 1, or their IDs. */
const Hunks = z
  .record(
    z.string().min(1),
    z
      .array(z.union([z.int().min(1), z.string().min(1).max(64)]))
      .min(1)
      .max(10_000),
  )
  .refine((hunks) => Object.keys(hunks).length > 0, 'names no path')

export const ApplyRequest = z.strictObject({
  /** `all`: what is neither flagged nor in conflict; or paths, or hunks of files, or both. */
  select: z.union([
    z.literal('all'),
    z.strictObject({ paths: Paths, hunks: Hunks.optional() }),
    z.strictObject({ hunks: Hunks }),
  ]),
})

const Held = z.strictObject({ path: z.string(), reason: z.string() })
const Stopped = z.looseObject({ code: z.string(), message: z.string() })
export const ApplyResource = z.strictObject({
  applied: z.array(z.string()),
  /** Those of `applied` that got only some hunks. */
  parts: z.array(z.strictObject({ path: z.string(), hunks: Count, of: Count })),
  already: z.array(z.string()),
  conflicts: z.array(Held),
  failed: z.array(Held),
  leftOut: z.array(Held),
  notReached: z.array(z.string()),
  stopped: Stopped.optional(),
  appliedNow: Count,
})
export const UndoResource = z.strictObject({
  restored: z.array(z.string()),
  conflicts: z.array(Held),
  stopped: Stopped.optional(),
  appliedNow: Count,
  problems: z.array(z.string()),
})

export const VmResource = z.looseObject({
  id: z.string(),
  runId: RunId.nullable(),
  state: z.string(),
  memoryBytes: Count,
  cpus: Count,
})

/** The service runs; whether a run can start is another question, see {@link Ready}. */
export const Health = z.strictObject({
  status: z.literal('running'),
  version: z.string(),
})

export const Ready = z.strictObject({ status: z.literal('ready') })

export const MessageRequest = z.strictObject({
  text: Text.min(1),
  /** Path of the sub-agent that gets it, such as `root/tests` or `tests`. Absent: the root agent. */
  to: Line.min(1).optional(),
  by: Line.min(1).optional(),
})
export const CancelRequest = z
  .strictObject({
    /** Ends the VM at once, without its changes. Absent: the agent may end in order. Not with `agent`. */
    now: z.boolean().optional(),
    /** Path of the sub-agent to cancel, with those below it; the run continues. Absent: the run is cancelled. */
    agent: Line.min(1).optional(),
    /** With `agent`: for its parent and for people. */
    reason: Text.optional(),
  })
  .refine(({ now, agent }) => now === undefined || agent === undefined, {
    path: ['now'],
    message: 'ends the whole run, so it cannot be given with agent',
  })
  .refine(({ reason, agent }) => reason === undefined || agent !== undefined, {
    path: ['reason'],
    message: 'is for the parent of a sub-agent, so it needs agent',
  })

/** A moment of a run: a step before it first started, `start`, `end` for the last checkpoint, or `now` for a new one. */
const Moment = Line.min(1)

export const ForkRequest = z.strictObject({
  at: Moment,
  /** New runs. Absent: one for each of `prompts`, else 1. */
  count: z.int().min(1).max(limits.forksMaxCount).optional(),
  /** What the person says to each new run, in their order. */
  prompts: z.array(Text).max(limits.forksMaxCount).optional(),
  /** Who forks, for the journals. Absent: the name of the key. */
  by: Line.min(1).optional(),
})
/** The new runs, which wait for `POST /v1/runs/{run}/resume`. */
export const ForksResource = z.strictObject({
  /** The step before which they begin, `start`, `now` (the moment of the request) or `end` (the last checkpoint before it). */
  step: z.string(),
  /** For `now`: why they begin at the last checkpoint instead. Absent: they begin where the request says. */
  notNow: z.string().optional(),
  /** Null: from the beginning of the run. */
  checkpointId: z.string().nullable(),
  runIds: z.array(RunId),
})

export const RewindRequest = z.strictObject({
  to: Moment,
  /** What the person says to the run from there. */
  prompt: Text.optional(),
  /** Rewinds although the run did something outside its VM since, which stays. */
  despiteEffects: z.boolean().optional(),
  /** Who rewinds, for the journals. Absent: the name of the key. */
  by: Line.min(1).optional(),
})
export const RewoundResource = z.strictObject({
  /** The run that takes the place of the other; it waits for `POST /v1/runs/{run}/resume`. */
  runId: RunId,
  step: z.string(),
  /** What the other run did outside its VM behind the moment. */
  effects: z.array(z.string()),
})

/** Where a line is from. Calls are positions in `calls`, from 0. */
const LineOrigin = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('workspace'),
    /** Path and line as they went into the VM. */
    path: WorkspacePath,
    line: Count.min(1),
    /** The call that renamed the file. Absent: none did. */
    moved: Count.optional(),
  }),
  z.strictObject({ kind: z.literal('call'), call: Count }),
  z.strictObject({
    kind: z.literal('candidates'),
    /** One of them made the line: those that name the file first, then newest first. Empty: the journal does not say. */
    calls: z.array(Count),
    /** Number of earlier candidates that are not named. */
    more: Count,
    /** Whether a person with access to the VM may have made it. */
    access: z.boolean(),
  }),
])
const BlamedLine = z.strictObject({
  /** From 1; of a removed line, in the file as it went into the VM. */
  line: Count.min(1),
  /** Without its end. Untrusted text. */
  text: z.string(),
  origin: LineOrigin,
})
/** A tool call and what led to it. The agent reports it: all texts but those of `approval` and `messages` are claims. */
const BlamedCall = z.strictObject({
  /** Number of its event. */
  seq: Count.min(1),
  at: Milliseconds,
  agentPath: AgentPath,
  stepId: z.string(),
  /** Empty when the step is not in the plan. */
  stepTitle: z.string(),
  callId: z.string(),
  tool: z.string(),
  /** Its main argument in one line. */
  summary: z.string(),
  /** The beginning of its arguments, of its output and of all further texts: at most 2,000 characters each. */
  arguments: z.string(),
  output: z.string(),
  /** Absent when it succeeded, or did not end. */
  error: z.string().optional(),
  /** The model's turn that asked for it. Absent: it is not known. */
  turn: z.strictObject({ turn: Count, text: z.string(), reasoning: z.string().optional() }).optional(),
  /** The task of the sub-agent. Absent: the run's own agent made the call. */
  brief: z.string().optional(),
  /** Messages of people that the agent saw last before the call. */
  messages: z.array(z.strictObject({ text: z.string(), by: z.string() })),
  /** Absent when nothing was asked. */
  approval: ApprovalRecord.pick({
    ...{ approvalId: true, decision: true, scope: true, reach: true, by: true, name: true, via: true },
    ...{ rule: true, hint: true, earlierId: true },
  }).optional(),
})
/** Where each line of a changed file is from. */
export const BlameResource = z.strictObject({
  runId: RunId,
  path: WorkspacePath,
  change: z.enum(['added', 'modified', 'deleted']),
  /** The beginning of the run's task. */
  prompt: z.string(),
  /** The file as the run made it; none of a deleted one. */
  lines: z.array(BlamedLine),
  /** Lines that the run removed, and what removed them. */
  removed: z.array(BlamedLine),
  /** What deleted the file. Absent: it is there. */
  deletion: LineOrigin.optional(),
  calls: z.array(BlamedCall),
})

/** The changes of several runs, path by path. */
export const ComparisonResource = z.strictObject({
  runs: z.array(
    z.strictObject({
      runId: RunId,
      outcome: Line,
      /** The agent's answer. Untrusted text. */
      summary: Document,
      entries: Count,
      requests: Count,
      costUsd: z.number().nullable(),
    }),
  ),
  paths: z.array(
    z.strictObject({
      path: z.string(),
      /** In the order of `runs`; null: the run left the path as it was. */
      runs: z.array(
        z
          .strictObject({
            change: z.enum(['added', 'modified', 'deleted', 'mode', 'unsupported']),
            /** Lines; absent for what has none. */
            added: Count.optional(),
            removed: Count.optional(),
            /** Runs with the same number left the same content at this path. */
            content: z.int().min(1),
          })
          .nullable(),
      ),
      /** Whether all runs left the same. */
      isSame: z.boolean(),
    }),
  ),
})

/** The runs whose changes are merged; they began with the same files. */
export const MergeRequest = z.strictObject({
  runs: z.array(RunId).min(2).max(16),
  /** Choices where the runs differ: the change of a run to a path, or hunks of it. */
  takes: z
    .array(
      z.strictObject({
        runId: RunId,
        path: WorkspacePath,
        /** Numbers from 1, as the patch of the run's change has them. Absent: the whole change. */
        hunks: z.array(z.int().min(1)).min(1).max(10_000).optional(),
      }),
    )
    .max(10_000)
    .optional(),
})
export const MergedResource = z.strictObject({
  /** The new run with the merged changes, which belongs to the caller. Absent where there are conflicts. */
  runId: RunId.optional(),
  /** Changed paths, without those in conflict. */
  entries: Count,
  /** Paths with lines of more than one run. */
  merged: z.array(z.string()),
  /** What `takes` must decide; then nothing was made. */
  conflicts: z.array(z.strictObject({ path: z.string(), reason: z.string() })),
})

/** Longest time of a command over the result of a run; common clients wait five minutes for an answer. */
const testMaxMs = 240_000
export const TestRequest = z.strictObject({
  /** A command for the shell, in a copy of the workspace with the changes of the run. */
  command: Text.min(1),
  /** Milliseconds after which the command is ended. */
  timeoutMs: z.int().min(1).max(testMaxMs).default(60_000),
})
export const TestResource = z.strictObject({
  runId: RunId,
  /** Null where the time limit ended it. */
  exitCode: z.int().nullable(),
  timedOut: z.boolean(),
  /** Of the command alone. */
  durationMs: z.int().min(0),
  /** Text of the VM, at most 1 MiB. Untrusted. */
  stdout: z.string(),
  stderr: z.string(),
})

/** Schemas with a name of their own in the OpenAPI document. */
export const named = {
  Problem,
  JsonValue,
  RunRequest,
  Workspace: WorkspaceResource,
  Run: RunResource,
  RunResult: RunResultResource,
  Approval: ApprovalResource,
  Answer: AnswerRequest,
  RunAnswer: RunAnswerResource,
  HostEvent,
  JournalEvent,
  DeltaItem,
  EventPage,
  Change: ChangeResource,
  ApplyRequest,
  ApplyResult: ApplyResource,
  UndoResult: UndoResource,
  ForkRequest,
  Forks: ForksResource,
  RewindRequest,
  Rewound: RewoundResource,
  Comparison: ComparisonResource,
  Blame: BlameResource,
  MergeRequest,
  Merged: MergedResource,
  TestRequest,
  TestResult: TestResource,
  Vm: VmResource,
  Note: NoteResource,
  Grant: GrantResource,
  Skills: SkillsResource,
  Finding: FindingResource,
  Template: TemplateResource,
  Health,
  Ready,
  ChatRequest,
  TaskRequest,
  TaskAnswer,
} as const satisfies Readonly<Record<string, z.ZodType>>

export const RunParams = z.strictObject({ run: RunId })
export const ApprovalParams = z.strictObject({ run: RunId, approval: Id })
/** `image` is the sha256 of its bytes. */
export const ImageParams = z.strictObject({ run: RunId, image: Sha256 })
