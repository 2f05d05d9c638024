/**
 * Reads a person's terminal: single keys that are not echoed, keys typed before a question, and whole lines; and lends it to a
 * program in a VM. Gives the terminal back as it was, however that ends.
 */
import { createInterface, type Key } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { stripVTControlCharacters } from 'node:util'
import { sanitizeLine } from '../render/sanitize.ts'

type TerminalInput = Readable & { isTTY?: boolean; setRawMode?: (isRaw: boolean) => unknown }
type TerminalOutput = Writable & { isTTY?: boolean; columns?: number; rows?: number }

/** Control characters that a terminal makes signals of, where it does not hand over each key. */
const signals: Readonly<Record<string, NodeJS.Signals>> = {
  '\u0003': 'SIGINT',
  '\u001c': 'SIGQUIT',
  '\u001a': 'SIGTSTP',
}

/** Disposed, it gives the terminal back as it was, paused. */
export interface TakenKeys extends Disposable {
  /** Leaves the terminal as it is for whoever takes the keys next: given back in between, it would show those of that moment. */
  handOver(): void
}

/** @param onKeys what was typed, but for those keys */
export function captureInput(input: TerminalInput, onKeys: (keys: string) => void): TakenKeys {
  const isTerminal = input.isTTY === true && input.setRawMode !== undefined
  const setRaw = (isRaw: boolean): void => {
    if (isTerminal) input.setRawMode?.(isRaw)
  }
  const onContinue = (): void => setRaw(true)
  // A character can come in two pieces.
  const decoder = new StringDecoder('utf8')
  const onData = (chunk: Uint8Array | string): void => {
    let keys = ''
    for (const key of typeof chunk === 'string' ? chunk : decoder.write(Buffer.from(chunk))) {
      const signal = signals[key]
      if (signal === undefined || !isTerminal) keys += key
      else raise(signal, setRaw)
    }
    if (keys !== '') onKeys(keys)
  }
  setRaw(true)
  // Who was stopped finds the terminal as a shell left it.
  process.on('SIGCONT', onContinue)
  input.on('data', onData)
  input.resume()
  let isTaken = true
  const handOver = (): void => {
    isTaken = false
    process.off('SIGCONT', onContinue)
    input.off('data', onData)
    input.pause()
  }
  return {
    handOver,
    [Symbol.dispose]: () => {
      if (!isTaken) return
      handOver()
      setRaw(false)
    },
  }
}

function raise(signal: NodeJS.Signals, setRaw: (isRaw: boolean) => void): void {
  if (signal === 'SIGINT') {
    process.kill(process.pid, signal)
    return
  }
  // The shell that takes over needs its terminal; as the terminal itself would, the whole job is stopped.
  setRaw(false)
  process.kill(0, signal)
}

/** A line as it was typed key by key: a backspace takes the last character back, Ctrl-U all, Ctrl-W the last word. */
export function editLine(keys: string): string {
  let line = ''
  for (const key of keys) {
    if (key === '\u007f' || key === '\b') line = [...line].slice(0, -1).join('')
    else if (key === '\u0015') line = ''
    else if (key === '\u0017') line = line.replace(/\S*\s*$/, '')
    else line += key
  }
  return line
}

/** The text of keys as one line, without the keys that write nothing; a line end is a blank. */
export function plainText(keys: string): string {
  return stripVTControlCharacters(editLine(keys.replace(/[\r\n]+/g, ' '))).replace(/\p{Cc}/gu, '')
}

/** Longer than the gaps between the keys of somebody who is typing. */
const quietMs = 1_000
/** Characters of what was typed that are shown. */
const shownChars = 200

export interface SettleIo extends LineIo {
  /** Without a key, before an answer counts; absent: a second. */
  readonly quietMs?: number
  /**
   * Takes the keys that came before the question could be answered.
   * @returns what is kept for later, empty when it was returned before; absent: nothing is kept
   */
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
export async function collectKeys(
  input: TerminalInput,
  waitMs: number,
  signal: AbortSignal,
): Promise<string> {
  if (input.isTTY !== true || input.setRawMode === undefined || signal.aborted) return ''
  const { promise, resolve } = Promise.withResolvers<void>()
  let collected = ''
  // Keys may have come while this process was too busy to read them: after the wait, the terminal is read once more.
  const onQuiet = (): void => {
    const before = collected
    setImmediate(() => {
      if (collected === before) resolve()
    })
  }
  const timer = setTimeout(onQuiet, waitMs)
  const onAbort = (): void => resolve()
  signal.addEventListener('abort', onAbort, { once: true })
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

interface LineIo {
  readonly input: TerminalInput
  readonly output: TerminalOutput
  /** Withdraws the question. */
  readonly signal: AbortSignal
}

/** `left` by Esc, Ctrl-C, Ctrl-D or the end of input. */
export type TypedLine =
  /** `behind`: the keys that came with the line, as no hand types them; empty where there were none. */
  | { readonly kind: 'line'; readonly text: string; readonly behind: string }
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
  let behind = ''
  const onKey = (_: string | undefined, key: Key | undefined): void => {
    // The line feed of a line end of two characters is part of it.
    if (line !== undefined && (key?.sequence !== '\n' || behind !== '')) behind += key?.sequence ?? ''
    if (key?.name === 'escape') resolve({ kind: 'left' })
  }
  const onLine = (text: string): void => {
    line = text
    // Behind all keys that the terminal handed over at once.
    setImmediate(() => resolve({ kind: 'line', text, behind }))
  }
  const onAbort = (): void =>
    resolve({ kind: 'withdrawn', text: line === undefined ? lines.line : `${line} ${behind}` })
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

/**
 * What a program that was killed leaves on. First of all an end to a sequence that it left open, which would swallow all
 * this and what we print; then the whole screen to scroll, its letters, overwriting, wrapping, no reversed screen; main
 * screen, visible cursor, plain keys, no mouse, no paste marks, no colors.
 */
const orderly = [
  '\u0018\u001b\\',
  '\u001b7\u001b[r\u001b8\u001b(B\u000f\u001b[4l\u001b[?7h\u001b[?5l',
  '\u001b[?1047l\u001b[?25h\u001b[?1l\u001b>',
  '\u001b[?1000l\u001b[?1002l\u001b[?1003l\u001b[?1006l\u001b[?1004l\u001b[?2004l\u001b[0m',
].join('')

export class RawTerminal implements Disposable {
  readonly #input: TerminalInput
  readonly #output: TerminalOutput
  readonly #modes: string
  readonly #restore = () => this.#giveBack()
  #isLent = true

  /** @param isObeyed whether the terminal obeys what the program sends, and so may be left in an odd state */
  constructor(input: TerminalInput, output: TerminalOutput, isObeyed: boolean) {
    this.#input = input
    this.#output = output
    this.#modes = isObeyed ? orderly : ''
    // An end of this process that passes by everything else.
    process.once('exit', this.#restore)
    input.setRawMode?.(true)
  }

  get size(): { columns: number; rows: number } {
    const { columns, rows } = this.#output
    return { columns: columns || 80, rows: rows || 24 }
  }

  [Symbol.dispose](): void {
    process.off('exit', this.#restore)
    this.#giveBack()
  }

  #giveBack(): void {
    if (!this.#isLent) return
    this.#isLent = false
    this.#input.setRawMode?.(false)
    this.#input.pause()
    if (!this.#output.destroyed) this.#output.write(this.#modes)
  }
}
