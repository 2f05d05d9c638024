/** Changes of runs over HTTP: reviewed, applied, undone, explained, compared, merged and tested. */
import * as z from 'zod'
import { ApprovalRecord } from '../protocol/approval.ts'
import {
  AgentPath,
  Count,
  Document,
  Line,
  Milliseconds,
  RunId,
  Text,
  WorkspacePath,
} from '../protocol/text.ts'

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
