/**
 * The turn loop: calls the model, passes its answer to the application, and continues until the application, a limit,
 * the guard or a signal ends it. Owns the order of checks; knows no tool, transcript or provider (see `run.ts`).
 */
import { CaissonError } from '#specs/errors.ts'
import { parseToolValidationFailureArtifact } from '#specs/protocol/validation-failure.ts'
import type { LLMChatMessage, LLMResponse, LLMToolCall } from '../contract/contract.ts'
import { DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION } from './classify.ts'
import { Interruptions, interrupted } from './interruption.ts'
import { readLimits } from './limits.ts'
import { type End, Progress } from './progress.ts'
import { takeEmptyText, takeText, takeUnhandled } from './text-turn.ts'
import type {
  ParsedToolIntent,
  RunTurnLoopOptions,
  RunTurnLoopResult,
  TurnLoopModelCall,
  TurnLoopResponseParams,
  TurnLoopToolCallsResult,
} from './types.ts'

type CallModel<TState, TMessage, TResponse> = (
  params: TurnLoopModelCall<TState, TMessage>,
) => Promise<TResponse>

/**
 * Runs turns until a stop reason. Errors of `callModel` or a callback are thrown unless the loop was already
 * interrupted.
 * @throws {CaissonError} `invalid_options` when an option has a wrong type, or the loop cannot call a model
 */
export async function runTurnLoop<
  TState,
  TMessage = LLMChatMessage,
  TResponse extends LLMResponse = LLMResponse,
>(options: RunTurnLoopOptions<TState, TMessage, TResponse>): Promise<RunTurnLoopResult<TState, TResponse>> {
  const limits = readLimits(options)
  const { callModel } = options
  if (callModel === undefined)
    throw new CaissonError(
      'invalid_options',
      'runTurnLoop needs a way to a model: give modelRequest or callModel',
    )
  const interruptions = new Interruptions(limits.maxWallTimeMs, options.abortSignal)
  let result: RunTurnLoopResult<TState, TResponse>
  try {
    result = await runTurns(new Progress(options, limits, interruptions), callModel)
  } finally {
    interruptions.close()
  }
  // `onStop` may be slow: it is not bound by the loop's deadline.
  await options.onStop?.({ result })
  return result
}

async function runTurns<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  callModel: CallModel<TState, TMessage, TResponse>,
): Promise<RunTurnLoopResult<TState, TResponse>> {
  for (;;) {
    progress.inIteration = false
    progress.answer = null
    if (progress.isInterrupted) return progress.endInterrupted()
    if (progress.iteration >= progress.limits.maxIterations) return progress.end('max_iterations_exceeded')
    const end = await runTurn(progress, callModel)
    if (end !== null) return end
  }
}

async function runTurn<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  callModel: CallModel<TState, TMessage, TResponse>,
): Promise<End<TState, TResponse>> {
  const { interruptions } = progress
  const iteration = ++progress.iteration
  progress.inIteration = true
  const messages = await openTurn(progress)
  if (messages === interrupted || progress.isInterrupted) return progress.endInterrupted()
  const raw = await askModel(progress, callModel, messages)
  if (raw === interrupted) return progress.endInterrupted()

  const response = normalize(progress, raw)
  progress.lastResponse = response
  progress.answer = response
  const { signal: abortSignal, elapsedMs } = interruptions
  const params = { state: progress.state, response, messages, iteration, abortSignal }
  const normalizedToolIntent = response !== raw
  const heard = progress.options.onModelResponse?.({
    ...params,
    elapsedMs,
    rawResponse: raw,
    normalizedToolIntent,
  })
  if ((await interruptions.wait(heard)) === interrupted || progress.isInterrupted)
    return progress.endInterrupted()
  return branch(progress, params, normalizedToolIntent)
}

async function openTurn<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
): Promise<readonly TMessage[] | typeof interrupted> {
  const { interruptions, options, state, iteration, counters, transientInstruction } = progress
  const { elapsedMs, signal: abortSignal } = interruptions
  const started = options.onIterationStart?.({ state, iteration, elapsedMs, ...counters })
  if ((await interruptions.wait(started)) === interrupted) return interrupted
  progress.transientInstruction = undefined
  return interruptions.wait(
    options.buildMessages({
      state,
      iteration,
      abortSignal,
      emptyTextRetryCount: counters.emptyTextRetryCount,
      ...(transientInstruction === undefined ? {} : { transientInstruction }),
    }),
  )
}

async function askModel<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  callModel: CallModel<TState, TMessage, TResponse>,
  messages: readonly TMessage[],
): Promise<TResponse | typeof interrupted> {
  const { interruptions, state, iteration } = progress
  const onText = (text: string): void => {
    progress.partialText += text
  }
  const response = await interruptions.wait(
    callModel({ messages, abortSignal: interruptions.signal, state, iteration, onText }),
  )
  if (response === interrupted) return interrupted
  progress.partialText = ''
  if (typeof response !== 'object' || response === null)
    throw new CaissonError(
      'invalid_options',
      `runTurnLoop expects an answer from callModel, and got ${typeof response}`,
    )
  return response
}

function normalize<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  response: TResponse,
): TResponse {
  const { parsePlainTextToolIntent: parse, markSyntheticToolCalls: mark } = progress.options
  if (parse === undefined) return response
  const id = `tool-intent-${progress.syntheticCalls + 1}`
  const normalized = normalizeToolIntent(response, parse, id, mark === true)
  if (normalized === null) return response
  progress.syntheticCalls++
  return normalized
}

/** `response` with one call of the id `id`; null when the text contains none. Text and all other fields are kept. */
function normalizeToolIntent<TResponse extends LLMResponse>(
  response: TResponse,
  parse: (content: string) => ParsedToolIntent | null | undefined,
  id: string,
  mark: boolean,
): TResponse | null {
  const content: string | undefined = response.content
  if (response.type !== 'text' || (content ?? '').trim() === '') return null
  const intent = parse(content)
  if (!intent) return null
  const call: LLMToolCall = {
    id,
    type: 'function',
    function: { name: intent.toolName, arguments: JSON.stringify(intent.toolArgs ?? {}) },
    ...(mark ? { synthetic: true } : {}),
  }
  return {
    ...response,
    type: 'tool_calls',
    tool_calls: [call],
    assistantMessage: { ...response.assistantMessage, tool_calls: [{ ...call }] },
  }
}

function branch<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
  normalizedToolIntent: boolean,
): Promise<End<TState, TResponse>> {
  const { type } = params.response
  // An application's own model may omit required fields.
  const content: string | undefined = params.response.content
  const calls: readonly LLMToolCall[] = params.response.tool_calls ?? []
  if (type === 'tool_calls' && calls.length > 0)
    return takeToolCalls(progress, params, normalizedToolIntent ? 'normalized_text_intent' : 'model')
  progress.counters.consecutiveToolTurns = 0
  if (type !== 'text') return takeUnhandled(progress, params)
  return (content ?? '').trim() === '' ? takeEmptyText(progress, params) : takeText(progress, params)
}

async function takeToolCalls<TState, TMessage, TResponse extends LLMResponse>(
  progress: Progress<TState, TMessage, TResponse>,
  params: TurnLoopResponseParams<TState, TMessage, TResponse>,
  source: 'model' | 'normalized_text_intent',
): Promise<End<TState, TResponse>> {
  const { counters, rounds, limits } = progress
  counters.emptyTextRetryCount = 0
  counters.rejectedTextRetryCount = 0
  counters.consecutiveToolTurns++
  const round = rounds.open(params.response.tool_calls ?? [], params.iteration, source)
  progress.trace.toolCalls.push(...round.summaries)
  if (round.repeated !== null) {
    progress.addStep('repeated_tool_call_stop')
    return progress.end('repeated_tool_call_stopped', round.repeated)
  }
  if (counters.consecutiveToolTurns > limits.maxConsecutiveToolTurns) {
    progress.addStep('max_tool_rounds_stop')
    return progress.end('max_tool_rounds_exceeded')
  }

  const taken = await progress.take(progress.options.onToolCallsResponse(params))
  // Late results are in the state, but no further request is made.
  if (taken === interrupted || progress.isInterrupted) return progress.endInterrupted()
  const next = taken?.next
  if (next?.control !== 'continue') {
    progress.addStep('tool_calls_stop')
    return progress.end('tool_calls_response')
  }
  if (isEvidence(taken ?? {})) progress.hasActionEvidence = true
  const isStuck = rounds.close(round, taken?.toolResults)
  return progress.nextTurn('tool_calls_continue', withNudge(next.transientInstruction, isStuck))
}

/** A call whose arguments did not fit was not carried out. */
function isEvidence({
  actionEvidence,
  toolResults = [],
}: Pick<TurnLoopToolCallsResult<unknown>, 'actionEvidence' | 'toolResults'>): boolean {
  if (actionEvidence !== undefined) return actionEvidence
  return (
    toolResults.length === 0 ||
    toolResults.some(({ content }) => parseToolValidationFailureArtifact(content) === null)
  )
}

function withNudge(instruction: string | undefined, isStuck: boolean): string | undefined {
  if (!isStuck) return instruction
  const nudge = DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION
  return instruction === undefined ? nudge : `${instruction}\n\n${nudge}`
}
