/**
 * The model as planner and steps see it: a question, an answer or a typed failure. What a provider turned out not to bear is
 * not asked of it again in this run; how a request is repeated is `repeats.ts`.
 */
import type { Result } from '#specs/protocol/error.ts'
import { type ChatRequest, type ClientOptions, streamChat, type Turn } from './client.ts'
import type { ModelError } from './errors.ts'
import { ProviderQuirks } from './habits.ts'
import { type RepeatHooks, type RetryPolicy, requestWithRetry } from './repeats.ts'

export interface TurnRequest
  extends Pick<ChatRequest, 'messages' | 'tools' | 'toolChoice' | 'responseFormat'> {
  /** Tokens of the answer; absent: the model's own bound. */
  readonly maxTokens?: number
}

export type TurnHooks = RepeatHooks

/** Asks a model for one turn. */
export type Model = (request: TurnRequest, hooks: TurnHooks) => Promise<Result<Turn, ModelError>>

export interface ModelOptions extends Omit<ClientOptions, 'signal'>, RetryPolicy {
  readonly model: string
  /** Default 16,384: enough for a file of some length, and within what hosted models allow. */
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
