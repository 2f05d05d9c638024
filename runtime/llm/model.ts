/**
 * The model as planner and steps use it: a request, then an answer or a typed failure. Remembers what a provider
 * rejects for the rest of the run; `repeats.ts` handles retries.
 */
import type { Result } from '#specs/protocol/error.ts'
import { type ChatRequest, type ClientOptions, streamChat, type Turn } from './client.ts'
import type { ModelError } from './errors.ts'
import { ProviderQuirks } from './habits.ts'
import { type RepeatHooks, type RetryPolicy, requestWithRetry } from './repeats.ts'

export interface TurnRequest
  extends Pick<ChatRequest, 'messages' | 'tools' | 'toolChoice' | 'responseFormat'> {
  /** Maximum tokens of the answer; absent: the model's own limit. */
  readonly maxTokens?: number
}

export type TurnHooks = RepeatHooks

/** Requests one turn from a model. */
export type Model = (request: TurnRequest, hooks: TurnHooks) => Promise<Result<Turn, ModelError>>

export interface ModelOptions extends Omit<ClientOptions, 'signal'>, RetryPolicy {
  readonly model: string
  /** Default 16,384: enough for a medium file, and within the limits of hosted models. */
  readonly maxTokens?: number
}

/** A model behind `baseUrl`, for one run. */
export function createModel(options: ModelOptions): Model {
  const habits = new ProviderQuirks()
  const { model, maxTokens = 16_384 } = options
  return (request, hooks) => {
    const clientOptions = { ...options, signal: hooks.signal }
    const open = () => {
      const { stream, echoReasoning, countTokens } = habits
      const form = { model, maxTokens: request.maxTokens ?? maxTokens, stream, echoReasoning, countTokens }
      return streamChat({ ...request, ...form }, clientOptions)
    }
    return requestWithRetry(open, request, habits, options, hooks)
  }
}
