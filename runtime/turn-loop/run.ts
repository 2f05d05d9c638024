/**
 * `runTurnLoop` of the library: the turn loop, asking the model through `generate` or `stream` where the application does not
 * do that itself. Apart from the loop, so that who asks a model of their own does not load providers.
 */
import { CaissonError } from '#specs/errors.ts'
import type { LLMChatMessage, LLMResponse, LLMStreamChunk } from '../contract/contract.ts'
import { generate, type LLMRequest, stream } from '../generate/generate.ts'
import { runTurnLoop as runLoop } from './loop.ts'
import type { RunTurnLoopOptions, RunTurnLoopResult, TurnLoopModelCall } from './types.ts'

/** A call of the library but for what each turn brings: the messages and the loop's signal. */
export interface TurnLoopModelRequest extends Omit<LLMRequest, 'messages' | 'abortSignal'> {
  /** Default `generate`. With `stream`, the text of an answer that is interrupted is kept. */
  readonly mode?: 'generate' | 'stream'
  /** Hears the pieces of streamed answers. */
  readonly onChunk?: (chunk: LLMStreamChunk) => void
}

/**
 * Runs turns until one of the stop reasons. What the model or a callback throws is thrown, unless the loop was interrupted by
 * then.
 * @throws {CaissonError} `invalid_options` when an option is of a wrong type, or there is no way to a model
 */
export async function runTurnLoop<
  TState,
  TMessage = LLMChatMessage,
  TResponse extends LLMResponse = LLMResponse,
>(
  options: RunTurnLoopOptions<TState, TMessage, TResponse> & {
    /** The loop asks the model by itself; `callModel` goes before it. */
    readonly modelRequest?: TMessage extends LLMChatMessage ? TurnLoopModelRequest : never
  },
): Promise<RunTurnLoopResult<TState, TResponse>> {
  const request: TurnLoopModelRequest | undefined = options?.modelRequest
  if (request === undefined || options.callModel !== undefined) return runLoop(options)
  if (typeof request !== 'object' || request === null)
    throw new CaissonError(
      'invalid_options',
      `runTurnLoop: modelRequest must be an object, and is ${request === null ? 'null' : typeof request}`,
    )
  const callModel = (call: TurnLoopModelCall<TState, LLMChatMessage>) => askModel(request, call)
  // The library's own messages and answers are what an application without a model of its own has.
  const own = { ...options, callModel } as unknown as RunTurnLoopOptions<TState, TMessage, TResponse>
  return runLoop(own)
}

async function askModel<TState>(
  { mode = 'generate', onChunk, ...request }: TurnLoopModelRequest,
  { messages, abortSignal, onText }: TurnLoopModelCall<TState, LLMChatMessage>,
): Promise<LLMResponse> {
  const whole = { ...request, messages, abortSignal }
  if (mode === 'generate') return generate(whole)
  const chunks = stream(whole)
  for (;;) {
    const next = await chunks.next()
    if (next.done === true) return next.value
    if (next.value.content !== undefined) onText(next.value.content)
    onChunk?.(next.value)
  }
}
