/**
 * `runTurnLoop` of the library: the turn loop with `generate` or `stream` as the default model call. Separate from
 * the loop, so that applications with their own model load no providers.
 */
import { CaissonError } from '#specs/errors.ts'
import type { LLMChatMessage, LLMResponse, LLMStreamChunk } from '../contract/contract.ts'
import { generate, type LLMRequest, stream } from '../generate/generate.ts'
import { runTurnLoop as runLoop } from './loop.ts'
import type { RunTurnLoopOptions, RunTurnLoopResult, TurnLoopModelCall } from './types.ts'

/** A library call without what each turn supplies: the messages and the loop's signal. */
export interface TurnLoopModelRequest extends Omit<LLMRequest, 'messages' | 'abortSignal'> {
  /** Default `generate`. `stream` keeps the text of an interrupted answer. */
  readonly mode?: 'generate' | 'stream'
  /** Receives the chunks of streamed answers. */
  readonly onChunk?: (chunk: LLMStreamChunk) => void
}

/**
 * Runs turns until a stop reason. Errors of the model or a callback are thrown unless the loop was already
 * interrupted.
 * @throws {CaissonError} `invalid_options` when an option has a wrong type, or the loop cannot call a model
 */
export async function runTurnLoop<
  TState,
  TMessage = LLMChatMessage,
  TResponse extends LLMResponse = LLMResponse,
>(
  options: RunTurnLoopOptions<TState, TMessage, TResponse> & {
    /** The loop calls the model itself; `callModel` takes precedence. */
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
  // Without its own model, an application uses the library's message and answer types.
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
