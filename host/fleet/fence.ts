/**
 * What a host writes of a run that it took: stored in the fleet before it counts. While the database is away, what starts an
 * effect waits. Once another host has the run, nothing more is written.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import type { ChainedLine, JournalFence } from '../journal/journal.ts'
import { isConnectionLost } from './database.ts'
import type { Hold, RunHead, RunTable } from './run-table.ts'

/** How long a line that nothing waits for may be missing. */
const collectMs = 50
/** Then those that nothing waits for wait too. */
const pendingMaxBytes = 8 * 1024 * 1024
const again = { firstMs: 50, mostMs: 1_000 }

export class FleetFence implements JournalFence {
  readonly hold: Hold
  readonly #runs: RunTable
  readonly #lost = new AbortController()
  #head: Pick<RunHead, 'seq' | 'hash'>
  /** In order, not stored yet. */
  #pending: ChainedLine[] = []
  #pendingBytes = 0
  #ends = false
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()

  /** @param head of the journal as the host took it */
  constructor(runs: RunTable, hold: Hold, head: Pick<RunHead, 'seq' | 'hash'>) {
    this.#runs = runs
    this.hold = hold
    this.#head = head
  }

  get head(): Pick<RunHead, 'seq' | 'hash'> {
    return this.#head
  }

  /** Aborted once another host has the run, or may have it. */
  get lost(): AbortSignal {
    return this.#lost.signal
  }

  isOwn(): boolean {
    return !this.#lost.signal.aborted
  }

  /** Gives the run up: another host may have it by now. */
  lose(why: string): void {
    const { runId } = this.hold
    this.#lost.abort(new CaissonError('run_busy', `this host writes nothing more to ${runId}: ${why}`))
  }

  async append(
    line: ChainedLine,
    { isBarrier, ends }: { readonly isBarrier: boolean; readonly ends: boolean },
  ): Promise<void> {
    this.#lost.signal.throwIfAborted()
    this.#pending.push(line)
    this.#pendingBytes += line.body.length
    this.#ends ||= ends
    if (isBarrier || this.#pendingBytes > pendingMaxBytes) return await this.flush()
    // What fails is known by the next line.
    this.#timer ??= setTimeout(() => void this.flush().catch(() => undefined), collectMs)
  }

  async flush(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    const flushed = this.#flushing.then(() => this.#store())
    this.#flushing = flushed.catch(() => undefined)
    await flushed
  }

  async #store(): Promise<void> {
    const lines = this.#pending
    const last = lines.at(-1)
    if (last === undefined) return
    this.#pending = []
    this.#pendingBytes = 0
    for (let waitMs = again.firstMs; ; waitMs = Math.min(2 * waitMs, again.mostMs)) {
      this.#lost.signal.throwIfAborted()
      try {
        await this.#runs.append(this.hold, lines, this.#ends)
        this.#head = last
        return
      } catch (error) {
        if (!isConnectionLost(error)) {
          this.#lost.abort(error)
          throw error
        }
      }
      // Whether they were stored is not known; the same lines are no others.
      await sleep(waitMs, undefined, { signal: this.#lost.signal }).catch(() => undefined)
    }
  }
}
