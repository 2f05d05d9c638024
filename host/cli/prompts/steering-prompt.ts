/**
 * A person at the terminal who wants to say something while a run is shown: Enter opens a prompt for a message or a pause.
 * Nothing is sent by a key alone, and a question of the run takes the prompt's place.
 */

import { errorMessage } from '#specs/errors.ts'
import type { RunHandle } from '../../control/run-handle.ts'
import type { Io } from '../io.ts'
import type { ProgressView } from '../render/progress.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { choose, write } from './ask.ts'
import { captureInput, collectKeys, plainText, type SettleIo, type TakenKeys } from './terminal-input.ts'

/** What the person can do to the run. */
type SteeredRun = Pick<RunHandle, 'cancelAgent' | 'steer' | 'pause' | 'resume'>

/** How long the terminal may take to hand over what was typed behind an Enter. */
const settleMs = 40
/** Characters of what was typed that stand in the status line. */
const shownChars = 24

const person = 'the person at the terminal'

export class SteeringPrompt implements Disposable {
  readonly #io: Io
  readonly #view: ProgressView
  readonly #run: SteeredRun
  readonly #onClosed: () => void
  readonly #quiet: Pick<SettleIo, 'quietMs'>
  #keys: TakenKeys | undefined
  #typed = ''
  /** What {@link keep} returned last. */
  #told = ''
  #isPausing = false
  #isOver = false
  #open: { readonly closed: Promise<void>; readonly withdrawal: AbortController } | undefined

  /** @param onClosed called when a prompt is gone and the screen is free */
  constructor(
    io: Io,
    view: ProgressView,
    run: SteeredRun,
    onClosed: () => void,
    quiet: Pick<SettleIo, 'quietMs'> = {},
  ) {
    this.#io = io
    this.#view = view
    this.#run = run
    this.#onClosed = onClosed
    this.#quiet = quiet
    this.setPausing(false)
    this.listen()
  }

  /** Whether a prompt has the screen. */
  get isOpen(): boolean {
    return this.#open !== undefined
  }

  /** The agent was paused or resumed. */
  setPausing(isPausing: boolean): void {
    this.#isPausing = isPausing
    this.#offer()
  }

  /**
   * The run is being cancelled, or shown quietly: there is nothing more to say to its agent. Keys are still taken, so
   * that none is echoed.
   */
  end(): void {
    this.#isOver = true
    this.#typed = ''
    this.#offer()
  }

  /**
   * Keys typed for a question that was not there yet belong to the message that was begun.
   * @returns the message; empty when it was returned before
   */
  keep(keys: string): string {
    if (this.#isOver) return ''
    this.#typed += keys.replace(/[\r\n]+/g, ' ')
    const { unsent } = this
    if (unsent === this.#told && plainText(keys).trim() === '') return ''
    this.#told = unsent
    return unsent
  }

  /** A message that was begun and not sent. */
  get unsent(): string {
    return plainText(this.#typed).trim()
  }

  /** Takes what is typed from now on; a message that was begun continues. */
  listen(): void {
    this.#keys?.handOver()
    this.#offer()
    this.#keys = captureInput(this.#io.stdin, (keys) => this.#take(keys))
  }

  /** The terminal is for a question, which takes the keys next: none is echoed in between. */
  mute(): void {
    this.#keys?.handOver()
    this.#keys = undefined
  }

  /** Takes an open prompt back; what was typed in it is not sent, but kept. */
  async withdraw(): Promise<void> {
    this.#open?.withdrawal.abort()
    await this.#open?.closed
  }

  [Symbol.dispose](): void {
    this.#keys?.[Symbol.dispose]()
    this.#view.offer('')
  }

  /** What was typed stands at the end of the status line, for the terminal does not show it. */
  #offer(): void {
    if (this.#isOver) {
      this.#view.offer('')
      return
    }
    const typed = plainText(this.#typed)
    const shown = typed === '' ? '' : ` “${sanitizeLine(typed.slice(-shownChars), shownChars * 2)}”`
    this.#view.offer(`Enter: message${shown}, ${this.#isPausing ? 'resume' : 'pause'}`)
  }

  #take(keys: string): void {
    if (this.#isOver) return
    this.#typed += keys
    const isLine = /[\r\n]/.test(this.#typed)
    if (!isLine) this.#offer()
    if (!isLine || this.isOpen) return
    const typed = this.#typed
    this.#typed = ''
    this.mute()
    const withdrawal = new AbortController()
    const closed = this.#converse(typed, withdrawal.signal).then(() => {
      this.#open = undefined
      this.#view.resume()
      this.#onClosed()
      this.listen()
    })
    this.#open = { closed, withdrawal }
  }

  async #converse(keys: string, signal: AbortSignal): Promise<void> {
    this.#view.pause()
    // An Enter too many would send what is only offered to be sent.
    const typed = plainText(keys + (await collectKeys(this.#io.stdin, settleMs, signal)))
    const io = {
      input: this.#io.stdin,
      output: this.#io.stdout,
      signal,
      onWithdrawn: (line: string) => void this.keep(line),
      keepTyped: (more: string) => this.keep(more),
      ...this.#quiet,
    }
    let draft = typed.trim()
    let isTyped = false
    const wanted =
      draft !== ''
        ? 'message'
        : await choose(
            io,
            this.#isPausing ? 'What now?' : 'The agent keeps working. What now?',
            [
              { value: 'message', label: 'send the agent a message' },
              this.#isPausing
                ? { value: 'resume', label: 'resume the agent' }
                : { value: 'pause', label: 'pause the agent before its next step' },
              { value: 'nothing', label: 'nothing' },
            ],
            'message',
            (text) => {
              draft = text
              isTyped = true
              return 'message'
            },
          )
    if (wanted === 'pause') this.#report(this.#run.pause({ by: person }))
    if (wanted === 'resume') this.#report(this.#run.resume({ by: person }))
    if (wanted !== 'message') return
    // Lines pasted behind it are part of the message; their line ends send nothing.
    const behind = isTyped ? await collectKeys(this.#io.stdin, settleMs, signal) : ''
    draft = plainText(`${draft} ${this.#typed} ${behind}`).trim()
    this.#typed = ''
    const text = await write(io, 'What should the agent know? (Enter sends, Esc discards)', draft)
    if (text !== null && text.trim() !== '') this.#send(text.trim())
  }

  /** `@PATH TEXT` is for one sub-agent; `@PATH /cancel REASON` cancels it. */
  #send(text: string): void {
    const [, to, words = ''] = /^@([A-Za-z0-9_/-]+)(?:\s+(.*))?$/s.exec(text) ?? []
    const cancel = /^\/cancel(?:\s+(.*))?$/s.exec(words)
    if (to === undefined) this.#report(this.#run.steer(text, { by: person }), text)
    else if (cancel !== null)
      this.#report(this.#run.cancelAgent(to, { by: person, reason: cancel[1] ?? '' }), text)
    else if (words === '') this.#refuse(`the message to ${sanitizeLine(to)} is empty`, text)
    else this.#report(this.#run.steer(words, { by: person, to }), text)
  }

  /** The run's own events say that it worked. */
  #report(done: Promise<void>, text = ''): void {
    done.catch((error: unknown) => this.#refuse(sanitizeLine(errorMessage(error)), text))
  }

  /** What was typed can be corrected and sent again. */
  #refuse(problem: string, text: string): void {
    this.#view.lines([`Not done: ${problem}`])
    this.#typed = `${text}${this.#typed === '' ? '' : ` ${this.#typed}`}`
    this.#offer()
  }
}
