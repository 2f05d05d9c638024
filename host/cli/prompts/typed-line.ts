/** Reads one line at the terminal and gives the terminal back, however that ends. What was typed is never lost with a withdrawn prompt. */
import { createInterface, type Key } from 'node:readline'
import type { Readable, Writable } from 'node:stream'

export interface LineIo {
  readonly input: Readable & { isTTY?: boolean }
  readonly output: Writable & { isTTY?: boolean; columns?: number; rows?: number }
  /** Withdraws the question. */
  readonly signal: AbortSignal
}

/** `left` by Esc, Ctrl-C, Ctrl-D or the end of input. */
export type TypedLine =
  /** `isPasted`: more keys came with the line, as no hand types them. */
  | { readonly kind: 'line'; readonly text: string; readonly isPasted: boolean }
  | { readonly kind: 'withdrawn'; readonly text: string }
  | { readonly kind: 'left' }

/** How long a lone Esc may be the beginning of an arrow key. */
const escapeCodeTimeout = 50

/** @param initial text that is already in the line, to be edited */
export async function readLine(
  { input, output, signal }: LineIo,
  prompt: string,
  initial = '',
): Promise<TypedLine> {
  if (signal.aborted) return { kind: 'withdrawn', text: initial }
  const { promise, resolve } = Promise.withResolvers<TypedLine>()
  const lines = createInterface({
    input,
    output,
    prompt,
    terminal: true,
    historySize: 0,
    tabSize: 2,
    escapeCodeTimeout,
  })
  let line: string | undefined
  let keysBehind = 0
  const onKey = (_: string | undefined, key: Key | undefined): void => {
    // The line feed of a line end of two characters is part of it.
    if (line !== undefined && (key?.sequence !== '\n' || keysBehind > 0)) keysBehind++
    if (key?.name === 'escape') resolve({ kind: 'left' })
  }
  const onLine = (text: string): void => {
    line = text
    // Behind all keys that the terminal handed over at once.
    setImmediate(() => resolve({ kind: 'line', text, isPasted: keysBehind > 0 }))
  }
  const onAbort = (): void => resolve({ kind: 'withdrawn', text: lines.line })
  lines.once('line', onLine)
  for (const event of ['SIGINT', 'close'] as const) lines.once(event, () => resolve({ kind: 'left' }))
  // Before the line's own listener: the key that ends the line is none behind it.
  input.prependListener('keypress', onKey)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    lines.prompt()
    if (initial !== '') lines.write(initial)
    const typed = await promise
    if (typed.kind !== 'line') output.write(typed.kind === 'left' ? '\n' : '\n■ This question is closed.\n')
    return typed
  } finally {
    signal.removeEventListener('abort', onAbort)
    input.off('keypress', onKey)
    lines.close()
  }
}
