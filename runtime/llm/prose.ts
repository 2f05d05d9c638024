/**
 * Which places of a reply are quoted rather than said: in a fenced block, an inline code span, a quoted line, or behind a
 * quotation mark. Asked in ascending order, so that a text is looked through once.
 */

/** Follows the Markdown of `text` from its beginning. */
export class Prose {
  readonly #text: string
  #at = 0
  #lineStart = 0
  #lineQuoted = false
  #inSpan = false
  /** The mark that opened the fence we are in; empty outside of one. */
  #fence = ''

  constructor(text: string) {
    this.#text = text
  }

  /** Whether what begins at `at` is quoted. `at` may not lie before an earlier one. */
  isQuoted(at: number): boolean {
    while (this.#at < at) this.#step()
    const before = at === 0 ? '' : this.#text.charAt(at - 1)
    return this.#fence !== '' || this.#lineQuoted || this.#inSpan || '"\'`“‘«'.includes(before || ' ')
  }

  /** Leaves out what lies before `at`, such as the content of a call: its fences and quotes are not the reply's. */
  skipTo(at: number): void {
    this.#at = Math.max(this.#at, at)
    // What follows on the same line is taken for its beginning, but never opens a fence.
    this.#lineStart = -1
    this.#inSpan = false
  }

  /** Begins anew at `at`, as if the text began there. */
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
    // The line of a fence is not looked at: its marks are not spans.
    const end = this.#text.indexOf('\n', this.#at)
    this.#at = end < 0 ? this.#text.length - 1 : end
  }
}
