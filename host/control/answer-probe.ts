/**
 * Asks a host process again and again whether it answers on its control socket. The kernel accepts connections for a
 * process that is stopped, so a silent watch alone says nothing.
 */
import { askControl, nextFrame } from './client.ts'

interface AnswerProbeOptions {
  /** The control socket. */
  readonly path: string
  /** Time from an answer to the next question. Absent: 2 s. */
  readonly everyMs?: number
  /** Time without an answer until {@link onSilent}. Absent: 4 s. */
  readonly lateMs?: number
  /** Called once for each silence. @param since when the process was asked, ms since 1970 */
  readonly onSilent: (since: number) => void
  /** Called when it answers after a silence. */
  readonly onAnswer: () => void
}

export class AnswerProbe implements Disposable {
  readonly #options: AnswerProbeOptions
  readonly #over = new AbortController()
  #timer: NodeJS.Timeout | undefined

  constructor(options: AnswerProbeOptions) {
    this.#options = options
    this.#wait()
  }

  [Symbol.dispose](): void {
    this.#over.abort()
    clearTimeout(this.#timer)
  }

  #wait(): void {
    this.#timer = setTimeout(() => {
      // Of a process that is gone the watch learns itself.
      this.#ask().catch(() => this[Symbol.dispose]())
    }, this.#options.everyMs ?? 2_000)
    this.#timer.unref()
  }

  async #ask(): Promise<void> {
    const { path, lateMs = 4_000, onSilent, onAnswer } = this.#options
    const since = Date.now()
    let isSilent = false
    const late = setTimeout(() => {
      isSilent = true
      onSilent(since)
    }, lateMs)
    late.unref()
    const { signal } = this.#over
    try {
      // Whatever it answers, it answers.
      const stream = await askControl(path, { op: 'vm/info' })
      const leave = () => stream.destroy('left')
      signal.addEventListener('abort', leave, { once: true })
      if (signal.aborted) leave()
      await nextFrame(stream).finally(() => {
        signal.removeEventListener('abort', leave)
        stream.end()
      })
    } finally {
      clearTimeout(late)
    }
    if (signal.aborted) return
    if (isSilent) onAnswer()
    this.#wait()
  }
}
