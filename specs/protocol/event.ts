/**
 * Events: what a run's journal consists of. The agent's events are claims and carry the guest's own count;
 * the host's events are facts. Only the host numbers (`seq`), stamps and chains them.
 */
import * as z from 'zod'
import { AccessQuestion, ApprovalRecord, ApprovalRequest } from './approval.ts'
import { EgressRecord } from './egress.ts'
import { RunReason, ToolError } from './error.ts'
import { limits } from './limits.ts'
import { AgentLimits, Plan, StepId, StepState } from './plan.ts'
import { RunLimits, RunOutcome, Usage } from './task.ts'
import {
  AgentPath,
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

// ---- what the agent may say -------------------------------------------------------------------------------

const PlanUpdate = z.strictObject({
  type: z.literal('plan-update'),
  /** 1 for the first plan, one more for each later one. */
  revision: Count.min(1),
  plan: Plan,
  /** Why it was changed; absent in the first. */
  reason: Line.optional(),
})
/** A step that failed is begun anew. */
const StepRetry = z.strictObject({
  type: z.literal('step-retry'),
  stepId: StepId,
  /** 2 for the first repetition. */
  attempt: Count.min(2),
  /** Why the attempt before failed. */
  reason: Text,
})
const StepStart = z.strictObject({ type: z.literal('step-start'), stepId: StepId })
const StepEnd = z.strictObject({
  type: z.literal('step-end'),
  stepId: StepId,
  state: StepState.exclude(['pending', 'running']),
  /** The step's answer, or why it did not complete. */
  text: Document,
})
const TurnEnd = z.strictObject({
  type: z.literal('turn-end'),
  /** `plan` while planning. */
  stepId: StepId,
  turn: Count.min(1),
  text: Document,
  /** Tool calls that the model asked for in this turn, in its order. */
  calls: z.array(z.strictObject({ callId: Id, tool: Line })).max(256),
  usage: Usage,
  /** The provider's word: stop, tool_calls, length, content_filter or another. */
  finishReason: Line,
})
const ToolStart = z.strictObject({
  type: z.literal('tool-start'),
  stepId: StepId,
  callId: Id,
  tool: Line,
  /** Canonical JSON of the arguments, cut at the bound of a document. */
  arguments: Document,
})
const ToolEnd = z.strictObject({
  type: z.literal('tool-end'),
  stepId: StepId,
  callId: Id,
  tool: Line,
  /** What the model was told, cut at the bound of a text. */
  output: Text,
  /** Absent when the call succeeded. */
  error: ToolError.optional(),
  /** What of the call was put right before it was carried out, in words; absent when nothing was. */
  corrections: z.array(Line).max(20).optional(),
  durationMs: Milliseconds,
})
/** The first event of a sub-agent, under its own path. */
const AgentStart = z.strictObject({
  type: z.literal('agent-start'),
  /** Of the parent: the step that it works for. */
  stepId: StepId,
  brief: Document,
  /** What it may use, sorted. */
  tools: z.array(Line).max(256),
  limits: AgentLimits,
})
/** The last event of a sub-agent, under its own path. */
const AgentEnd = z.strictObject({
  type: z.literal('agent-end'),
  stepId: StepId,
  state: z.enum(['completed', 'failed', 'cancelled']),
  reason: RunReason,
  /** Its answer, or what it has of one. */
  text: Document,
  usage: Usage,
  /** Paths that came into the parent's view. */
  merged: Count,
  /** Paths that both had changed; the parent's version stayed. */
  conflicts: z.array(Line).max(1_000),
})
/** The conversation of a step was made shorter. */
const ContextCompact = z.strictObject({
  type: z.literal('context-compact'),
  stepId: StepId,
  beforeTokens: Count,
  afterTokens: Count,
  /** What now stands for the part that was left out; empty when outputs were cut and nothing else. */
  summary: Text,
})
/** Messages of a person are in the conversation from here on. */
const SteerSeen = z.strictObject({
  type: z.literal('steer-seen'),
  stepId: StepId,
  messageIds: z.array(Id).min(1).max(limits.steerMaxPending),
})
/** The agent holds: nothing new begins until it is told to go on. */
const PauseStart = z.strictObject({ type: z.literal('pause-start') })
const PauseEnd = z.strictObject({ type: z.literal('pause-end') })
const Note = z.strictObject({ type: z.literal('note'), level: z.enum(['info', 'warn']), text: Text })

export const AgentEvent = z.discriminatedUnion('type', [
  PlanUpdate,
  StepStart,
  StepRetry,
  StepEnd,
  TurnEnd,
  ToolStart,
  ToolEnd,
  AgentStart,
  AgentEnd,
  ContextCompact,
  SteerSeen,
  PauseStart,
  PauseEnd,
  Note,
])
export type AgentEvent = z.infer<typeof AgentEvent>

/** Pieces of text on their way; without a number, coalesced, lost with a session, never journaled. */
export const Delta = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text-delta'), stepId: StepId, text: Text }),
  z.strictObject({ type: z.literal('reasoning-delta'), stepId: StepId, text: Text }),
  z.strictObject({
    type: z.literal('tool-output-delta'),
    stepId: StepId,
    callId: Id,
    stream: z.enum(['stdout', 'stderr']),
    text: Text,
  }),
])
export type Delta = z.infer<typeof Delta>

// ---- what the host alone says -----------------------------------------------------------------------------

/** A path that did not go into the VM, and why. */
export const LeftOut = z.strictObject({
  path: z.string(),
  reason: z.enum([
    'ignored',
    'secret',
    'unreadable',
    'socket',
    'device',
    'fifo',
    'too_large',
    'other_filesystem',
  ]),
})
export type LeftOut = z.infer<typeof LeftOut>

const RunStart = z.strictObject({
  type: z.literal('run-start'),
  prompt: Document,
  model: Line,
  /** Whose model: `nvidia`, `custom` or `offline`. */
  provider: Line,
  directory: z.string(),
  /** The run that it continues. */
  continues: RunId.optional(),
  /** `plan`: it ends with its plan, and nothing of it comes home. Absent: `work`. */
  mode: z.enum(['work', 'plan']).optional(),
  /** Whether its plan is put before a person; absent: it is not. */
  approvePlan: z.boolean().optional(),
  /** Where the plan that it carries out is from: the id of a run, a file, or `the application`. Absent: the model makes it. */
  planFrom: Line.optional(),
  limits: RunLimits,
  imageKey: Line,
  agentDigest: Line,
})
const WorkspaceReady = z.strictObject({
  type: z.literal('workspace-ready'),
  files: Count,
  bytes: Count,
  leftOut: Count,
  /** The first of what was left out; all of it is in the manifest. */
  examples: z.array(LeftOut).max(50),
  manifestSha256: Sha256,
})
const VmReady = z.strictObject({
  type: z.literal('vm-ready'),
  /** How it began: by a boot, as a copy of a template, or as it was saved. */
  start: z.enum(['boot', 'template', 'saved']).optional(),
  /** Why it was booted although a template was wanted; of a copy, why it is not the VM that an earlier run kept. */
  coldReason: Text.optional(),
  accelerator: Line,
  confinement: Line,
  /** Phase name to duration. */
  phasesMs: z.record(Line, Milliseconds),
})
/** The VM was saved to the host's disk, as the run only waits for a person. */
const VmSleep = z.strictObject({ type: z.literal('vm-sleep'), durationMs: Milliseconds })
const VmWake = z.strictObject({
  type: z.literal('vm-wake'),
  durationMs: Milliseconds,
  /** Whether its memory had been laid out to be mapped. */
  prepared: z.boolean(),
})
/** The VM was saved, without its workspace, for a run that continues this one. */
const VmKept = z.strictObject({ type: z.literal('vm-kept') })
const VmEnd = z.strictObject({ type: z.literal('vm-end'), expected: z.boolean(), message: Text })
const SessionStart = z.strictObject({
  type: z.literal('session-start'),
  session: Count.min(1),
  /** Whether the same agent process went on. */
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
  /** `enforced`: the host does the effect itself; `cooperative`: the agent says. */
  kind: z.enum(['enforced', 'cooperative']),
  request: ApprovalRequest.omit({ runId: true }),
  digest: Sha256,
  /** Of a question about a way out; what is in `request` is then only what led to it. */
  access: AccessQuestion.optional(),
})
const ApprovalDecided = z.strictObject({ type: z.literal('approval-decision'), ...ApprovalRecord.shape })
const ModelEnd = z.strictObject({
  type: z.literal('model-end'),
  /** HTTP status given to the guest. */
  status: z.int(),
  /** Without `queuedMs`. */
  durationMs: Milliseconds,
  /** How long the request waited for its turn at the provider; absent: not noticeably. */
  queuedMs: Milliseconds.optional(),
  usage: Usage,
  /** By the user's price table; absent: the price is not known. */
  costUsd: z.number().min(0).optional(),
  /** Whether the provider gave no numbers and the usage is the gateway's estimate; absent in older journals. */
  estimated: z.boolean().optional(),
  /** Absent when the exchange went well. */
  error: Line.optional(),
})
const EgressDenied = z.strictObject({ type: z.literal('egress-denied'), target: Line, reason: Line })
const EgressEnd = z.strictObject({ type: z.literal('egress-end'), ...EgressRecord.shape })
const ChangesReady = z.strictObject({
  type: z.literal('changes-ready'),
  entries: Count,
  contentBytes: Count,
  flagged: z.array(WorkspacePath).max(1_000),
  sha256: Sha256,
})
const ApplyStart = z.strictObject({ type: z.literal('apply-start'), paths: Count, sha256: Sha256 })
const ApplyEnd = z.strictObject({
  type: z.literal('apply-end'),
  applied: Count,
  leftOut: Count,
  conflicts: z.array(z.strictObject({ path: WorkspacePath, reason: Line })).max(1_000),
  failed: z.array(z.strictObject({ path: WorkspacePath, reason: Line })).max(1_000),
})
const UndoEnd = z.strictObject({
  type: z.literal('undo-end'),
  restored: Count,
  conflicts: z.array(z.strictObject({ path: WorkspacePath, reason: Line })).max(1_000),
})
const VmAccess = z.strictObject({
  type: z.literal('vm-access'),
  /** A person's own way into the VM: a terminal, one command, or a connection to a port of the guest. */
  kind: z.enum(['shell', 'command', 'forward']),
  /** The command, or the port; empty for a shell. */
  detail: Line,
})
const SteerRequest = z.strictObject({
  type: z.literal('steer-request'),
  messageId: Id,
  text: Text,
  by: Line,
})
const PauseRequest = z.strictObject({ type: z.literal('pause-request'), by: Line })
const ResumeRequest = z.strictObject({ type: z.literal('resume-request'), by: Line })
const CancelRequest = z.strictObject({ type: z.literal('cancel-request'), by: Line })
const RunEnd = z.strictObject({
  type: z.literal('run-end'),
  outcome: RunOutcome,
  reason: RunReason,
  message: Text,
  summary: Document,
  usage: Usage,
  durationMs: Milliseconds,
})

export const HostEvent = z.discriminatedUnion('type', [
  RunStart,
  WorkspaceReady,
  VmReady,
  VmSleep,
  VmWake,
  VmKept,
  VmEnd,
  SessionStart,
  SessionEnd,
  ApprovalAsked,
  ApprovalDecided,
  ModelEnd,
  EgressDenied,
  EgressEnd,
  ChangesReady,
  ApplyStart,
  ApplyEnd,
  UndoEnd,
  VmAccess,
  SteerRequest,
  PauseRequest,
  ResumeRequest,
  CancelRequest,
  RunEnd,
])
export type HostEvent = z.infer<typeof HostEvent>

// ---- the journal ------------------------------------------------------------------------------------------

/** One line of a journal. */
export const JournalEvent = z.discriminatedUnion('source', [
  z.strictObject({
    seq: Count.min(1),
    /** Host clock, ms since 1970. */
    at: Milliseconds,
    runId: RunId,
    source: z.literal('host'),
    event: HostEvent,
    /** `hash` of the line before; 64 zeros in the first. */
    prev: Sha256,
    /** sha256 over the JSON of this object without `hash`, keys in the order in which they stand. */
    hash: Sha256,
  }),
  z.strictObject({
    seq: Count.min(1),
    at: Milliseconds,
    runId: RunId,
    source: z.literal('agent'),
    agentPath: AgentPath,
    /** The guest's own count of its events in this run. */
    n: Count.min(1),
    event: AgentEvent,
    prev: Sha256,
    hash: Sha256,
  }),
])
export type JournalEvent = z.infer<typeof JournalEvent>
