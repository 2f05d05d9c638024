/** Handles a turn with a text (empty, rejected or accepted), and one with an unknown kind of answer. */
import type { LLMResponse } from '../contract/contract.ts'
import {
  classifyText,
  recoveryInstruction,
  type TextAssessment,
  type TextClassification,
} from './classify.ts'
import { interrupted } from './interruption.ts'
import type { End, Progress } from './progress.ts'
import type { TurnLoopResponseParams } from './types.ts'

interface Rejection {
  readonly classification: Exclude<TextClassification, 'verified_final_response'>
  readonly requiresActionEvidence: boolean
  readonly instruction: string | undefined
}

export async function takeText<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
): Promise<End<TState, TResponse>> {
  const { interruptions, options } = progress
  const text = { ...params, responseText: params.response.content }
  const needed = await interruptions.wait(options.requiresActionEvidence?.(text))
  if (needed === interrupted) return progress.endInterrupted()
  const requiresActionEvidence = needed === true
  const evidence = { requiresActionEvidence, hasActionEvidence: progress.hasActionEvidence }
  const judged = await interruptions.wait(options.classifyTextResponse?.({ ...text, ...evidence }))
  if (judged === interrupted) return progress.endInterrupted()

  const assessment = readAssessment(judged, text.responseText, evidence)
  const { classification, transientInstruction: instruction } = assessment
  const { iteration, responseText } = text
  const { elapsedMs } = interruptions
  progress.trace.classifications.push({
    iteration,
    requiresActionEvidence,
    responseText,
    elapsedMs,
    ...assessment,
  })
  const heard = options.onClassification?.({ ...text, ...evidence, elapsedMs, assessment })
  if ((await interruptions.wait(heard)) === interrupted) return progress.endInterrupted()
  return classification === 'verified_final_response'
    ? acceptText(progress, params)
    : rejectText(progress, params, { classification, requiresActionEvidence, instruction })
}

export async function takeEmptyText<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
): Promise<End<TState, TResponse>> {
  const { counters, limits, options } = progress
  progress.rounds.noteText('')
  const retryCount = counters.emptyTextRetryCount
  const retry = {
    kind: 'empty_text',
    retryCountBefore: retryCount,
    retryLimit: limits.emptyTextRetryLimit,
  } as const
  if (retryCount < limits.emptyTextRetryLimit) {
    counters.emptyTextRetryCount++
    progress.addRetry({ ...retry, decision: 'retry', retryCountAfter: retryCount + 1 })
    return progress.nextTurn('empty_text_retry', undefined)
  }
  const taken = await progress.take(options.onEmptyTextStop?.({ ...params, retryCount }))
  if (taken === interrupted) return progress.endInterrupted()
  progress.addRetry({ ...retry, decision: 'stop', retryCountAfter: retryCount })
  progress.addStep('empty_text_stop')
  return progress.end('empty_text_stop')
}

export async function takeUnhandled<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
): Promise<End<TState, TResponse>> {
  const retryCount = progress.counters.emptyTextRetryCount
  const taken = await progress.take(progress.options.onUnhandledResponse?.({ ...params, retryCount }))
  if (taken === interrupted) return progress.endInterrupted()
  progress.addStep('unhandled_response_stop')
  return progress.end('unhandled_response')
}

async function acceptText<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
): Promise<End<TState, TResponse>> {
  progress.counters.emptyTextRetryCount = 0
  progress.counters.rejectedTextRetryCount = 0
  progress.rounds.reset()
  progress.hasActionEvidence = false
  const responseText = params.response.content
  const taken = await progress.take(progress.options.onTextResponse({ ...params, responseText }))
  if (taken === interrupted) return progress.endInterrupted()
  const next = taken?.next
  if (next?.control === 'continue')
    return progress.nextTurn('text_response_continue', next.transientInstruction)
  progress.addStep('text_response_stop')
  return progress.end('text_response')
}

async function rejectText<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
  { classification, requiresActionEvidence, instruction }: Rejection,
): Promise<End<TState, TResponse>> {
  const { counters, limits, options } = progress
  const responseText = params.response.content
  progress.rounds.noteText(responseText)
  const retryCount = counters.rejectedTextRetryCount
  const rejected = { ...params, responseText, retryCount, classification, requiresActionEvidence }
  const taken = await progress.take(options.onRejectedTextResponse?.(rejected))
  if (taken === interrupted) return progress.endInterrupted()
  const next = taken?.next
  const retry = {
    kind: 'rejected_text',
    retryCountBefore: retryCount,
    retryLimit: limits.rejectedTextRetryLimit,
    classification,
  } as const
  if (retryCount >= limits.rejectedTextRetryLimit || next?.control === 'stop') {
    progress.addRetry({ ...retry, decision: 'stop', retryCountAfter: retryCount })
    progress.addStep('rejected_text_stop')
    return progress.end('rejected_text_response')
  }
  counters.rejectedTextRetryCount++
  const transientInstruction =
    next?.transientInstruction ?? instruction ?? recoveryInstruction(classification)
  progress.addRetry({ ...retry, decision: 'retry', retryCountAfter: retryCount + 1, transientInstruction })
  return progress.nextTurn('rejected_text_retry', transientInstruction)
}

function readAssessment(
  judged: TextClassification | TextAssessment | undefined,
  text: string,
  evidence: { readonly requiresActionEvidence: boolean; readonly hasActionEvidence: boolean },
): TextAssessment {
  if (typeof judged === 'string') return { classification: judged }
  const { requiresActionEvidence, hasActionEvidence } = evidence
  return judged ?? { classification: classifyText(text, requiresActionEvidence, hasActionEvidence) }
}
