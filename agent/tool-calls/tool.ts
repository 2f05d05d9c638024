/** The contract of a tool: a typed value that returns and never throws. Knows nothing of the loop that calls it. */

import type { z } from 'zod'
import type { Result, ToolError, ToolErrorCode } from '#specs/protocol/error.ts'
import type { ImageRef } from '#specs/protocol/image.ts'
import type { UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import type { Agents } from './sub-agent-types.ts'

/** A page of an earlier call's output. */
export interface OutputPage {
  readonly text: string
  /** Offset of the page's first character, from 0. */
  readonly offset: number
  /** Total characters kept. */
  readonly totalChars: number
  /** Bytes missing from its middle because they were never kept; 0: complete. */
  readonly lostBytes: number
}

/** The outputs of the run's earlier calls. */
export interface OutputReader {
  /** At most `limit` characters; `not_found`, with the reason, when nothing is kept under the id. */
  read(callId: string, offset: number, limit: number): Result<OutputPage>
}

/**
 * Replaces the part of the current plan that has not started; returns the text for the model.
 * @param plan not validated yet
 */
export type RevisePlan = (plan: unknown, reason: string, signal: AbortSignal) => Promise<Result<string>>

/** What a model adds to its workflow. `steps` and `functions` are not validated yet. */
export interface GivenSteps {
  readonly reason: string
  readonly steps: unknown
  readonly functions: unknown
}

/** Adds to the workflow that runs; returns the text for the model. */
export type AddSteps = (given: GivenSteps, callId: string, signal: AbortSignal) => Promise<Result<string>>

/** The answer to a question. */
interface UserReply {
  readonly answer: UserAnswer
  /** Further information, such as that the default was taken because nobody was there. */
  readonly note?: string
}

/**
 * Asks the person; `denied` when they decline, and when nobody can be asked and there is no default.
 * @param withdrawn aborts the question; the promise then rejects
 */
export type AskUser = (question: UserQuestion, withdrawn?: AbortSignal) => Promise<Result<UserReply>>

/** The text of a file around an edit; empty where there is none. */
export interface FileEdit {
  /** Relative to the workspace. */
  readonly path: string
  readonly before: string
  readonly after: string
}

/** An image that the model gets behind the results of its calls. */
export interface Picture {
  /** For the model and people, such as a path. */
  readonly name: string
  readonly image: ImageRef
  /** Its bytes as a data URL. */
  readonly url: string
}

/** What is known of a call besides the text for the model; for the host's events. */
export interface CallFacts {
  /** Null: it was ended from outside. */
  readonly exitCode?: number | null
  readonly signal?: string | null
  /** Bytes that a program wrote, when more than was kept. */
  readonly outputBytes?: number
  /** Relative to the workspace. */
  readonly reads?: readonly string[]
  readonly writes?: readonly string[]
  readonly edits?: readonly FileEdit[]
}

/** A tool as a function of a program. */
export interface ProgramFunction {
  readonly name: string
  /** Names of its parameters, in the order of its schema. */
  readonly parameters: readonly string[]
  /** Signature, description and parameters, for the program's author. */
  readonly doc: string
}

/** The run's other tools, as the program of one call calls them. */
export interface ProgramTools {
  readonly functions: readonly ProgramFunction[]
  /** Calls that are left in the run. */
  readonly callsLeft: number
  /** Makes a call as the model would; the value is the tool's own, not its text. */
  call(name: string, argumentsText: string, signal: AbortSignal): Promise<Result<unknown>>
}

/** What a call receives besides its input. */
export interface ToolContext {
  /** Ends the call and everything that it started. */
  readonly signal: AbortSignal
  /** The host's message with its approval; absent when it was not asked or gave none. */
  readonly allowed?: string
  /** Absent when no outputs are kept. */
  readonly outputs?: OutputReader
  /** Absent when the call belongs to no plan step. */
  readonly revisePlan?: RevisePlan
  /** Absent where no workflow runs. */
  readonly addSteps?: AddSteps
  /** Absent without sub-agents. */
  readonly agents?: Agents
  /** Id of the calling run; with the two fields below it identifies the conversation. Absent: there is only one. */
  readonly runId?: string
  /** Absent without skills. */
  readonly skills?: SkillCatalog
  /** Id of the calling step. */
  readonly stepId?: string
  /** Path of the calling agent: `root`, or `root/NAME` of a sub-agent; absent: the root. */
  readonly agentPath?: string
  /** The call's own id; absent when nothing outside needs it. */
  readonly callId?: string
  /** The call whose program makes this one; absent: the model makes it. */
  readonly parentCallId?: string
  /** Absent when nobody can be asked. */
  readonly askUser?: AskUser
  /** For a program that the call runs; absent: it can call no tools. */
  readonly program?: ProgramTools
  /** Gives the model an image behind the result of a successful call, at most one. Absent: the result goes to a program. */
  show?(picture: Picture): void
  /** Receives what is known of the call, at most once; absent: nobody asks for it. */
  tell?(facts: CallFacts): void
  /** Shows output while the call runs; the result does not depend on it. */
  emitOutput(stream: 'stdout' | 'stderr', text: string): void
}

export interface Tool<I extends z.ZodType = z.ZodType, O extends z.ZodType = z.ZodType> {
  /** Name for the model, of the form `verb_noun`. */
  readonly name: string
  /** Description for the model: effect, when to use it, limits. */
  readonly description: string
  readonly inputSchema: I
  readonly outputSchema: O
  /** Whether calls require approval. */
  readonly requiresApproval: boolean
  /** Whether this call requires approval when not every call does; absent: as `requiresApproval` says. */
  asks?(input: z.output<I>): Promise<boolean>
  /** Whether calls only read, so that several may run in parallel. */
  readonly readOnly: boolean
  /** Whether a run that only plans may call it while the workspace is read-only; absent: only if it reads. */
  readonly mayPlan?: boolean
  /** Whether calls may run in parallel with others although they do more than read; absent: no. */
  readonly concurrent?: boolean
  /**
   * Whether a call can delete, move, overwrite or run something. Such a tool accepts only exact parameter names and
   * types: no guess may destroy anything. Absent: true unless it only reads.
   */
  readonly destructive?: boolean
  /** Whether the program of a call may call it; absent: yes. Not for what runs code or belongs to the conversation. */
  readonly inPrograms?: boolean
  /**
   * Where it runs if not in the VM's workspace: `host`, a tool of the application; `server`, one of an MCP server.
   * Absent: `agent`.
   */
  readonly runs?: 'agent' | 'host' | 'server'
  /** Whether it is one of the agent's own, which alone may have a reserved name. Absent: as `runs` is `agent`. */
  readonly isOwn?: boolean
  /**
   * The schema shown to the model instead of one made from `inputSchema`, when an external definition provides it.
   */
  readonly parameters?: Readonly<Record<string, unknown>>
  /** Preview of the call for the person who approves it; absent: the arguments suffice. */
  preview?(input: z.output<I>, context: ToolContext): Promise<string>
  execute(input: z.output<I>, context: ToolContext): Promise<Result<z.output<O>>>
  /** Text for the model; absent: the value as JSON. */
  render?(value: z.output<O>): string
}

/** Infers the types of a tool's functions from its schemas; returns the value unchanged. */
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

/** A successful result. */
export function toolSuccess<T>(value: T): { ok: true; value: T } {
  return { ok: true, value }
}

export interface KnownSkill {
  readonly skillId: string
  /** One line; may be empty. */
  readonly description: string
  readonly source: 'user' | 'workspace'
  /** Folder of a workspace skill, relative to the workspace, with links resolved. */
  readonly folder?: string
}

export interface SkillCatalog {
  /** The user's first, each part sorted by id; constant for the run. */
  readonly list: readonly KnownSkill[]
  /** Problems of workspace skills, in text, up to a limit. */
  readonly problems: readonly string[]
  /** Installs the files of a user's skill once per run, however many agents load it; retries after a failure. */
  installOnce(skillId: string, install: () => Promise<Result<void>>): Promise<Result<void>>
}
