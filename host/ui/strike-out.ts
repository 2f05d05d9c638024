/** Takes an open prompt back: it redraws itself struck through, so that nothing on the screen still seems to ask. */
import type { Readable } from 'node:stream'

/**
 * Ends the prompt that reads `input` when `signal` is aborted. The prompt is told so by the key that a person would
 * press: given the signal itself, it would stop listening and leave its choices as they are.
 */
export function strikeOut(input: Readable, signal: AbortSignal): Disposable {
  const onAbort = () => {
    const key = { name: 'escape', sequence: '\u001b', ctrl: false, meta: false, shift: false }
    input.emit('keypress', key.sequence, key)
  }
  signal.addEventListener('abort', onAbort, { once: true })
  return { [Symbol.dispose]: () => signal.removeEventListener('abort', onAbort) }
}
