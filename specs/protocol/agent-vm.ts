/** A sub-agent in a VM of its own: what its parent's agent asks of the host, and what the host answers at its end. */
import * as z from 'zod'
import { RunReason } from './error.ts'
import { limits } from './limits.ts'
import { AgentBounds, AgentLimits, Effort, OutputSchema, StepId } from './plan.ts'
import { ModelName } from './run-models.ts'
import { Usage } from './task.ts'
import { AgentPath, Count, Document, Id, Line, RunId, Text } from './text.ts'

/** What the host holds the sub-agent to; each is a part of what its parent has left. */
const AgentVmLimits = AgentLimits.required({ maxToolCalls: true, maxTokens: true, maxWallMs: true })

export const AgentRunRequest = z.strictObject({
  runId: RunId,
  /** Of the sub-agent, which has started. */
  agentPath: AgentPath,
  /** The parent's step that it works for. */
  stepId: StepId,
  brief: Document.min(1),
  /** Names of its tools. */
  tools: z.array(Line).max(256),
  limits: AgentVmLimits,
  /** Schema of its answer. Absent: text. */
  output: OutputSchema.optional(),
  /** Absent: the run's. */
  effort: Effort.optional(),
  /** Name of a model that the run allows for steps. Absent: the run's. */
  model: ModelName.optional(),
  /** What the person said to it before it began. Absent: nothing. */
  messages: z
    .array(z.strictObject({ messageId: Id, text: Text }))
    .min(1)
    .max(limits.steerMaxPending)
    .optional(),
  ...AgentBounds.shape,
})
export type AgentRunRequest = z.infer<typeof AgentRunRequest>

export const AgentRunResult = z.strictObject({
  state: z.enum(['completed', 'failed', 'cancelled']),
  reason: RunReason,
  /** Its answer, possibly partial. */
  text: Document,
  /** Of the sub-agent and those below it. */
  usage: Usage,
  toolCalls: Count,
  /** Sub-agents that it started. */
  agents: Count,
  /** Whether its changes are there, at `GET /agent-changes/PATH` on caisson.http. */
  hasChanges: z.boolean(),
})
export type AgentRunResult = z.infer<typeof AgentRunResult>
