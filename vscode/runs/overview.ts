/** All runs and questions of the service, read again and again. Says which questions are new in this window. */
import * as vscode from 'vscode'
import type { ServiceReply } from '../../client/index.ts'
import { fromResource, type Question, untilOf } from '../../page/questions/question.ts'
import type { Session } from '../session/session.ts'

export type Run = ServiceReply<'listRuns'>['runs'][number]

const everyMs = 2_000
/** Runs that the list shows: the newest. */
const maxRuns = 200

export class Overview implements vscode.Disposable {
  readonly #session: Session
  readonly #changed = new vscode.EventEmitter<void>()
  readonly #asked = new vscode.EventEmitter<readonly Question[]>()
  readonly #known = new Set<string>()
  readonly #ending = new AbortController()
  #timer: ReturnType<typeof setTimeout> | undefined
  #reading: Promise<void> | undefined
  #seen = ''
  runs: readonly Run[] = []
  questions: readonly Question[] = []

  constructor(session: Session) {
    this.#session = session
  }

  /** Fires when something is another than before. */
  readonly onChange = this.#changed.event
  /** Fires with questions that this window has not seen. Waits, which the clock answers, are none. */
  readonly onQuestions = this.#asked.event

  /** Reads at once, and from then on. */
  readonly refresh = (): void => {
    clearTimeout(this.#timer)
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined
      if (!this.#ending.signal.aborted) this.#timer = setTimeout(this.refresh, everyMs)
    })
  }

  find(runId: string): Run | undefined {
    return this.runs.find(({ id }) => id === runId)
  }

  dispose(): void {
    this.#ending.abort()
    clearTimeout(this.#timer)
    this.#changed.dispose()
    this.#asked.dispose()
  }

  async #read(): Promise<void> {
    const { signal } = this.#ending
    const client = await this.#session.connect()
    if (client === undefined) return this.#take([], [])
    try {
      const [{ runs }, { approvals }] = await Promise.all([
        client.call('listRuns', { query: { limit: maxRuns }, signal }),
        client.call('listApprovals', { signal }),
      ])
      this.#take(runs, approvals.map(fromResource))
    } catch (error) {
      if (signal.aborted) return
      this.#session.note(error)
      // What the person saw stays until the service says otherwise.
      if (this.#session.access !== 'unreachable') this.#take([], [])
    }
  }

  #take(runs: readonly Run[], questions: readonly Question[]): void {
    if (this.#ending.signal.aborted) return
    const seen = JSON.stringify([runs, questions])
    if (seen === this.#seen) return
    this.#seen = seen
    this.runs = runs
    this.questions = questions
    this.#changed.fire()
    const fresh = questions.filter((question) => !this.#known.has(keyOf(question)))
    for (const question of fresh) this.#known.add(keyOf(question))
    const asked = fresh.filter(({ approval }) => untilOf(approval) === undefined)
    if (asked.length > 0) this.#asked.fire(asked)
  }
}

export function keyOf({ runId, approval }: Question): string {
  return `${runId} ${approval.approvalId}`
}
