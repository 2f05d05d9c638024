/** The types of `complete` and `streamComplete`: what a run takes, how it ends, and what it reports meanwhile. */
import type {
  EvidenceKind,
  LLMChatMessage,
  LLMResponse,
  LLMToolCall,
  LLMUsage,
} from '../contract/contract.ts'
import type { ExecuteToolOptions, LLMToolResult } from '../generate/execute-tool.ts'
import type { LLMRequest } from '../generate/generate.ts'
import type { PendingUserInput } from '../tools/ask-user-input.ts'
import type { TurnLoopTerminalReason } from '../turn-loop/trace.ts'
import type { RunTurnLoopOptions, RunTurnLoopResult } from '../turn-loop/types.ts'
import type { WebSearchFunction } from './web-search.ts'

/** What a call can prove. */
export type ActionEvidence = Exclude<EvidenceKind, 'none'>

/** The bounds of the turn loop. */
export type CompleteLimits = Pick<
  RunTurnLoopOptions<unknown>,
  | 'maxIterations'
  | 'maxConsecutiveToolTurns'
  | 'maxWallTimeMs'
  | 'interruptGraceMs'
  | 'repeatedToolCallGuard'
  | 'emptyTextRetryLimit'
>

export interface CompleteRequest
  extends Omit<LLMRequest, 'webSearch'>,
    CompleteLimits,
    Pick<ExecuteToolOptions, 'askPermission' | 'errorMode'> {
  /**
   * What has to be proved before an answer counts: any of these kinds, by a successful call of this run. `true`: any kind
   * but `interaction`. Absent: nothing.
   */
  readonly requiredEvidence?: boolean | ActionEvidence | readonly ActionEvidence[]
  /**
   * Web search for this run. `true`: the provider's own, as of `generate`. A function: the tool `web_search` calls it, with
   * any provider. Absent: none.
   */
  readonly webSearch?: boolean | WebSearchFunction
  /** What a run proved that this one continues; default nothing. */
  readonly initialEvidence?: readonly ActionEvidence[]
  /** Whether the model ends the run with the tools `final_answer`, `need_user_input` or `blocked` alone; default false. */
  readonly controlTools?: boolean
  /** Maximum consecutive retries of texts that are no answer; default 2. */
  readonly rejectedTextRetryLimit?: number
}

/** `tool_calls`: the application has to execute `toolCalls` itself. */
export type CompleteStatus = 'completed' | 'waiting_for_human' | 'tool_calls' | 'failed'

/** The loop's reason, a control tool's, or that the answer is incomplete (`length`) or withheld (`content_filter`). */
export type CompleteReason =
  | TurnLoopTerminalReason
  | 'final_answer'
  | 'needs_user_input'
  | 'blocked'
  | 'length'
  | 'content_filter'

export interface CompleteResult {
  readonly status: CompleteStatus
  readonly reason: CompleteReason
  /** The answer; of a failed run why it is blocked, or what there is of an answer. */
  readonly content: string
  /** The whole transcript with the given messages. To continue, append results of `pending` and `toolCalls`. */
  readonly messages: readonly LLMChatMessage[]
  /** Questions to a person, with the status `waiting_for_human`. */
  readonly pending: readonly PendingUserInput[]
  /** Calls of tools without `execute`, with the status `tool_calls`. */
  readonly toolCalls: readonly LLMToolCall[]
  /** What was proved, with `initialEvidence`. */
  readonly evidence: readonly ActionEvidence[]
  /** Sum over all answers; zero where the provider reported none. */
  readonly usage: LLMUsage
  /** The loop's trace. */
  readonly loop: Omit<RunTurnLoopResult<unknown>, 'state'>
}

/** `iteration` counts model requests from 1. */
export type CompleteEvent =
  | { readonly type: 'model_start'; readonly iteration: number }
  /** A piece of the text. The text may turn out to be no answer: `text_rejected`. */
  | { readonly type: 'text_delta'; readonly iteration: number; readonly text: string }
  | { readonly type: 'assistant_message'; readonly iteration: number; readonly response: LLMResponse }
  | { readonly type: 'text_rejected'; readonly iteration: number; readonly text: string }
  | { readonly type: 'tool_start'; readonly iteration: number; readonly call: LLMToolCall }
  | {
      readonly type: 'tool_result' | 'tool_error'
      readonly iteration: number
      readonly call: LLMToolCall
      readonly result: LLMToolResult
    }
  /** The last event, unless the run throws. */
  | { readonly type: CompleteStatus; readonly result: CompleteResult }
