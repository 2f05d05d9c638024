/** The task that a host submits, and the completion that the agent reports. */
import * as z from 'zod'
import { RunSection, sectionsMaxCount } from './context-section.ts'
import { RunReason } from './error.ts'
import { HostTool, McpServer, McpServerName, MemoryNote, SkillHead } from './extension.ts'
import { AgentHook } from './hook.ts'
import { imagesMaxCount } from './image.ts'
import { isWithinDepth } from './json-depth.ts'
import { limits } from './limits.ts'
import { Effort, OutputSchema, Plan, StepId } from './plan.ts'
import { ModelName, ModelPrice, TaskStepModels } from './run-models.ts'
import { AgentPath, Count, Document, Id, Line, Milliseconds, RunId, Text, WorkspacePath } from './text.ts'
import { Workflow } from './workflow.ts'

/** Limits of one run; the agent enforces them, the host checks wall time and tokens itself. */
export const RunLimits = z.strictObject({
  /** Maximum model turns in one step. */
  maxTurnsPerStep: z.int().min(1).max(1_000).default(32),
  /** Maximum tool calls in the whole run. */
  maxToolCalls: z.int().min(1).max(100_000).default(400),
  /** Maximum parallel steps. */
  maxParallelSteps: z.int().min(1).max(16).default(3),
  /** Maximum sub-agents of the whole run; 0: none. */
  maxAgents: z.int().min(0).max(256).default(16),
  /** Maximum sub-agents at work at once; one that waits for its own does not count. */
  maxParallelAgents: z.int().min(1).max(16).default(4),
  /** Maximum depth of sub-agents; 1: a sub-agent starts none itself. */
  maxDepth: z.int().min(1).max(5).default(3),
  /** Wall time of the run, including time in tools, excluding time waiting for a person. */
  maxWallMs: Milliseconds.min(1_000).default(30 * 60_000),
  /** Maximum input and output tokens over all model requests. */
  maxTokens: z.int().min(1).default(2_000_000),
  /** Maximum model requests of the run; absent: limited by tokens alone. */
  maxRequests: z.int().min(1).optional(),
  /** Maximum US dollars of the run by the user's price table; absent: no limit. */
  maxCostUsd: z.number().positive().optional(),
})
export type RunLimits = z.infer<typeof RunLimits>

/** A JSON schema (draft 2020-12) of the final answer. */
export const AnswerForm = z
  .record(z.string(), z.unknown())
  .refine(
    (schema) => isWithinDepth(schema, limits.outputSchemaMaxDepth),
    `expected at most ${limits.outputSchemaMaxDepth} levels of nesting`,
  )
  .refine(
    (schema) => JSON.stringify(schema).length <= limits.outputSchemaMaxChars,
    `expected at most ${limits.outputSchemaMaxChars} characters as JSON`,
  )
export type AnswerForm = z.infer<typeof AnswerForm>

export const Task = z.strictObject({
  runId: RunId,
  /** What the person said behind the checkpoint that the agent continues from. Absent: nothing. */
  messages: z
    .array(z.strictObject({ messageId: Id, text: Text, agentPath: AgentPath.optional() }))
    .min(1)
    .max(limits.steerMaxPending)
    .optional(),
  /** Sub-agents that the person cancelled behind that checkpoint: they do not begin again. Absent: none. */
  cancelledAgents: z
    .array(z.strictObject({ agentPath: AgentPath, reason: Text }))
    .min(1)
    .max(256)
    .optional(),
  /** The person's request, in their own text. */
  prompt: Document.min(1),
  /** Additional facts from the host application, shown to the model as data. */
  context: z.record(Line.min(1), Document).optional(),
  /** Sections of the application, with budget and place. Absent: none. */
  sections: z.array(RunSection).min(1).max(sectionsMaxCount).optional(),
  /** Images in the workspace that the task is about. Absent: none. */
  images: z.array(WorkspacePath).min(1).max(imagesMaxCount).optional(),
  /** Model id, as the provider knows it. */
  model: Line.min(1),
  /** How much the model reasons. Absent: as it does by itself. */
  effort: Effort.optional(),
  /** Tools the run may use; absent means all. Unknown names are refused. */
  tools: z.array(Line).max(256).optional(),
  /** Tools that require approval for every call, besides those that always do. */
  askTools: z.array(Line).max(256).default([]),
  /**
   * `plan`: the workspace is read-only, only read-only tools are offered, and the run ends with its plan. Absent:
   * `work`.
   */
  mode: z.enum(['work', 'plan']).optional(),
  /** Whether a person must approve the plan and each revision before execution. Absent: false. */
  approvePlan: z.boolean().optional(),
  /** The plan to execute; absent: the model makes one. */
  plan: Plan.optional(),
  /** The workflow whose steps the plan has. Absent: none. */
  workflow: Workflow.optional(),
  /** Schema of the final answer, which is then JSON. Absent: the answer is text. */
  outputSchema: AnswerForm.optional(),
  /** Price of the model's answers, for the parts of the run's cost that sub-agents get. Absent: not known. */
  price: ModelPrice.optional(),
  /** Context and output limits of the model, from the user's configuration. */
  contextTokens: z.int().min(1_024).optional(),
  /** Models that steps and sub-agents may use instead. Absent: none. */
  stepModels: TaskStepModels.optional(),
  /** With `subAgent`: which of them it uses. Absent: the run's own. */
  stepModel: ModelName.optional(),
  /** Tools that run on the host, provided by the application. Absent: none. */
  hostTools: z.array(HostTool).max(128).optional(),
  /** The user's MCP servers. Absent: none; the workspace may have some of its own. */
  mcpServers: z.record(McpServerName, McpServer).optional(),
  /** Skills of the user's own folders. Absent: none; the workspace may have some of its own. */
  skills: z.array(SkillHead).max(256).optional(),
  /** Memory of the workspace shown from the start. Absent: none. */
  memory: z.array(MemoryNote).max(64).optional(),
  /** Where the host's hooks must be asked. Absent: nowhere. */
  hooks: z.array(AgentHook).max(64).optional(),
  /** Embedding model for semantic search. Absent: text search only. */
  embeddingModel: Line.min(1).optional(),
  /** Whether an earlier agent has begun the task: what it did is on the scratch disk. Absent: no. */
  resume: z.literal(true).optional(),
  /**
   * The task is the work of a sub-agent in this VM of its own; the prompt is its brief. Its changes are sent before it
   * completes, as `POST /changes/RUN`. Absent: the task is the run's.
   */
  subAgent: z
    .strictObject({ agentPath: AgentPath, stepId: StepId, output: OutputSchema.optional() })
    .optional(),
  /** The run whose ids of calls the agent draws again. Absent: this one's. */
  idSeed: RunId.optional(),
  limits: RunLimits,
})
export type Task = z.infer<typeof Task>

/** Tokens as the provider reported them; reasoning tokens are part of the output tokens. */
export const Usage = z.strictObject({
  requests: Count,
  inputTokens: Count,
  /** Part of the input tokens that the provider read from its cache; absent: it reported none. */
  cachedTokens: Count.optional(),
  outputTokens: Count,
  reasoningTokens: Count,
})
export type Usage = z.infer<typeof Usage>

export const noUsage: Usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }

/** The sum of two usages. */
export function addUsage(a: Usage, b: Usage): Usage {
  const isCached = a.cachedTokens !== undefined || b.cachedTokens !== undefined
  return {
    requests: a.requests + b.requests,
    inputTokens: a.inputTokens + b.inputTokens,
    ...(isCached ? { cachedTokens: (a.cachedTokens ?? 0) + (b.cachedTokens ?? 0) } : {}),
    outputTokens: a.outputTokens + b.outputTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
  }
}

export const RunOutcome = z.enum(['completed', 'failed', 'cancelled'])
export type RunOutcome = z.infer<typeof RunOutcome>

/** The agent's report of how the task ended; exactly one per task. */
export const Completion = z.strictObject({
  runId: RunId,
  outcome: RunOutcome,
  reason: RunReason,
  /** For people: what happened and, after a failure, what to do next. */
  message: Text,
  /** The agent's answer; empty when it has none. */
  summary: Document,
  usage: Usage,
})
export type Completion = z.infer<typeof Completion>
