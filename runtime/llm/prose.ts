/**
 * Detects quoted positions in a reply: in a fenced block, an inline code span, a quoted line, or after a quotation
 * mark. Query in ascending order, so that a text is scanned once.
 */

/** Parses the Markdown of `text` incrementally. */
export class Prose {
  readonly #text: string
  #at = 0
  #lineStart = 0
  #lineQuoted = false
  #inSpan = false
  /** The mark that opened the current fence; empty outside of one. */
  #fence = ''

  constructor(text: string) {
    this.#text = text
  }

  /** Whether the text at `at` is quoted. `at` must not decrease. */
  isQuoted(at: number): boolean {
    while (this.#at < at) this.#step()
    const before = at === 0 ? '' : this.#text.charAt(at - 1)
    return this.#fence !== '' || this.#lineQuoted || this.#inSpan || '"\'`“‘«'.includes(before || ' ')
  }

  /** Skips text before `at`, such as a call's content: its fences and quotes do not count. */
  skipTo(at: number): void {
    this.#at = Math.max(this.#at, at)
    // The rest of this line counts as its beginning, but never opens a fence.
    this.#lineStart = -1
    this.#inSpan = false
  }

  /** Restarts at `at`, as if the text began there. */
  restart(at: number): void {
    this.#at = at
    this.#lineStart = at
    this.#lineQuoted = false
    this.#inSpan = false
    this.#fence = ''
  }

  #step(): void {
    if (this.#at === this.#lineStart) this.#beginLine()
    const char = this.#text.charAt(this.#at++)
    if (char === '\n') {
      this.#lineStart = this.#at
      this.#lineQuoted = false
      this.#inSpan = false
    } else if (char === '`') this.#inSpan = !this.#inSpan
  }

  #beginLine(): void {
    const head = /^[ \t]{0,8}(`{3,20}|~{3,20}|>)/.exec(this.#text.slice(this.#at, this.#at + 32))?.[1] ?? ''
    if (this.#fence !== '') {
      if (head.startsWith(this.#fence)) this.#fence = ''
      else return
    } else if (head === '>') {
      this.#lineQuoted = true
      return
    } else if (head === '') return
    else this.#fence = head
    // A fence's own line is skipped: its marks are not spans.
    const end = this.#text.indexOf('\n', this.#at)
    this.#at = end < 0 ? this.#text.length - 1 : end
  }
}
