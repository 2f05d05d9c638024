/**
 * Retries requests until a turn is complete: with back-off, as long as the failure may be transient and nothing of
 * the answer was acted on. Nothing acts before a turn is complete, unless the caller says otherwise.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Result } from '#specs/protocol/error.ts'
import type { StreamPart } from './chunk.ts'
import { collectTurn, type Turn } from './client.ts'
import { type ModelError, modelError, modelFailures } from './errors.ts'
import type { ProviderQuirks } from './habits.ts'
import type { ToolSpec } from './messages.ts'
import { readTurnText, type SaidMessage } from './text-calls.ts'
import { isCutOff } from './tool-calls.ts'

export interface RetryPolicy {
  /** Upper limit on requests per turn, including the first, below each failure's own limit. */
  readonly maxAttempts?: number
  /** Replaces each failure's first delay; doubles up to `maxDelayMs`. */
  readonly firstDelayMs?: number
  /** Default 60 s. */
  readonly maxDelayMs?: number
  /** Random share of a delay, from 0 to 1. */
  readonly random?: () => number
}

export interface RepeatHooks {
  readonly signal: AbortSignal
  /** Receives text as it arrives; a retried request starts over. */
  onText?(text: string): void
  onReasoning?(text: string): void
  onRetry?(error: ModelError, delayMs: number): void
  /** Whether a failed request may be retried; absent: always. */
  mayRetry?(): boolean
}

/** The context of a turn: its text is searched for calls when tools were offered. */
export interface AskedFor {
  readonly messages: readonly SaidMessage[]
  readonly tools: readonly ToolSpec[]
}

/** Sends a request in the form that `habits` currently require, and retries it as {@link modelFailures} allows. */
export async function requestWithRetry(
  open: () => AsyncIterable<readonly StreamPart[]>,
  asked: AskedFor,
  habits: ProviderQuirks,
  policy: RetryPolicy,
  hooks: RepeatHooks,
): Promise<Result<Turn, ModelError>> {
  for (let attempt = 1; ; ) {
    const turn = await askOnce(open(), habits, hooks)
    if (turn.ok) {
      habits.noteSuccess()
      return { ok: true, value: readTurnText(turn.value, asked) }
    }
    const { error } = turn
    if (hooks.mayRetry?.() === false) return turn
    // A changed form is a new request: it is sent at once, and each change happens once.
    if (habits.adapt(error)) {
      hooks.onRetry?.(error, 0)
      continue
    }
    const attempts = Math.min(
      modelFailures[error.code].attempts,
      policy.maxAttempts ?? Number.POSITIVE_INFINITY,
    )
    if (attempt >= attempts) return turn
    const delayMs = pauseBefore(attempt, error, policy)
    attempt++
    hooks.onRetry?.(error, delayMs)
    try {
      await sleep(delayMs, undefined, { signal: hooks.signal })
    } catch {
      return { ok: false, error: modelError('cancelled', 'the request was cancelled') }
    }
  }
}

async function askOnce(
  parts: AsyncIterable<readonly StreamPart[]>,
  habits: ProviderQuirks,
  hooks: RepeatHooks,
): Promise<Result<Turn, ModelError>> {
  const turn = await collectTurn(parts, (part) => {
    if (part.type === 'text') hooks.onText?.(part.text)
    else if (part.type === 'reasoning') hooks.onReasoning?.(part.text)
  })
  // Truncation by the length limit is the model's own.
  if (!turn.ok || !habits.mayRepairArguments || turn.value.finishReason === 'length') return turn
  const cut = turn.value.toolCalls.find(({ argumentsText }) => isCutOff(argumentsText))
  if (cut === undefined) return turn
  const message = `the arguments of a call of ${JSON.stringify(cut.name.slice(0, 64))} stop in the middle, in an answer said to be finished`
  return { ok: false, error: modelError('cut_arguments', message) }
}

function pauseBefore(attempt: number, error: ModelError, policy: RetryPolicy): number {
  const maxDelayMs = policy.maxDelayMs ?? 60_000
  const first = policy.firstDelayMs ?? modelFailures[error.code].firstDelayMs
  const full = Math.min(first * 2 ** (attempt - 1), maxDelayMs)
  const jittered = full / 2 + (full / 2) * (policy.random ?? drawFraction)()
  return Math.round(Math.max(jittered, Math.min(error.retryAfterMs ?? 0, 2 * maxDelayMs)))
}

/** Math.random would return the same values in every clone of a VM. */
function drawFraction(): number {
  return randomBytes(4).readUInt32BE() / 2 ** 32
}
