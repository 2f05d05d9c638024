/** Waits for a slow reader. */
import type { Writable } from 'node:stream'

const events = ['drain', 'close', 'error'] as const

/** Resolves when `stream` accepts more, or never will: the caller must check which. */
export async function waitForDrain(stream: Writable): Promise<void> {
  if (stream.destroyed || !stream.writableNeedDrain) return
  await new Promise<void>((resolve) => {
    const go = (): void => {
      for (const event of events) stream.off(event, go)
      resolve()
    }
    for (const event of events) stream.on(event, go)
  })
}
