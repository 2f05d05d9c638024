/** What may end a run early from outside: signals, Ctrl-C at a prompt, and a reader of our output that went away. */
import type { Writable } from 'node:stream'
import type { Run } from '../runs/run.ts'

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** The first signal to this process as an AbortSignal, while it is not disposed. */
export class StopOnSignal implements Disposable {
  readonly #stop = new AbortController()
  readonly #onSignal = (signal: NodeJS.Signals) => {
    const reason = new Error(`interrupted by ${signal}`)
    reason.name = 'AbortError'
    this.#stop.abort(reason)
  }

  /**
   * @param next what the next signal does: it ends the process, or nothing, so that work on the user's files ends between
   * two files and not within one
   */
  constructor(next: 'ends the process' | 'is ignored') {
    for (const signal of signals) process[next === 'is ignored' ? 'on' : 'once'](signal, this.#onSignal)
  }

  get signal(): AbortSignal {
    return this.#stop.signal
  }

  [Symbol.dispose](): void {
    for (const signal of signals) process.off(signal, this.#onSignal)
  }
}

export class Interrupts implements Disposable {
  readonly #run: Pick<Run, 'cancel'>
  readonly #output: Writable
  readonly #onFirst: () => void
  readonly #leave: (() => void) | undefined
  readonly #first = new AbortController()
  readonly #onSignal = (signal: NodeJS.Signals) => {
    if (signal === 'SIGHUP' && this.#leave !== undefined) this.#leave()
    else this.interrupt(signal)
  }
  /** A closed terminal sends SIGHUP and breaks the output: that is one interruption, not two. */
  readonly #onBrokenOutput = () => {
    if (this.#leave !== undefined) this.#leave()
    else if (!this.#first.signal.aborted) this.interrupt('the closing of standard output')
  }

  /**
   * Listens until disposed.
   * @param onFirst called at the first interruption, before the run is cancelled
   * @param leave called instead when the terminal or the reader is gone: the run continues elsewhere
   */
  constructor(run: Pick<Run, 'cancel'>, output: Writable, onFirst: () => void, leave?: () => void) {
    this.#run = run
    this.#output = output
    this.#onFirst = onFirst
    this.#leave = leave
    for (const signal of signals) process.on(signal, this.#onSignal)
    output.on('error', this.#onBrokenOutput)
    if (output.errored !== null) this.#onBrokenOutput()
  }

  /** Aborted at the first interruption, so that an open question is withdrawn. */
  get signal(): AbortSignal {
    return this.#first.signal
  }

  /** The first one cancels the run, every later one ends it at once. */
  interrupt(by: string): void {
    const isFirst = !this.#first.signal.aborted
    if (isFirst) {
      this.#onFirst()
      this.#first.abort()
    }
    // It has ended meanwhile, or left this process; the command says how.
    void this.#run.cancel({ by, now: !isFirst }).catch(() => undefined)
  }

  [Symbol.dispose](): void {
    for (const signal of signals) process.off(signal, this.#onSignal)
    this.#output.off('error', this.#onBrokenOutput)
  }
}
