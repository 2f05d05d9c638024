/** The contract of sub-agents for the rest of the agent: the request and the result. */
import type { Result, RunReason, ToolError } from '#specs/protocol/error.ts'
import type { AgentBounds, AgentIsolation, AgentLimits, Effort, OutputSchema } from '#specs/protocol/plan.ts'
import type { Usage } from '#specs/protocol/task.ts'

/** Tools about sub-agents, `spawn_agent` first. An agent has them where it may start some. */
export const agentToolNames: readonly string[] = ['spawn_agent', 'read_agent_file', 'take_agent_file']

export interface AgentRequest extends Readonly<AgentBounds> {
  /** Last part of its path; absent: generated. Made unique on admission. */
  readonly name?: string
  /** Its complete instructions. */
  readonly brief: string
  /** Names of tools, all of them the parent's; absent: every tool of the parent that a sub-agent can use. */
  readonly tools?: readonly string[]
  readonly limits?: AgentLimits
  /** Schema of its answer; absent: text. */
  readonly output?: OutputSchema
  /** Absent: its parent's. */
  readonly effort?: Effort
  /** Name of a model of the run. Absent: its parent's. */
  readonly model?: string
  /** Absent: `view`. */
  readonly isolation?: AgentIsolation
}

/** A path that both changed; the parent's version is kept. A side without text deleted the path or it is not text. */
export interface AgentConflict {
  readonly path: string
  /** Truncated. */
  readonly parentText?: string
  readonly childText?: string
}

export interface AgentResult {
  /** Such as `root/tests`, or `root/tests/unit` of one of its own. */
  readonly agentPath: string
  readonly state: 'completed' | 'failed' | 'cancelled'
  /** `completed` when it did; `limit_…` when one of its limits ended it, with a partial result. */
  readonly reason: RunReason
  /** Its answer, possibly partial. */
  readonly text: string
  readonly usage: Usage
  /** Paths merged into the parent's view. */
  readonly merged: readonly string[]
  readonly conflicts: readonly AgentConflict[]
  /** Paths that could not be merged, such as sockets, with the reason. */
  readonly leftOut: readonly { readonly path: string; readonly reason: string }[]
  /** Why it never started; absent when it did. */
  readonly refused?: ToolError
}

export interface Agents {
  /** Number of sub-agents used up of the run's maximum, including queued ones. */
  readonly begun: number
  /**
   * Runs one to its end, after queueing while `maxParallelAgents` are at work; every failure is a value. Its changes
   * are merged into the parent's view before this resolves.
   * @param stepId the parent's step that it works for
   */
  spawn(request: AgentRequest, stepId: string, signal: AbortSignal): Promise<AgentResult>
  /** Path of the tree of a sub-agent that ended with conflicts. @param agent its path or the last part of it */
  findView(agent: string): Result<string>
  /**
   * Makes a path of the workspace equal to the view of a sub-agent that ended with conflicts: file, link, directory
   * or nothing. Returns the normalized path.
   */
  takeFile(agent: string, path: string): Promise<Result<string>>
}
