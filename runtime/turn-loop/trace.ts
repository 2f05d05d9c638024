/** The trace of a turn loop: each turn's kind and the stop reason. Only for the result; decides nothing. */
import type { TextClassification } from './classify.ts'

export type TurnLoopTerminalReason =
  | 'text_response'
  /** The application did not continue the loop. */
  | 'tool_calls_response'
  | 'empty_text_stop'
  | 'rejected_text_response'
  | 'unhandled_response'
  | 'max_iterations_exceeded'
  | 'max_tool_rounds_exceeded'
  | 'timeout'
  | 'repeated_tool_call_stopped'
  /** The application's signal. */
  | 'aborted'

export type TurnLoopStepBranch =
  | 'tool_calls_continue'
  | 'tool_calls_stop'
  | 'text_response_continue'
  | 'text_response_stop'
  | 'rejected_text_retry'
  | 'rejected_text_stop'
  | 'empty_text_retry'
  | 'empty_text_stop'
  | 'unhandled_response_stop'
  | 'max_tool_rounds_stop'
  | 'repeated_tool_call_stop'
  | 'timeout_stop'
  | 'aborted_stop'

/** A turn with an answer. */
export interface TurnLoopStepSummary {
  readonly iteration: number
  /** `text`, `tool_calls`, or the type of any other answer. */
  readonly responseKind: string
  readonly branch: TurnLoopStepBranch
  readonly elapsedMs: number
  readonly emptyTextRetryCount: number
  readonly rejectedTextRetryCount: number
  readonly consecutiveToolTurns: number
  readonly syntheticToolCallCount: number
}

export interface TurnLoopToolCallSummary {
  readonly iteration: number
  readonly toolCallId: string
  readonly toolName: string
  /** As the model wrote them. */
  readonly toolArguments: string
  /** The same with sorted keys; unchanged if they are not JSON. */
  readonly normalizedArguments: string
  readonly toolIndex: number
  /** Equal for batches of equal calls. */
  readonly batchSignature: string
  /** Consecutive batches with this signature, including this one. */
  readonly consecutiveSameBatchCount: number
  readonly source: 'model' | 'normalized_text_intent'
  readonly synthetic: boolean
  readonly stoppedByRepeatedGuard: boolean
}

export interface TurnLoopClassificationSummary {
  readonly iteration: number
  readonly classification: TextClassification
  readonly requiresActionEvidence: boolean
  readonly responseText: string
  readonly transientInstruction?: string
  readonly elapsedMs: number
}

export interface TurnLoopRetrySummary {
  readonly iteration: number
  readonly kind: 'empty_text' | 'rejected_text'
  readonly decision: 'retry' | 'stop'
  readonly retryCountBefore: number
  readonly retryCountAfter: number
  readonly retryLimit: number
  readonly elapsedMs: number
  readonly classification?: Exclude<TextClassification, 'verified_final_response'>
  readonly transientInstruction?: string
}

export interface TurnLoopRepeatedToolCallStopDetail {
  readonly batchSignature: string
  readonly consecutiveSameBatchCount: number
  readonly maxConsecutiveSameBatches: number
  readonly toolNames: readonly string[]
  /** The first of them. */
  readonly tool: string
  /** Batches since the same calls: 1 for A, A, A; 2 for A, B, A, B. */
  readonly period: number
}

export interface TurnLoopStopMetadata {
  readonly reason: TurnLoopTerminalReason
  readonly iteration: number
  readonly elapsedMs: number
  readonly maxIterations: number
  readonly maxConsecutiveToolTurns: number
  readonly maxWallTimeMs: number
  /** Absent when the time expired between two iterations. */
  readonly timedOutDuringIteration?: number
  readonly abortedDuringIteration?: number
  /** The model's text of an incomplete answer; absent when there was none. */
  readonly partialText?: string
  readonly repeatedToolCall?: TurnLoopRepeatedToolCallStopDetail
}
