/** Events of the host: facts that only the host can write. */

import * as z from 'zod'
import { AccessQuestion, ApprovalRecord, ApprovalRequest, OfferedAnswer } from './approval.ts'
import { ChangedPath, lookMaxPaths } from './change.ts'
import { TurnSection, turnSectionsMaxCount } from './context-section.ts'
import { EgressRecord, EgressStart } from './egress.ts'
import { RunReason, ToolError } from './error.ts'
import { GovernanceNote, HostToolCall, MemoryNote, NoteId } from './extension.ts'
import { HookPoint } from './hook.ts'
import { ImageRef, imagesMaxCount } from './image.ts'
import { ModelEnd, ModelRetry, ModelStart, ModelWait } from './model-request.ts'
import { Effort } from './plan.ts'
import { RunLimits, RunOutcome, Usage } from './task.ts'
import {
  AgentPath,
  CheckpointId,
  Count,
  Document,
  Id,
  Line,
  Milliseconds,
  RunId,
  Sha256,
  Text,
  WorkspacePath,
} from './text.ts'
import { WorkflowOutline, WorkflowSource } from './workflow.ts'

/** A path that was not copied into the VM, and why. */
export const LeftOut = z.strictObject({
  path: z.string(),
  reason: z.enum([
    'ignored',
    /** A run changed the rule that excluded it, and no person accepted that. */
    'rules_changed',
    'secret',
    'unreadable',
    'socket',
    'device',
    'fifo',
    'too_large',
    'other_filesystem',
    // The name pattern identifies temporary files of a killed apply.
    'staged',
  ]),
})
export type LeftOut = z.infer<typeof LeftOut>

/** Facts of the application about a run, such as its tenant or ticket; they mean nothing to Caisson. */
export const RunMetadata = z
  .record(
    z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'expected a key of 1 to 64 of A-Z a-z 0-9 . _ -'),
    Line,
  )
  .refine((metadata) => Object.keys(metadata).length <= 16, 'expected at most 16 keys')
export type RunMetadata = z.infer<typeof RunMetadata>

const RunStart = z.strictObject({
  type: z.literal('run-start'),
  prompt: Document,
  /** Images in the workspace that the task is about, as they were then. Absent: none. */
  images: z
    .array(z.strictObject({ path: WorkspacePath, image: ImageRef }))
    .min(1)
    .max(imagesMaxCount)
    .optional(),
  model: Line,
  /** Provider of the model: `nvidia`, `custom` or `offline`. */
  provider: Line,
  /** How much the model reasons. Absent: as it does by itself. */
  effort: Effort.optional(),
  directory: z.string(),
  /** Absent: none was given. */
  metadata: RunMetadata.optional(),
  /** The run that it continues. */
  continues: RunId.optional(),
  /** The run that it replays from what was recorded; nothing of a replay is applied. Absent: it is no replay. */
  replays: RunId.optional(),
  /** The run that it was forked from, and where; the lines until there are that run's. Absent: it is no fork. */
  forkedFrom: z
    .strictObject({
      runId: RunId,
      /** Null: its beginning. */
      checkpointId: CheckpointId.nullable(),
      /** The step before which that was, or `start`, `end`, or `now` for a checkpoint that was made for the fork. */
      step: Id,
      /** What the other run did outside its VM behind the moment, and a person accepted. Absent: nothing was asked. */
      despite: z.array(Line).min(1).max(20).optional(),
      /** Who forked or rewound; absent in older journals. */
      by: Line.optional(),
      /** When, ms since 1970; the lines until there have the times of the other run. Absent in older journals. */
      at: Milliseconds.optional(),
    })
    .optional(),
  /** The runs whose changes it merges: no agent worked in it. Absent: it is no merge. */
  mergedFrom: z.array(RunId).min(2).max(16).optional(),
  /** `plan`: it ends with its plan, and nothing is applied. Absent: `work`. */
  mode: z.enum(['work', 'plan']).optional(),
  /** Whether a person must approve its plan; absent: no. */
  approvePlan: z.boolean().optional(),
  /** Origin of its plan: the id of a run, a file, or `the application`. Absent: the model makes it. */
  planFrom: Line.optional(),
  /** The workflow that it carries out. Absent: none. */
  workflow: WorkflowSource.extend({
    /** Its steps, for people. Absent: they are too many, or the journal is older. */
    outline: WorkflowOutline.optional(),
  }).optional(),
  limits: RunLimits,
  /** Options that have no effect with its model, for people. Absent: none. */
  notes: z.array(Text).min(1).max(16).optional(),
  /** Absent: `vm-ready` has it. */
  imageKey: Line.optional(),
  /** Absent: `vm-ready` has it. */
  agentDigest: Line.optional(),
})
export const RunPriority = z.enum(['low', 'normal', 'high'])
export type RunPriority = z.infer<typeof RunPriority>
/** Time for a run to begin, ms; at most seven days. */
export const StartWithin = z
  .int()
  .min(1)
  .max(7 * 24 * 3_600_000)

/** The run waits until its host lets it start, or continue; `prepare` shows its place. */
const QueueStart = z.strictObject({
  type: z.literal('queue-start'),
  /** Among the runs of its lane. */
  priority: RunPriority,
  /** The run ends if it has not begun by then. Absent: it waits without a limit. */
  startBy: Milliseconds.optional(),
})
/** The run may use a VM now. */
const QueueEnd = z.strictObject({ type: z.literal('queue-end'), waitedMs: Milliseconds })
const WorkspaceReady = z.strictObject({
  type: z.literal('workspace-ready'),
  files: Count,
  bytes: Count,
  leftOut: Count,
  /** The first omitted paths; the manifest has all of them. */
  examples: z.array(LeftOut).max(50),
  manifestSha256: Sha256,
  /** Patterns of `--include` that matched no path. */
  unmatched: z.array(Text).max(50).optional(),
  /** Folders that the VM got besides the workspace, read-only; absent: none. */
  folders: z
    .array(
      z.strictObject({
        /** It is at `/mnt/folders/NAME` in the VM. */
        name: Line,
        /** Real path on the host. */
        path: z.string(),
        files: Count,
        bytes: Count,
        leftOut: Count,
        /** The first omitted paths, those that are not ordinarily ignored first. */
        examples: z.array(LeftOut).max(10),
      }),
    )
    .max(16)
    .optional(),
})
const VmReady = z.strictObject({
  type: z.literal('vm-ready'),
  /** How it started: by a boot, from a template, or from a saved state. */
  start: z.enum(['boot', 'template', 'saved']).optional(),
  /** Why it was booted although a template was requested; for a copy, why it is not the VM kept by an earlier run. */
  coldReason: Text.optional(),
  accelerator: Line,
  confinement: Line,
  /** The image of the run's host; absent in older journals. */
  imageKey: Line.optional(),
  /** The agent's bundle; absent in older journals. */
  agentDigest: Line.optional(),
  /** Phase name to duration. */
  phasesMs: z.record(Line, Milliseconds),
})
/** The VM was saved to the host's disk because the run only waits for a person. */
const VmSleep = z.strictObject({ type: z.literal('vm-sleep'), durationMs: Milliseconds })
const VmWake = z.strictObject({
  type: z.literal('vm-wake'),
  durationMs: Milliseconds,
  /** Whether its memory file was laid out for mapping. */
  prepared: z.boolean(),
})
/** The VM was saved, without its workspace, for a run that continues this one. */
const VmKept = z.strictObject({ type: z.literal('vm-kept') })
/** The run as it is here is on the disk: another agent can continue from this line. */
const Checkpoint = z.strictObject({
  type: z.literal('checkpoint'),
  checkpointId: CheckpointId,
  /** Time until it was made. */
  durationMs: Milliseconds,
  /** Time of the run that counts toward its limit, until here. */
  elapsedMs: Milliseconds,
  /** Exchanges with the model and the web that were recorded until here. */
  exchanges: Count,
})
/**
 * The run waits only for people, without a VM or saved memory: an answer, or that a paused one is resumed, has another
 * agent continue from the checkpoint.
 */
const RunSleep = z.strictObject({
  type: z.literal('run-sleep'),
  checkpointId: CheckpointId,
  /** Whether a person has paused it: answers alone do not wake it. */
  paused: z.literal(true).optional(),
})
/** The process left the run, which stays interrupted: another one can continue it from its last checkpoint. */
const RunInterrupt = z.strictObject({
  type: z.literal('run-interrupt'),
  reason: RunReason,
  /** For people, with what to do. */
  message: Text,
})
/** A host of a fleet took the run over from another one. What that one still writes is refused. */
const RunTake = z.strictObject({
  type: z.literal('run-take'),
  /** How often a host took the run, with this time. */
  epoch: Count.min(1),
  /** Name of the host. */
  host: Line,
  /** Why the host before does not continue it. */
  message: Line,
})
/** Another agent continues the run, in a new VM: everything after the checkpoint is done again. */
const RunResume = z.strictObject({
  type: z.literal('run-resume'),
  /** Number of agents that the run has had, with this one. */
  epoch: Count.min(2),
  /** Null: there was none, and the run starts from its beginning. */
  checkpointId: CheckpointId.nullable(),
  /** Why the agent before cannot continue. */
  message: Text,
  /** What programs had reached after the checkpoint, at most 20: their requests may be made again. Absent: nothing. */
  reached: z.array(Line).min(1).max(20).optional(),
})
const VmEnd = z.strictObject({ type: z.literal('vm-end'), expected: z.boolean(), message: Text })
const SessionStart = z.strictObject({
  type: z.literal('session-start'),
  session: Count.min(1),
  /** Whether the same agent process continued. */
  resumed: z.boolean(),
})
const SessionEnd = z.strictObject({
  type: z.literal('session-end'),
  session: Count.min(1),
  reason: Line,
  message: Text,
})
const ApprovalAsked = z.strictObject({
  type: z.literal('approval-request'),
  /** `enforced`: the host performs the effect itself; `cooperative`: the agent obeys. */
  kind: z.enum(['enforced', 'cooperative']),
  request: ApprovalRequest.omit({ runId: true }),
  digest: Sha256,
  /** For a question about network access; `request` is then only its cause. */
  access: AccessQuestion.optional(),
  /** Why the rules for commands leave it to a person; the host's words. */
  because: Line.optional(),
  /** The answers that it accepts; absent in older journals. */
  answers: z.array(OfferedAnswer).max(16).optional(),
})
const ApprovalDecided = z.strictObject({ type: z.literal('approval-decision'), ...ApprovalRecord.shape })
/** A person revokes an answer for the run: later calls are asked about again. */
const ApprovalRevoked = z.strictObject({
  type: z.literal('approval-revoke'),
  /** The approval that was answered so. */
  approvalId: Id,
  by: Line,
})
const EgressDenied = z.strictObject({ type: z.literal('egress-denied'), target: Line, reason: Line })
const EgressStarted = z.strictObject({ type: z.literal('egress-start'), ...EgressStart.shape })
const EgressEnd = z.strictObject({ type: z.literal('egress-end'), ...EgressRecord.shape })
const ChangesReady = z.strictObject({
  type: z.literal('changes-ready'),
  entries: Count,
  contentBytes: Count,
  flagged: z.array(WorkspacePath).max(1_000),
  /** The first thousand paths; absent in older journals. */
  paths: z.array(ChangedPath).max(1_000).optional(),
  sha256: Sha256,
})
const ApplyStart = z.strictObject({
  type: z.literal('apply-start'),
  paths: Count,
  sha256: Sha256,
  /** Who applies; absent: not given. */
  by: Line.optional(),
})
const ApplyEnd = z.strictObject({
  type: z.literal('apply-end'),
  applied: Count,
  /** The first thousand applied paths; absent in older journals. */
  paths: z.array(WorkspacePath).max(1_000).optional(),
  /** Those of `paths` that got only some hunks; absent when there are none. */
  parts: z
    .array(z.strictObject({ path: WorkspacePath, hunks: Count, of: Count }))
    .max(1_000)
    .optional(),
  leftOut: Count,
  conflicts: z.array(z.strictObject({ path: WorkspacePath, reason: Line })).max(1_000),
  failed: z.array(z.strictObject({ path: WorkspacePath, reason: Line })).max(1_000),
  /** Currently applied paths of the run, by its apply log; absent in older journals. */
  total: Count.optional(),
})
/** Written before the first path is restored. */
const UndoStart = z.strictObject({
  type: z.literal('undo-start'),
  /** Paths in the apply log. */
  paths: Count,
  /** Who undoes; absent: not given. */
  by: Line.optional(),
})
const UndoEnd = z.strictObject({
  type: z.literal('undo-end'),
  restored: Count,
  /** The first thousand restored paths; absent in older journals. */
  paths: z.array(WorkspacePath).max(1_000).optional(),
  conflicts: z.array(z.strictObject({ path: WorkspacePath, reason: Line })).max(1_000),
  /** As in `apply-end`. */
  total: Count.optional(),
})
const VmAccess = z.strictObject({
  type: z.literal('vm-access'),
  /** A person's access to the VM: a terminal, one command, or a connection to a port of the guest. */
  kind: z.enum(['shell', 'command', 'forward']),
  /** The command, or the port; empty for a shell. */
  detail: Line,
})
const HookEnd = z.strictObject({
  type: z.literal('hook-end'),
  point: HookPoint,
  /** Source: the configuration or the application. */
  hook: Line,
  /** The agent concerned; absent for the run's own. */
  agentPath: AgentPath.optional(),
  stepId: Id.optional(),
  callId: Id.optional(),
  decision: z.enum(['allow', 'deny', 'ask']),
  reason: Text.optional(),
  /** Canonical JSON of arguments that replaced those of the call. */
  arguments: Document.optional(),
  /** What the model reads beside the result; absent when there was none, and in older journals. */
  note: Text.optional(),
  /** Before a request of the model: the sections that it gave; absent when it gave none. */
  context: z.array(TurnSection).min(1).max(turnSectionsMaxCount).optional(),
  /** Whether it failed and the decision is its failure default. */
  failed: z.boolean().optional(),
  durationMs: Milliseconds,
})
/** A tool of the host application starts; written before it runs. */
const HostToolStart = z.strictObject({
  type: z.literal('host-tool-start'),
  ...HostToolCall.omit({ runId: true }).shape,
})
const HostToolEnd = z.strictObject({
  type: z.literal('host-tool-end'),
  callId: Id,
  tool: Line,
  /** Absent when it succeeded. */
  error: ToolError.optional(),
  durationMs: Milliseconds,
})
/** The run proposed a memory note; a person accepts it or not. */
const MemoryProposed = z.strictObject({
  type: z.literal('memory-propose'),
  agentPath: AgentPath,
  note: MemoryNote,
  replaces: NoteId.optional(),
})
const NoteProposed = z.strictObject({
  type: z.literal('note-propose'),
  agentPath: AgentPath,
  note: GovernanceNote,
})
/** Decisions on the notes that the run proposed. */
const NotesDecided = z.strictObject({
  type: z.literal('notes-decide'),
  kept: z.array(NoteId).max(1_000),
  dropped: z.array(NoteId).max(1_000),
  by: Line,
})
const SteerRequest = z.strictObject({
  type: z.literal('steer-request'),
  messageId: Id,
  text: Text,
  /** The sub-agent that it is for. Absent: the root agent. */
  agentPath: AgentPath.optional(),
  by: Line,
})
/** A person cancels one sub-agent, and with it those below; the run continues. */
const AgentCancelRequest = z.strictObject({
  type: z.literal('agent-cancel-request'),
  agentPath: AgentPath,
  /** For the parent and for people; empty when the person gave none. */
  reason: Text,
  by: Line,
})
const PauseRequest = z.strictObject({ type: z.literal('pause-request'), by: Line })
const ResumeRequest = z.strictObject({ type: z.literal('resume-request'), by: Line })
const CancelRequest = z.strictObject({
  type: z.literal('cancel-request'),
  by: Line,
  /** The time of the run is over. Absent: a person cancels it. */
  limit: z.literal(true).optional(),
})
/** The host's disk was full, and writing waited for space. */
const DiskWait = z.strictObject({
  type: z.literal('disk-wait'),
  /** What could not be written. */
  what: Line,
  directory: z.string(),
  /** Free bytes required. */
  neededBytes: Count,
  durationMs: Milliseconds,
})
/** The VM could not be saved for a later run. */
const VmKeepFailed = z.strictObject({ type: z.literal('vm-keep-failed'), message: Text })
const RunEnd = z.strictObject({
  type: z.literal('run-end'),
  outcome: RunOutcome,
  reason: RunReason,
  message: Text,
  summary: Document,
  /** Whether `summary` is JSON that fits the run's output schema; absent: no. */
  structured: z.boolean().optional(),
  usage: Usage,
  durationMs: Milliseconds,
})

/** Status shown during a run; never journaled. */
export const HostDelta = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('disk-full'),
    /** For people: what cannot be written, free and required space, what to do. */
    text: Text,
    directory: z.string(),
    freeBytes: Count,
    neededBytes: Count,
  }),
  ModelWait,
  /** What the run waits for before and after its agent's work, at each change. */
  z.strictObject({
    type: z.literal('prepare'),
    what: z.enum(['image', 'directory', 'workspace', 'queue', 'template', 'vm', 'changes']),
    /** For people: what is done now. */
    text: Line,
    /** For `queue`: 1 is next, counted over all runs that wait for a VM of the pool, or in the queue of the host. */
    place: Count.min(1).optional(),
  }),
  /** The wall time that the run has left; at the start, and when its clock stops or continues. */
  z.strictObject({
    type: z.literal('time-left'),
    remainingMs: Milliseconds,
    /** Time of the host at which that much was left. */
    at: Milliseconds,
    /** Why the clock stands still; absent while it runs. */
    stoppedBy: z.enum(['approval', 'pause', 'disk', 'queue']).optional(),
  }),
  /**
   * What the run has changed so far, after calls while somebody watches. From a short look: it may name a file that was
   * written with its old content. Flags come from the path alone.
   */
  z.strictObject({
    type: z.literal('changes'),
    paths: z.array(ChangedPath).max(lookMaxPaths),
    /** Whether there may be more. */
    isPartial: z.boolean(),
  }),
  /** What the VM uses, every few seconds while somebody watches. */
  z.strictObject({
    type: z.literal('vm-use'),
    /** Resident memory of QEMU, and the memory that the VM was given. */
    memoryBytes: Count,
    memoryMaxBytes: Count,
    /** Processor time since the last one, in percent of one processor; absent in the first. */
    cpuPercent: z.number().min(0).optional(),
    /** Bytes of the VM's scratch disk that are in use on the host. */
    diskBytes: Count,
  }),
  /** The connection to the process of the run broke, and no end was seen. */
  z.strictObject({
    type: z.literal('run-interrupted'),
    /** Time of the last event that was seen; 0: none was. */
    lastAt: Milliseconds,
    message: Text,
  }),
])
export type HostDelta = z.infer<typeof HostDelta>

export const HostEvent = z.discriminatedUnion('type', [
  RunStart,
  QueueStart,
  QueueEnd,
  WorkspaceReady,
  VmReady,
  VmSleep,
  VmWake,
  VmKept,
  Checkpoint,
  RunSleep,
  RunInterrupt,
  RunTake,
  RunResume,
  VmKeepFailed,
  VmEnd,
  SessionStart,
  SessionEnd,
  ApprovalAsked,
  ApprovalDecided,
  ApprovalRevoked,
  ModelStart,
  ModelRetry,
  ModelEnd,
  EgressDenied,
  EgressStarted,
  EgressEnd,
  ChangesReady,
  ApplyStart,
  ApplyEnd,
  UndoStart,
  UndoEnd,
  VmAccess,
  HookEnd,
  HostToolStart,
  HostToolEnd,
  MemoryProposed,
  NoteProposed,
  NotesDecided,
  SteerRequest,
  AgentCancelRequest,
  PauseRequest,
  ResumeRequest,
  CancelRequest,
  DiskWait,
  RunEnd,
])
export type HostEvent = z.infer<typeof HostEvent>
