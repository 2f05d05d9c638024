/**
 * What a host writes of a run that it took: stored in the fleet before it counts. While the database is away, what starts an
 * effect waits. Once another host has the run, nothing more is written.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import type { ChainedLine, FencedLine, JournalFence } from '../journal/journal.ts'
import { isConnectionLost } from './database.ts'
import type { Hold, RunHead, RunTable } from './run-table.ts'

/** How long a line that nothing waits for may be missing. */
const collectMs = 50
/** Then those that nothing waits for wait too. */
const pendingMaxBytes = 8 * 1024 * 1024
const again = { firstMs: 50, mostMs: 1_000 }

/** In order, and what they say besides. */
interface Pending {
  readonly lines: ChainedLine[]
  /** Whether the last one ends the run. */
  ends: boolean
  /** What another host needs to continue from them. Undefined: as before. */
  files: unknown
}

const noLines = (): Pending => ({ lines: [], ends: false, files: undefined })

export class FleetFence implements JournalFence {
  readonly hold: Hold
  readonly #runs: RunTable
  readonly #storeFiles: ((checkpointId: string | null) => Promise<unknown>) | undefined
  readonly #lost = new AbortController()
  #head: Pick<RunHead, 'seq' | 'hash'>
  /** Not stored yet. */
  #pending = noLines()
  #pendingBytes = 0
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()

  /**
   * @param head of the journal as the host took it
   * @param storeFiles stores what another host needs to continue from a checkpoint, or from the beginning (null), and
   *   lists it. Absent: nothing is stored
   */
  constructor(
    runs: RunTable,
    hold: Hold,
    head: Pick<RunHead, 'seq' | 'hash'>,
    storeFiles?: (checkpointId: string | null) => Promise<unknown>,
  ) {
    this.#runs = runs
    this.#storeFiles = storeFiles
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

  async append(line: ChainedLine, { event, isBarrier }: FencedLine): Promise<void> {
    this.#lost.signal.throwIfAborted()
    // The line says that another host can continue from here: so its files are there first.
    const moment =
      event.type === 'checkpoint' ? event.checkpointId : event.type === 'run-start' ? null : undefined
    const files = moment === undefined ? undefined : await this.#storeFiles?.(moment)
    this.#lost.signal.throwIfAborted()
    this.#pending.lines.push(line)
    this.#pending.files = files ?? this.#pending.files
    this.#pending.ends ||= event.type === 'run-end'
    this.#pendingBytes += line.body.length
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
    // What comes while these are tried again counts with the next ones alone.
    const { lines, ends, files } = this.#pending
    const last = lines.at(-1)
    if (last === undefined) return
    this.#pending = noLines()
    this.#pendingBytes = 0
    for (let waitMs = again.firstMs; ; waitMs = Math.min(2 * waitMs, again.mostMs)) {
      this.#lost.signal.throwIfAborted()
      try {
        await this.#runs.append(this.hold, lines, { ends, files })
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
