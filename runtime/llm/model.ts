/**
 * The model as planner and steps see it: a question, an answer or a typed failure. Repeats a request with back-off as long
 * as the failure may pass and nothing of the answer was acted on, which nothing is before a turn is whole. What a provider
 * turned out not to bear is not asked of it again in this run.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Result } from '#specs/protocol/error.ts'
import { type ChatRequest, type ClientOptions, collectTurn, streamChat, type Turn } from './client.ts'
import { type ModelError, modelError, modelFailures } from './errors.ts'
import { ProviderHabits } from './habits.ts'
import { takeTextCalls } from './text-calls.ts'
import { isCutOff } from './tool-calls.ts'

export type TurnRequest = Pick<ChatRequest, 'messages' | 'tools' | 'toolChoice' | 'responseFormat'>

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
  /** Bounds the requests for one turn, the first included, below what each failure has of its own. */
  readonly maxAttempts?: number
  /** The first pause in place of each failure's own; doubled each time up to `maxDelayMs`. */
  readonly firstDelayMs?: number
  /** Default 60 s. */
  readonly maxDelayMs?: number
  /** 0 up to 1: the part of a pause that is left to chance. */
  readonly random?: () => number
}

/** A model behind `baseUrl`, for one run. */
export function createModel(options: ModelOptions): Model {
  const habits = new ProviderHabits()
  return async (request, hooks) => {
    for (let attempt = 1; ; ) {
      const turn = await askOnce(request, habits, options, hooks)
      if (turn.ok) {
        habits.noteSuccess()
        return { ok: true, value: takeTextCalls(turn.value, request) }
      }
      const { error } = turn
      // Another form of the request is another request: it is made at once, and each change is made once.
      if (habits.adapt(error)) {
        hooks.onRetry?.(error, 0)
        continue
      }
      const attempts = Math.min(
        modelFailures[error.code].attempts,
        options.maxAttempts ?? Number.POSITIVE_INFINITY,
      )
      if (attempt >= attempts) return turn
      const delayMs = pauseBefore(attempt, error, options)
      attempt++
      hooks.onRetry?.(error, delayMs)
      try {
        await sleep(delayMs, undefined, { signal: hooks.signal })
      } catch {
        return { ok: false, error: modelError('cancelled', 'the request was cancelled') }
      }
    }
  }
}

async function askOnce(
  request: TurnRequest,
  habits: ProviderHabits,
  options: ModelOptions,
  hooks: TurnHooks,
): Promise<Result<Turn, ModelError>> {
  const { stream, echoReasoning } = habits
  const { model, maxTokens = 16_384 } = options
  const parts = streamChat(
    { ...request, model, maxTokens, stream, echoReasoning },
    { ...options, signal: hooks.signal },
  )
  const turn = await collectTurn(parts, (part) => {
    if (part.type === 'text') hooks.onText?.(part.text)
    else if (part.type === 'reasoning') hooks.onReasoning?.(part.text)
  })
  // Cut by the length limit is the model's own doing.
  if (!turn.ok || !habits.mayMendArguments || turn.value.finishReason === 'length') return turn
  const cut = turn.value.toolCalls.find(({ argumentsText }) => isCutOff(argumentsText))
  if (cut === undefined) return turn
  const message = `the arguments of a call of ${JSON.stringify(cut.name.slice(0, 64))} stop in the middle, in an answer said to be finished`
  return { ok: false, error: modelError('cut_arguments', message) }
}

function pauseBefore(attempt: number, error: ModelError, options: ModelOptions): number {
  const maxDelayMs = options.maxDelayMs ?? 60_000
  const first = options.firstDelayMs ?? modelFailures[error.code].firstDelayMs
  const full = Math.min(first * 2 ** (attempt - 1), maxDelayMs)
  const jittered = full / 2 + (full / 2) * (options.random ?? drawFraction)()
  return Math.round(Math.max(jittered, Math.min(error.retryAfterMs ?? 0, 2 * maxDelayMs)))
}

/** Math.random would draw the same in every clone of a VM. */
function drawFraction(): number {
  return randomBytes(4).readUInt32BE() / 2 ** 32
}
