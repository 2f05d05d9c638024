/** Keys that were pressed before a question was there must not answer it. */
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

/** The terminal hands over at once what it holds. */
const settleMs = 40

/** Throws away what was typed so far, where `input` is a terminal. */
export async function discardTypeAhead(
  input: Readable & { isTTY?: boolean; setRawMode?: (isRaw: boolean) => unknown },
): Promise<void> {
  if (input.isTTY !== true || input.setRawMode === undefined) return
  const discard = (chunk: Uint8Array | string) => {
    // In raw mode Ctrl-C is a character; it shall still interrupt.
    const isInterrupt = typeof chunk === 'string' ? chunk.includes('\u0003') : chunk.includes(3)
    if (isInterrupt) process.kill(process.pid, 'SIGINT')
  }
  // A line that was begun is handed over in raw mode only.
  input.setRawMode(true)
  input.on('data', discard)
  // Whoever listened before may have left it paused.
  input.resume()
  await sleep(settleMs)
  input.off('data', discard)
  input.pause()
  input.setRawMode(false)
}
