/** Events of the agent: claims, which carry the guest's own count; and deltas, which are never journaled. */
import * as z from 'zod'
import { RunReason, ToolError } from './error.ts'
import { limits } from './limits.ts'
import { AgentLimits, Plan, StepId, StepState } from './plan.ts'
import { Usage } from './task.ts'
import { Count, Document, Id, Line, Milliseconds, Text } from './text.ts'

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
