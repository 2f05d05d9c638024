/**
 * The model as planner and steps see it: a question, an answer or a typed failure. Repeats a request with back-off as long
 * as the failure may pass and nothing of the answer was acted on, which nothing is before a turn is whole.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Result } from '#specs/protocol/error.ts'
import { type ChatRequest, type ClientOptions, collectTurn, streamChat, type Turn } from './client.ts'
import { type ModelError, modelError } from './errors.ts'

export type TurnRequest = Omit<ChatRequest, 'model' | 'maxTokens'>

export interface TurnHooks {
  readonly signal: AbortSignal
  /** Text as it comes; after a repeated request it begins anew. */
  onText?(text: string): void
  onReasoning?(text: string): void
  onRetry?(error: ModelError, delayMs: number): void
}

/** Asks a model for one turn. */
export type Model = (request: TurnRequest, hooks: TurnHooks) => Promise<Result<Turn, ModelError>>

export interface ModelOptions extends Omit<ClientOptions, 'signal'> {
  readonly model: string
  /** Default 16,384: enough for a file of some length, and within what hosted models allow. */
  readonly maxTokens?: number
  /** Requests for one turn, the first included; default 5. */
  readonly maxAttempts?: number
  /** The first pause, doubled each time up to `maxDelayMs`; default 1 s, for a rate limit 2 s. */
  readonly firstDelayMs?: number
  /** Default 60 s. */
  readonly maxDelayMs?: number
  /** 0 up to 1: the part of a pause that is left to chance. */
  readonly random?: () => number
}

/** A model behind `baseUrl`. */
export function createModel(options: ModelOptions): Model {
  const maxAttempts = options.maxAttempts ?? 5
  const maxTokens = options.maxTokens ?? 16_384
  return async (request, hooks) => {
    for (let attempt = 1; ; attempt++) {
      const parts = streamChat(
        { ...request, model: options.model, maxTokens },
        { ...options, signal: hooks.signal },
      )
      const turn = await collectTurn(parts, (part) => {
        if (part.type === 'text') hooks.onText?.(part.text)
        else if (part.type === 'reasoning') hooks.onReasoning?.(part.text)
      })
      if (turn.ok || !turn.error.retryable || attempt >= maxAttempts) return turn
      const delayMs = pauseBefore(attempt, turn.error, options)
      hooks.onRetry?.(turn.error, delayMs)
      try {
        await sleep(delayMs, undefined, { signal: hooks.signal })
      } catch {
        return { ok: false, error: modelError('cancelled', 'the request was cancelled', false) }
      }
    }
  }
}

function pauseBefore(attempt: number, error: ModelError, options: ModelOptions): number {
  const maxDelayMs = options.maxDelayMs ?? 60_000
  const first = options.firstDelayMs ?? (error.code === 'rate_limited' ? 2_000 : 1_000)
  const full = Math.min(first * 2 ** (attempt - 1), maxDelayMs)
  const jittered = full / 2 + (full / 2) * (options.random ?? drawFraction)()
  return Math.round(Math.max(jittered, Math.min(error.retryAfterMs ?? 0, 2 * maxDelayMs)))
}

/** Math.random would draw the same in every clone of a VM. */
function drawFraction(): number {
  return randomBytes(4).readUInt32BE() / 2 ** 32
}
