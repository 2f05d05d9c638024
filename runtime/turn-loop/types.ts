/**
 * What an application gives the turn loop and what it gets back. The loop repeats turns, bounds them and keeps their trace;
 * state, messages, tools and what counts as done are the application's.
 */
import type { LLMChatMessage, LLMResponse } from '../contract/contract.ts'
import type { TextAssessment, TextClassification } from './classify.ts'
import type { ParsedToolIntent } from './intent.ts'
import type {
  TurnLoopClassificationSummary,
  TurnLoopRetrySummary,
  TurnLoopStepSummary,
  TurnLoopStopMetadata,
  TurnLoopTerminalReason,
  TurnLoopToolCallSummary,
} from './trace.ts'

type Awaitable<T> = T | Promise<T>

/** Whether the loop goes on after a callback. An instruction lives for the next request alone. */
export type TurnLoopControl =
  | { readonly control: 'stop' }
  | { readonly control: 'continue'; readonly transientInstruction?: string }

/** Absent `next`: the loop stops, except after a rejected text, which is retried as often as its limit allows. */
export interface TurnLoopStepResult<TState> {
  readonly state: TState
  readonly next?: TurnLoopControl
}

/** What a tool said to a call, so that a call that gives the same again is told from one that gives news. */
export interface TurnLoopToolResult {
  readonly toolCallId: string
  readonly content: string
}

export interface TurnLoopToolCallsResult<TState> extends TurnLoopStepResult<TState> {
  /** Absent: the guard knows the calls alone. */
  readonly toolResults?: readonly TurnLoopToolResult[]
}

/** What every callback about a response gets. */
export interface TurnLoopResponseParams<TState, TMessage, TResponse> {
  readonly state: TState
  readonly response: TResponse
  readonly messages: readonly TMessage[]
  /** From 1. */
  readonly iteration: number
  /** Aborted when the wall time is over or the application's signal is aborted. */
  readonly abortSignal: AbortSignal
}

export interface TurnLoopTextParams<TState, TMessage, TResponse>
  extends TurnLoopResponseParams<TState, TMessage, TResponse> {
  readonly responseText: string
}

export interface TurnLoopModelCall<TState, TMessage> {
  readonly messages: readonly TMessage[]
  readonly abortSignal: AbortSignal
  readonly state: TState
  readonly iteration: number
  /** Text as it comes; what was told is `stop.partialText` when the answer does not become whole. */
  readonly onText: (text: string) => void
}

export interface TurnLoopIterationStartEvent<TState> {
  readonly state: TState
  readonly iteration: number
  readonly elapsedMs: number
  readonly emptyTextRetryCount: number
  readonly rejectedTextRetryCount: number
  readonly consecutiveToolTurns: number
}

export interface TurnLoopModelResponseEvent<TState, TMessage, TResponse>
  extends TurnLoopResponseParams<TState, TMessage, TResponse> {
  readonly elapsedMs: number
  /** As the model gave it. */
  readonly rawResponse: TResponse
  /** Whether `response` is a call made out of the text of `rawResponse`. */
  readonly normalizedToolIntent: boolean
}

export interface TurnLoopClassificationEvent<TState, TMessage, TResponse>
  extends TurnLoopTextParams<TState, TMessage, TResponse> {
  readonly elapsedMs: number
  readonly requiresActionEvidence: boolean
  readonly assessment: TextAssessment
}

export interface TurnLoopRepeatedToolCallGuard {
  /** Times that the same calls may give the same results without anything new between them; default 2. */
  readonly maxConsecutiveSameBatches?: number
}

/**
 * @typeParam TState anything; the loop only hands it on
 * @typeParam TMessage what `buildMessages` makes and `callModel` takes; with `modelRequest` the library's own messages
 * @typeParam TResponse what `callModel` gives: an answer, with more of its own if it likes
 */
export interface RunTurnLoopOptions<
  TState,
  TMessage = LLMChatMessage,
  TResponse extends LLMResponse = LLMResponse,
> {
  readonly initialState: TState
  /** Empty answers in a row that are asked again; default 0. */
  readonly emptyTextRetryLimit?: number
  /** Rejected texts in a row that are asked again; default 0. */
  readonly rejectedTextRetryLimit?: number
  /** For a loop that goes on where another one stopped. */
  readonly initialEmptyTextRetryCount?: number
  readonly initialRejectedTextRetryCount?: number
  /** Requests to the model; default 24. Of this and the next two, what is not a positive number counts as absent. */
  readonly maxIterations?: number
  /** Answers with calls, without one of text between them; default 8. */
  readonly maxConsecutiveToolTurns?: number
  /** All callbacks and tools included; default 120,000. */
  readonly maxWallTimeMs?: number
  /** How long a callback that owns the state has to hand it back once it is interrupted; default 1,000. */
  readonly interruptGraceMs?: number
  /** `false`: calls may be repeated up to the other limits. */
  readonly repeatedToolCallGuard?: false | TurnLoopRepeatedToolCallGuard
  /** Whether calls made out of text carry `synthetic: true`. */
  readonly markSyntheticToolCalls?: boolean
  /** Ends the loop at any moment, as `aborted`. */
  readonly abortSignal?: AbortSignal
  /** The application asks the model. What it throws, the loop throws. */
  readonly callModel?: (params: TurnLoopModelCall<TState, TMessage>) => Promise<TResponse>

  readonly buildMessages: (params: {
    readonly state: TState
    readonly emptyTextRetryCount: number
    readonly transientInstruction?: string
    readonly iteration: number
    readonly abortSignal: AbortSignal
  }) => Awaitable<readonly TMessage[]>
  readonly parsePlainTextToolIntent?: (content: string) => ParsedToolIntent | null

  /** Whether a text must be backed by something done before it is an answer; absent: never. */
  readonly requiresActionEvidence?: (
    params: TurnLoopTextParams<TState, TMessage, TResponse>,
  ) => Awaitable<boolean>
  /** The application's own judgement of a text; undefined leaves it to `classifyText`. */
  readonly classifyTextResponse?: (
    params: TurnLoopTextParams<TState, TMessage, TResponse> & { readonly requiresActionEvidence: boolean },
  ) => Awaitable<TextClassification | TextAssessment | undefined>

  readonly onTextResponse: (
    params: TurnLoopTextParams<TState, TMessage, TResponse>,
  ) => Awaitable<TurnLoopStepResult<TState> | undefined>
  readonly onToolCallsResponse: (
    params: TurnLoopResponseParams<TState, TMessage, TResponse>,
  ) => Awaitable<TurnLoopToolCallsResult<TState> | undefined>
  readonly onRejectedTextResponse?: (
    params: TurnLoopTextParams<TState, TMessage, TResponse> & {
      readonly retryCount: number
      readonly classification: Exclude<TextClassification, 'verified_final_response'>
      readonly requiresActionEvidence: boolean
    },
  ) => Awaitable<TurnLoopStepResult<TState> | undefined>
  readonly onEmptyTextStop?: (
    params: TurnLoopResponseParams<TState, TMessage, TResponse> & { readonly retryCount: number },
  ) => Awaitable<TurnLoopStepResult<TState> | undefined>
  /** For an answer that is neither text nor calls. */
  readonly onUnhandledResponse?: (
    params: TurnLoopResponseParams<TState, TMessage, TResponse> & { readonly retryCount: number },
  ) => Awaitable<TurnLoopStepResult<TState> | undefined>

  readonly onIterationStart?: (event: TurnLoopIterationStartEvent<TState>) => Awaitable<void>
  readonly onModelResponse?: (
    event: TurnLoopModelResponseEvent<TState, TMessage, TResponse>,
  ) => Awaitable<void>
  readonly onClassification?: (
    event: TurnLoopClassificationEvent<TState, TMessage, TResponse>,
  ) => Awaitable<void>
  /** Once, unless the loop throws. */
  readonly onStop?: (event: { readonly result: RunTurnLoopResult<TState, TResponse> }) => Awaitable<void>
}

export interface RunTurnLoopResult<TState, TResponse = LLMResponse> {
  readonly state: TState
  /** The last one; null when none came. */
  readonly response: TResponse | null
  readonly reason: TurnLoopTerminalReason
  readonly iterations: number
  readonly emptyTextRetryCount: number
  readonly rejectedTextRetryCount: number
  readonly elapsedMs: number
  readonly steps: readonly TurnLoopStepSummary[]
  readonly toolCalls: readonly TurnLoopToolCallSummary[]
  readonly classifications: readonly TurnLoopClassificationSummary[]
  readonly retries: readonly TurnLoopRetrySummary[]
  readonly stop: TurnLoopStopMetadata
}
