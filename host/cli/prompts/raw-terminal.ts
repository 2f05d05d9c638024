/**
 * Lends the person's terminal to a program in a VM: every key goes there, every byte comes back. Gives it back as it was,
 * however that ends. What the program shows is obeyed by the terminal, as with any remote shell.
 */
import type { Readable, Writable } from 'node:stream'

export type TerminalInput = Readable & { isTTY?: boolean; setRawMode?: (isRaw: boolean) => unknown }
export type TerminalOutput = Writable & { isTTY?: boolean; columns?: number; rows?: number }

/**
 * What a program that was killed leaves on. First of all an end to a sequence that it left open, which would swallow all
 * this and what we print; then the whole screen to scroll, its letters, overwriting, wrapping, no reversed screen; main
 * screen, visible cursor, plain keys, no mouse, no paste marks, no colours.
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

/** The way out of a shell that does not answer: at the beginning of a line `~.` leaves, `~~` is one `~`. */
export class EscapeKeys {
  #isLineStart = true
  #isPending = false
  #hasLeft = false

  /** Whether `~.` was typed. */
  get hasLeft(): boolean {
    return this.#hasLeft
  }

  /** The keys that are for the program. */
  feed(keys: Uint8Array): Buffer {
    const passed: number[] = []
    for (const key of keys) {
      if (this.#hasLeft) break
      this.#take(key, passed)
    }
    return Buffer.from(passed)
  }

  #take(key: number, passed: number[]): void {
    const [tilde, dot, carriageReturn, lineFeed] = [0x7e, 0x2e, 0x0d, 0x0a]
    if (this.#isPending) {
      this.#isPending = false
      if (key === dot) {
        this.#hasLeft = true
        return
      }
      passed.push(tilde)
      if (key === tilde) return
    } else if (this.#isLineStart && key === tilde) {
      this.#isPending = true
      this.#isLineStart = false
      return
    }
    this.#isLineStart = key === carriageReturn || key === lineFeed
    passed.push(key)
  }
}
