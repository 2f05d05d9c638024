/** The task that a host submits and the completion that the agent reports. */
import * as z from 'zod'
import { RunReason } from './error.ts'
import { HostTool, McpServer, McpServerName, MemoryNote, SkillHead } from './extension.ts'
import { AgentHook } from './hook.ts'
import { Plan } from './plan.ts'
import { Count, Document, Line, Milliseconds, RunId, Text } from './text.ts'

/** Bounds of one run; the agent keeps them, the host watches wall time and tokens itself. */
export const RunLimits = z.strictObject({
  /** Model turns in one step. */
  maxTurnsPerStep: z.int().min(1).max(1_000).default(32),
  /** Tool calls in the whole run. */
  maxToolCalls: z.int().min(1).max(100_000).default(400),
  /** Steps that may run at once. */
  maxParallelSteps: z.int().min(1).max(16).default(3),
  /** Sub-agents of the whole run; 0: none. */
  maxAgents: z.int().min(0).max(256).default(16),
  /** Sub-agents that may run at once. */
  maxParallelAgents: z.int().min(1).max(16).default(4),
  /** Wall time of the run, time in tools included, time waiting for a person not. */
  maxWallMs: Milliseconds.min(1_000).default(30 * 60_000),
  /** Tokens in and out, over all model requests. */
  maxTokens: z.int().min(1).default(2_000_000),
  /** Model requests of the whole run; absent: as many as the tokens allow. */
  maxRequests: z.int().min(1).optional(),
  /** US dollars of the whole run by the user's price table; absent: not counted. */
  maxCostUsd: z.number().positive().optional(),
})
export type RunLimits = z.infer<typeof RunLimits>

export const Task = z.strictObject({
  runId: RunId,
  /** What the person wants, in their words. */
  prompt: Document.min(1),
  /** Further facts from the host application, put before the model as data. */
  context: z.record(Line.min(1), Document).optional(),
  /** Model id, as the provider knows it. */
  model: Line.min(1),
  /** Tools the run may use; absent means all. Unknown names are refused. */
  tools: z.array(Line).max(256).optional(),
  /** Tools whose every call is put before the host, besides those that ask by themselves. */
  askTools: z.array(Line).max(256).default([]),
  /** `plan`: the workspace is mounted read-only, only tools that read are offered, and the run ends with its plan. Absent: `work`. */
  mode: z.enum(['work', 'plan']).optional(),
  /** Whether the plan, and each revision of it, is put before a person before it is carried out. Absent: false. */
  approvePlan: z.boolean().optional(),
  /** The plan to carry out; absent: the model makes one. */
  plan: Plan.optional(),
  /** Tokens that the model takes in and gives out in one request, where the user's configuration says so. */
  contextTokens: z.int().min(1_024).optional(),
  /** Tools that run on the host, by the application's choice. Absent: none. */
  hostTools: z.array(HostTool).max(128).optional(),
  /** The user's MCP servers. Absent: none; the workspace may have some of its own. */
  mcpServers: z.record(McpServerName, McpServer).optional(),
  /** Skills of the user's own folders. Absent: none; the workspace may have some of its own. */
  skills: z.array(SkillHead).max(256).optional(),
  /** What is remembered of the workspace, as far as it is told from the beginning. Absent: nothing. */
  memory: z.array(MemoryNote).max(64).optional(),
  /** Where the host's hooks are to be asked. Absent: nowhere. */
  hooks: z.array(AgentHook).max(64).optional(),
  /** The model that makes vectors of texts, for a search by meaning. Absent: by words alone. */
  embeddingModel: Line.min(1).optional(),
  limits: RunLimits,
})
export type Task = z.infer<typeof Task>

/** Tokens as the provider reported them; reasoning tokens are part of the output tokens. */
export const Usage = z.strictObject({
  requests: Count,
  inputTokens: Count,
  outputTokens: Count,
  reasoningTokens: Count,
})
export type Usage = z.infer<typeof Usage>

export const noUsage: Usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }

/** The sum of two usages. */
export function addUsage(a: Usage, b: Usage): Usage {
  return {
    requests: a.requests + b.requests,
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
  }
}

export const RunOutcome = z.enum(['completed', 'failed', 'cancelled'])
export type RunOutcome = z.infer<typeof RunOutcome>

/** What the agent says of how the task ended; exactly one per task. */
export const Completion = z.strictObject({
  runId: RunId,
  outcome: RunOutcome,
  reason: RunReason,
  /** For people: what happened, and where it failed what to do next. */
  message: Text,
  /** The agent's answer; empty when it has none. */
  summary: Document,
  usage: Usage,
})
export type Completion = z.infer<typeof Completion>
