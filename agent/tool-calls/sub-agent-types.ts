/** What the rest of the agent knows of sub-agents: what one is asked for, and what it comes back with. */
import type { Result, RunReason, ToolError } from '#specs/protocol/error.ts'
import type { AgentLimits, OutputSchema } from '#specs/protocol/plan.ts'
import type { Usage } from '#specs/protocol/task.ts'

export interface AgentRequest {
  /** The last part of its path; absent: one is made. Made unique when it is taken. */
  readonly name?: string
  /** All that it is told of its work. */
  readonly brief: string
  /** Names of tools, each one that the parent has; absent: all of the parent's that a sub-agent can have. */
  readonly tools?: readonly string[]
  readonly limits?: AgentLimits
  /** What its answer must be; absent: text. */
  readonly output?: OutputSchema
}

/** A path that both had changed; the parent's version stands. A side that removed the path has no text, as has one that is no text. */
export interface AgentConflict {
  readonly path: string
  /** Cut to a bound. */
  readonly parentText?: string
  readonly childText?: string
}

export interface AgentResult {
  /** Such as `root/tests`. */
  readonly agentPath: string
  readonly state: 'completed' | 'failed' | 'cancelled'
  /** `completed` when it did; `limit_…` when a limit of its own ended it, with what it has. */
  readonly reason: RunReason
  /** Its answer, or what it has of one. */
  readonly text: string
  readonly usage: Usage
  /** Paths that came into the parent's view. */
  readonly merged: readonly string[]
  readonly conflicts: readonly AgentConflict[]
  /** What could not be brought over, such as a socket, with the reason. */
  readonly leftOut: readonly { readonly path: string; readonly reason: string }[]
  /** Why it never began; absent when it did. */
  readonly refused?: ToolError
}

export interface Agents {
  /** How many of those that the run may have are used up, those that wait for their turn included. */
  readonly begun: number
  /**
   * Runs one to its end, waiting for its turn when `maxParallelAgents` run; every failure is a value. Its work is merged
   * into the parent's view before this resolves.
   * @param stepId the parent's step that it works for
   */
  spawn(request: AgentRequest, stepId: string, signal: AbortSignal): Promise<AgentResult>
  /** Where the tree of a sub-agent lies that has ended with conflicts. @param agent its path or the last part of it */
  findView(agent: string): Result<string>
  /**
   * Makes a path of the workspace what it is in the view of a sub-agent that has ended with conflicts: file, link, directory
   * or nothing. Gives the path as it was taken.
   */
  takeFile(agent: string, path: string): Promise<Result<string>>
}
