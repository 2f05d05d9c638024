/**
 * The types between an application and the turn loop. The loop repeats and limits turns and keeps their trace; the
 * application owns state, messages, tools and completion.
 */
import type { LLMChatMessage, LLMResponse } from '../contract/contract.ts'
import type { TextAssessment, TextClassification } from './classify.ts'
import type {
  TurnLoopClassificationSummary,
  TurnLoopRetrySummary,
  TurnLoopStepSummary,
  TurnLoopStopMetadata,
  TurnLoopTerminalReason,
  TurnLoopToolCallSummary,
} from './trace.ts'

type Awaitable<T> = T | Promise<T>

/** A call in a text, as the application recognizes it. */
export interface ParsedToolIntent {
  readonly toolName: string
  /** An object of JSON. */
  readonly toolArgs: Readonly<Record<string, unknown>>
}

/** Whether the loop continues after a callback. An instruction applies only to the next request. */
export type TurnLoopControl =
  | { readonly control: 'stop' }
  | { readonly control: 'continue'; readonly transientInstruction?: string }

/** Absent `next`: the loop stops, except after a rejected text, which is retried up to its limit. */
export interface TurnLoopStepResult<TState> {
  readonly state: TState
  readonly next?: TurnLoopControl
}

/** A tool's result for a call, to distinguish repetition from progress. */
export interface TurnLoopToolResult {
  readonly toolCallId: string
  readonly content: string
}

export interface TurnLoopToolCallsResult<TState> extends TurnLoopStepResult<TState> {
  /** Absent: the guard compares calls alone. */
  readonly toolResults?: readonly TurnLoopToolResult[]
  /** Whether the calls are evidence of an action. Absent: unless each of `toolResults` is a validation failure. */
  readonly actionEvidence?: boolean
}

/** Input of every callback about a response. */
export interface TurnLoopResponseParams<TState, TMessage, TResponse> {
  readonly state: TState
  readonly response: TResponse
  readonly messages: readonly TMessage[]
  /** From 1. */
  readonly iteration: number
  /** Aborted when the time expires or the application's signal is aborted. */
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
  /** Receives text as it arrives; for an incomplete answer it becomes `stop.partialText`. */
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
  /** As the model returned it. */
  readonly rawResponse: TResponse
  /** Whether `response` is a call created from the text of `rawResponse`. */
  readonly normalizedToolIntent: boolean
}

export interface TurnLoopClassificationEvent<TState, TMessage, TResponse>
  extends TurnLoopTextParams<TState, TMessage, TResponse> {
  readonly elapsedMs: number
  readonly requiresActionEvidence: boolean
  readonly hasActionEvidence: boolean
  readonly assessment: TextAssessment
}

export interface TurnLoopRepeatedToolCallGuard {
  /** How often the same calls may return the same results without progress; default 2. */
  readonly maxConsecutiveSameBatches?: number
}

/**
 * @typeParam TState any type; the loop only passes it on
 * @typeParam TMessage result of `buildMessages` and input of `callModel`; with `modelRequest` the library's own
 * messages
 * @typeParam TResponse result of `callModel`: an answer, possibly with additional fields
 */
export interface RunTurnLoopOptions<
  TState,
  TMessage = LLMChatMessage,
  TResponse extends LLMResponse = LLMResponse,
> {
  readonly initialState: TState
  /** Maximum consecutive retries of empty answers; default 0. */
  readonly emptyTextRetryLimit?: number
  /** Maximum consecutive retries of rejected texts; default 0. */
  readonly rejectedTextRetryLimit?: number
  /** For a loop that continues a previous one. */
  readonly initialEmptyTextRetryCount?: number
  readonly initialRejectedTextRetryCount?: number
  /** Whether a previous loop, which this one continues, carried out a call; default false. */
  readonly initialActionEvidence?: boolean
  /**
   * Maximum model requests; default 24. For this and the next two, anything but a positive number counts as absent.
   */
  readonly maxIterations?: number
  /** Maximum consecutive answers with calls; default 8. */
  readonly maxConsecutiveToolTurns?: number
  /** Time limit including all callbacks and tools; default 120,000. */
  readonly maxWallTimeMs?: number
  /** How long a callback that owns the state may take to return it after an interruption; default 1,000. */
  readonly interruptGraceMs?: number
  /** `false`: calls may repeat up to the other limits. */
  readonly repeatedToolCallGuard?: false | TurnLoopRepeatedToolCallGuard
  /** Whether calls created from text have `synthetic: true`. */
  readonly markSyntheticToolCalls?: boolean
  /** Ends the loop at any moment as `aborted`. */
  readonly abortSignal?: AbortSignal
  /** Calls the model. The loop rethrows its errors. */
  readonly callModel?: (params: TurnLoopModelCall<TState, TMessage>) => Promise<TResponse>

  readonly buildMessages: (params: {
    readonly state: TState
    readonly emptyTextRetryCount: number
    readonly transientInstruction?: string
    readonly iteration: number
    readonly abortSignal: AbortSignal
  }) => Awaitable<readonly TMessage[]>
  readonly parsePlainTextToolIntent?: (content: string) => ParsedToolIntent | null

  /**
   * Whether a text requires evidence to count as an answer: calls carried out since the loop or the last accepted text.
   * Absent: never.
   */
  readonly requiresActionEvidence?: (
    params: TurnLoopTextParams<TState, TMessage, TResponse>,
  ) => Awaitable<boolean>
  /** The application's own classification of a text; undefined uses `classifyText`. */
  readonly classifyTextResponse?: (
    params: TurnLoopTextParams<TState, TMessage, TResponse> & {
      readonly requiresActionEvidence: boolean
      readonly hasActionEvidence: boolean
    },
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
  /** Called once, unless the loop throws. */
  readonly onStop?: (event: { readonly result: RunTurnLoopResult<TState, TResponse> }) => Awaitable<void>
}

export interface RunTurnLoopResult<TState, TResponse = LLMResponse> {
  readonly state: TState
  /** The last one; null when there was none. */
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
