/** Events of the agent: unverified claims, numbered by the guest; and deltas, which are never journaled. */
import * as z from 'zod'
import { ShownSection, sectionsMaxCount, turnSectionsMaxCount } from './context-section.ts'
import { RunReason, ToolError } from './error.ts'
import { ImageRef } from './image.ts'
import { limits } from './limits.ts'
import { AgentBounds, AgentLimits, Effort, Plan, StepEndState, StepId } from './plan.ts'
import { ModelName } from './run-models.ts'
import { Usage } from './task.ts'
import { Count, Document, Id, Line, Milliseconds, Text, WorkspacePath } from './text.ts'
import { ToolKind } from './tool-names.ts'
import { WorkflowAddition } from './workflow-format.ts'

const PlanUpdate = z.strictObject({
  type: z.literal('plan-update'),
  /** 1 for the first plan; increases with each revision. */
  revision: Count.min(1),
  plan: Plan,
  /** Why it was changed; absent for the first. */
  reason: Line.optional(),
  /** What a step of a workflow added, from which this plan follows. Absent: nothing. */
  added: WorkflowAddition.optional(),
})
/** A failed step is retried. */
const StepRetry = z.strictObject({
  type: z.literal('step-retry'),
  stepId: StepId,
  /** 2 for the first retry. */
  attempt: Count.min(2),
  /** Why the previous attempt failed. */
  reason: Text,
})
const StepStart = z.strictObject({ type: z.literal('step-start'), stepId: StepId })
const StepEnd = z.strictObject({
  type: z.literal('step-end'),
  stepId: StepId,
  state: StepEndState,
  /** The step's answer, or why it did not complete. */
  text: Document,
})
const TurnEnd = z.strictObject({
  type: z.literal('turn-end'),
  /** `plan` while planning. */
  stepId: StepId,
  turn: Count.min(1),
  text: Document,
  /** What the model reasoned before its answer; absent when it gave none. */
  reasoning: Document.optional(),
  /** Tool calls that the model asked for in this turn, in its order. */
  calls: z.array(z.strictObject({ callId: Id, tool: Line })).max(256),
  usage: Usage,
  /** The provider's word: stop, tool_calls, length, content_filter or another. */
  finishReason: Line,
  /** Tokens of the conversation after this turn, and how many the model can take. */
  context: z.strictObject({ tokens: Count, maxTokens: Count }).optional(),
})
const ToolStart = z.strictObject({
  type: z.literal('tool-start'),
  stepId: StepId,
  callId: Id,
  /** The call whose program made this one; absent: the model made it. */
  parentCallId: Id.optional(),
  tool: Line,
  kind: ToolKind.optional(),
  /** Canonical JSON of the arguments, cut at the limit of a document. */
  arguments: Document,
})
/** Lines that a call changed in one file, as a unified diff. */
const CallDiff = z.strictObject({
  path: WorkspacePath,
  added: Count,
  removed: Count,
  /** The first lines of it, where there are too many; absent: none of it was left room. */
  diff: Text.optional(),
})
const ToolEnd = z.strictObject({
  type: z.literal('tool-end'),
  stepId: StepId,
  callId: Id,
  tool: Line,
  /** Text that the model received, cut at the limit of a text. */
  output: Text,
  /** Absent when the call succeeded. */
  error: ToolError.optional(),
  /** Of a command that ran to its end. */
  exitCode: z.int().min(0).max(255).optional(),
  /** The signal that ended the command, such as `SIGKILL`. */
  signal: Line.optional(),
  /** Present when `output` is only a part: size of all of it, and whether the agent keeps more, for `read_output`. */
  cut: z.strictObject({ bytes: Count, isKept: z.boolean() }).optional(),
  /** Workspace paths that the tool read and wrote, the first hundred each; of a command they are not known. */
  reads: z.array(WorkspacePath).max(100).optional(),
  writes: z.array(WorkspacePath).max(100).optional(),
  /** What an edit changed; the first twenty files. */
  diffs: z.array(CallDiff).max(20).optional(),
  /** The image that the model gets behind `output`; the run's recording has its bytes. Absent: none. */
  image: ImageRef.optional(),
  /** Corrections of the call before its execution; absent when there were none. */
  corrections: z.array(Line).max(20).optional(),
  durationMs: Milliseconds,
})
/** The first event of a sub-agent, under its own path. */
const AgentStart = z.strictObject({
  type: z.literal('agent-start'),
  /** The parent's step that it works for. */
  stepId: StepId,
  brief: Document,
  /** What it may use, sorted. */
  tools: z.array(Line).max(256),
  limits: AgentLimits,
  /** Absent: its parent's. */
  effort: Effort.optional(),
  /** Name of a model that the run allows for steps. Absent: its parent's. */
  model: ModelName.optional(),
  /** `vm`: it works in a VM of its own. Absent: in its parent's. */
  isolation: z.literal('vm').optional(),
  /** With `vm`. */
  ...AgentBounds.shape,
})
/** The last event of a sub-agent, under its own path. */
const AgentEnd = z.strictObject({
  type: z.literal('agent-end'),
  stepId: StepId,
  state: z.enum(['completed', 'failed', 'cancelled']),
  reason: RunReason,
  /** Its answer, possibly partial. */
  text: Document,
  usage: Usage,
  /** Paths merged into the parent's view. */
  merged: Count,
  /** Paths that both changed; the parent's version was kept. */
  conflicts: z.array(Line).max(1_000),
})
/** A model request of the turn failed, and the agent makes another. */
const TurnRetry = z.strictObject({
  type: z.literal('turn-retry'),
  stepId: StepId,
  /** Kind of the failure, such as `timeout`. */
  code: Line,
  message: Text,
  /** Pause before the next request. */
  delayMs: Milliseconds,
})
/** A step's conversation was compacted. */
const ContextCompact = z.strictObject({
  type: z.literal('context-compact'),
  stepId: StepId,
  beforeTokens: Count,
  afterTokens: Count,
  /** The summary of the removed part; empty when only outputs were cut. */
  summary: Text,
})
/** Sections of the application or of hooks entered the conversation. */
const ContextShown = z.strictObject({
  type: z.literal('context-shown'),
  stepId: StepId,
  sections: z
    .array(ShownSection)
    .min(1)
    .max(sectionsMaxCount + turnSectionsMaxCount),
})
/** Messages of a person entered the conversation. */
const SteerSeen = z.strictObject({
  type: z.literal('steer-seen'),
  stepId: StepId,
  messageIds: z.array(Id).min(1).max(limits.steerMaxPending),
})
/** The agent is paused: nothing starts until it is resumed. */
const PauseStart = z.strictObject({ type: z.literal('pause-start') })
const PauseEnd = z.strictObject({ type: z.literal('pause-end') })
const Note = z.strictObject({ type: z.literal('note'), level: z.enum(['info', 'warn']), text: Text })

export const AgentEvent = z.discriminatedUnion('type', [
  PlanUpdate,
  StepStart,
  StepRetry,
  StepEnd,
  TurnEnd,
  TurnRetry,
  ToolStart,
  ToolEnd,
  AgentStart,
  AgentEnd,
  ContextCompact,
  ContextShown,
  SteerSeen,
  PauseStart,
  PauseEnd,
  Note,
])
export type AgentEvent = z.infer<typeof AgentEvent>

/** A piece of what the model writes in one turn. `offset` counts the UTF-16 units of its stream before this piece. */
const turnPiece = { stepId: StepId, turn: Count.min(1), offset: Count, text: Text }

/** Status: unnumbered, coalesced, lost with a session, never journaled. */
export const Delta = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text-delta'), ...turnPiece }),
  z.strictObject({ type: z.literal('reasoning-delta'), ...turnPiece }),
  z.strictObject({
    type: z.literal('arguments-delta'),
    ...turnPiece,
    /** Position of the call in the turn, from 0. */
    index: Count,
    tool: Line,
  }),
  /** All deltas of this turn are void: its stream broke, and the request is made again. */
  z.strictObject({ type: z.literal('turn-reset'), stepId: StepId, turn: Count.min(1) }),
  z.strictObject({
    type: z.literal('tool-output-delta'),
    stepId: StepId,
    callId: Id,
    stream: z.enum(['stdout', 'stderr']),
    /** UTF-16 units of this stream before this piece. */
    offset: Count,
    text: Text,
  }),
])
export type Delta = z.infer<typeof Delta>
