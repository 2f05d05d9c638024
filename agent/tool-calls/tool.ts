/** What a tool is: a typed value that returns, never throws. Knows nothing of the loop that calls it. */

import type { z } from 'zod'
import type { Result, ToolError, ToolErrorCode } from '#specs/protocol/error.ts'
import type { UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import type { SkillCatalog } from './skill-types.ts'
import type { Agents } from './sub-agent-types.ts'

/** A part of what an earlier call said. */
export interface OutputPage {
  readonly text: string
  /** The first character of the page, from 0. */
  readonly offset: number
  /** Of what is kept. */
  readonly totalChars: number
  /** Bytes of its middle that were never kept; 0: it is whole. */
  readonly lostBytes: number
}

/** The outputs of the run's earlier calls. */
export interface OutputReader {
  /** At most `limit` characters; `not_found`, with why, where nothing is kept under the id. */
  read(callId: string, offset: number, limit: number): Result<OutputPage>
}

/**
 * Puts a plan in the place of the one that is carried out, as far as that has not begun; what the model is told of it.
 * @param plan not looked at yet
 */
export type RevisePlan = (plan: unknown, reason: string, signal: AbortSignal) => Promise<Result<string>>

/** What came of a question. */
export interface UserReply {
  readonly answer: UserAnswer
  /** What else is to be known of it, such as that nobody was there and the default was taken. */
  readonly note?: string
}

/**
 * Puts a question before the person; `denied` where they do not answer, and where nobody does and there is no default.
 * @param withdrawn takes the question back; then the promise rejects
 */
export type AskUser = (question: UserQuestion, withdrawn?: AbortSignal) => Promise<Result<UserReply>>

/** What a call is given beside its input. */
export interface ToolContext {
  /** Ends the call, and with it everything that it started. */
  readonly signal: AbortSignal
  /** What the host said when it allowed the call; absent when it was not asked or said nothing. */
  readonly allowed?: string
  /** Absent where none are kept. */
  readonly outputs?: OutputReader
  /** Absent where the call is for no step of a plan. */
  readonly revisePlan?: RevisePlan
  /** Absent where there are no sub-agents. */
  readonly agents?: Agents
  /** The run that calls; with the two below, whose conversation it is. Absent: there is but one. */
  readonly runId?: string
  /** Absent where there are no skills. */
  readonly skills?: SkillCatalog
  /** The step that calls. */
  readonly stepId?: string
  /** Whose call it is: `root`, or `root/NAME` of a sub-agent; absent: the root's. */
  readonly agentPath?: string
  /** The call's own id; absent where nothing outside has to know it. */
  readonly callId?: string
  /** Absent where nobody can be asked. */
  readonly askUser?: AskUser
  /** Shows output while the call runs; the result does not depend on it. */
  emitOutput(stream: 'stdout' | 'stderr', text: string): void
}

export interface Tool<I extends z.ZodType = z.ZodType, O extends z.ZodType = z.ZodType> {
  /** `verb_noun`, what the model calls it by. */
  readonly name: string
  /** For the model: what it does, when to use it, its bounds. */
  readonly description: string
  readonly inputSchema: I
  readonly outputSchema: O
  /** Whether a call is put before the host first. */
  readonly requiresApproval: boolean
  /** Whether this very call is put before the host, where not every one is; absent: as `requiresApproval` says. */
  asks?(input: z.output<I>): Promise<boolean>
  /** Whether calls only read, so that several may run at once. */
  readonly readOnly: boolean
  /** Whether a run that only plans may call it, where the workspace is mounted read-only; absent: only if it reads. */
  readonly mayPlan?: boolean
  /** Whether calls may run at once with others although they do more than read; absent: no. */
  readonly concurrent?: boolean
  /**
   * Whether a call can delete, move, overwrite or run something. Then only exact parameter names and types are taken, for
   * nothing that destroys is guessed. Absent: whatever does not only read can.
   */
  readonly destructive?: boolean
  /** Where it runs when not in the VM's workspace: `host`, a tool of the application; `server`, one of an MCP server. Absent: `agent`. */
  readonly runs?: 'agent' | 'host' | 'server'
  /** What the model is shown in the place of a schema made from `inputSchema`, where the schema is another's own. */
  readonly parameters?: Readonly<Record<string, unknown>>
  /** What the call would do, for the person who decides; absent: the arguments say it all. */
  preview?(input: z.output<I>, context: ToolContext): Promise<string>
  execute(input: z.output<I>, context: ToolContext): Promise<Result<z.output<O>>>
  /** What the model is told; absent: the value as JSON. */
  render?(value: z.output<O>): string
}

/** Types a tool's functions from its schemas; the value itself is returned unchanged. */
export function defineTool<I extends z.ZodType, O extends z.ZodType>(tool: Tool<I, O>): Tool<I, O> {
  return tool
}

/** A failed result. */
export function toolFailure(
  code: ToolErrorCode,
  message: string,
  retryable = false,
): { ok: false; error: ToolError } {
  return { ok: false, error: { code, message, retryable } }
}

/** A good result. */
export function toolSuccess<T>(value: T): { ok: true; value: T } {
  return { ok: true, value }
}
