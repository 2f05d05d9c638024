/** Keys that were typed for something else must not answer a question: nothing counts until the keyboard was quiet for a while. */
import { sanitizeLine } from '../render/sanitize.ts'
import { captureInput, type KeyInput, plainText } from './take-keys.ts'
import type { LineIo } from './typed-line.ts'

/** Longer than the gaps between the keys of somebody who is typing. */
const quietMs = 1_000
/** Characters of what was typed that are shown. */
const shownChars = 200

export interface SettleIo extends LineIo {
  /** Without a key, before an answer counts; absent: a second. */
  readonly quietMs?: number
  /** Takes the keys that came before the question could be answered. @returns all that is kept for later; absent: nothing is */
  readonly keepTyped?: (keys: string) => string
}

/** Returns when no key came for a while, and says what became of those that did. */
export async function settleKeys(io: SettleIo): Promise<void> {
  const keys = await collectKeys(io.input, io.quietMs ?? quietMs, io.signal)
  const kept = io.keepTyped?.(keys)
  const typed = kept ?? plainText(keys)
  if (typed.trim() === '') return
  const shown = sanitizeLine(typed.trim(), shownChars)
  io.output.write(
    kept === undefined
      ? `Ignored, because it was typed before the question: “${shown}”\n`
      : `Typed before the question; kept as your next message to the agent: “${shown}”\n`,
  )
}

/**
 * The keys that come until there was none for `waitMs`; a terminal hands over what was typed before at once.
 * The terminal stays in raw mode for whoever reads it next, unless `signal` is aborted.
 */
export async function collectKeys(input: KeyInput, waitMs: number, signal: AbortSignal): Promise<string> {
  if (input.isTTY !== true || input.setRawMode === undefined || signal.aborted) return ''
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, waitMs)
  const onAbort = (): void => resolve()
  signal.addEventListener('abort', onAbort, { once: true })
  let collected = ''
  using taken = captureInput(input, (keys) => {
    collected += keys
    timer.refresh()
  })
  await promise
  clearTimeout(timer)
  signal.removeEventListener('abort', onAbort)
  if (!signal.aborted) taken.handOver()
  return collected
}
