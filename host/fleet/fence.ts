/**
 * What a host writes of a run that it took: stored in the fleet before it counts. While the database is away, what starts an
 * effect waits. Once another host has the run, nothing more is written.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { ChainedLine, FencedLine, JournalFence } from '../journal/journal.ts'
import type { RunFold } from '../journal/run-outline.ts'
import { BlobsGone } from './blobs.ts'
import { isConnectionLost } from './database.ts'
import type { Hold, RunHead, RunTable, StoredFile } from './run-table.ts'

/** How long a line that nothing waits for may be missing. */
const collectMs = 50
/** Then those that nothing waits for wait too. */
const pendingMaxBytes = 8 * 1024 * 1024
/** How old of what lists show may be what no line below changes. */
const listedMs = 1_000
/** A run that makes no checkpoint for so long leaves from its last one. */
export const leaveMs = 30_000
const again = { firstMs: 50, mostMs: 1_000 }

/** Lines that change what lists filter by. */
const listedTypes: ReadonlySet<string> = new Set([
  ...['run-start', 'run-resume', 'run-sleep', 'run-end', 'queue-start', 'queue-end'],
  ...['approval-request', 'approval-decision', 'checkpoint', 'changes-ready', 'apply-end', 'undo-end'],
])

/** In order, and what they say besides. */
interface Pending {
  readonly lines: ChainedLine[]
  /** Whether the last one ends the run. */
  ends: boolean
  /** What another host needs to continue from them. Undefined: as before. */
  files: MomentFiles | undefined
  /** Whether lists show something else from them on. */
  isListed: boolean
}

/** When the files of a run are stored. */
interface Moment {
  /** Null: the beginning, or the end. */
  readonly checkpointId: string | null
  readonly hasEnded: boolean
}

interface MomentFiles extends Moment {
  readonly list: readonly StoredFile[]
}

/**
 * Stores what another host needs to continue from a checkpoint, or from the beginning (null), and lists it.
 * @param hasEnded whether nothing continues from here: for those who read the run
 */
export type StoreFiles = (checkpointId: string | null, hasEnded: boolean) => Promise<readonly StoredFile[]>

const noLines = (): Pending => ({ lines: [], ends: false, files: undefined, isListed: false })

export class FleetFence implements JournalFence {
  readonly hold: Hold
  readonly #runs: RunTable
  readonly #storeFiles: StoreFiles | undefined
  readonly #lost = new AbortController()
  #head: Pick<RunHead, 'seq' | 'hash'>
  /** What lists show, up to the last line. Undefined: the host does not say. */
  #fold: RunFold | undefined
  /** Of the lines that are in it. */
  #foldedBytes = 0
  #listedAt = Number.NEGATIVE_INFINITY
  /** Not stored yet. */
  #pending = noLines()
  #pendingBytes = 0
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()
  #leaving: NodeJS.Timeout | undefined

  /**
   * @param head of the journal as the host took it
   * @param storeFiles absent: nothing is stored
   */
  constructor(runs: RunTable, hold: Hold, head: Pick<RunHead, 'seq' | 'hash'>, storeFiles?: StoreFiles) {
    this.#runs = runs
    this.#storeFiles = storeFiles
    this.hold = hold
    this.#head = head
  }

  get head(): Pick<RunHead, 'seq' | 'hash'> {
    return this.#head
  }

  get place(): string {
    return this.#runs.place
  }

  /** Aborted once another host has the run, or may have it. */
  get lost(): AbortSignal {
    return this.#lost.signal
  }

  isOwn(): boolean {
    return !this.#lost.signal.aborted
  }

  /** From now on lists show what the lines say. @param fold of the journal so far, which has so many bytes */
  list(fold: RunFold, bytes: number): void {
    this.#fold = fold
    this.#foldedBytes = bytes
  }

  /** Gives the run up: another host may have it by now. */
  lose(why: string): void {
    const { runId } = this.hold
    this.#lost.abort(new CaissonError('run_busy', `this host writes nothing more to ${runId}: ${why}`))
  }

  /** Gives the run up behind its next checkpoint, from which another host continues; after a while also without one. */
  leaveSoon(afterMs = leaveMs): void {
    this.#leaving ??= setTimeout(() => void this.#leave(), afterMs)
    this.#leaving.unref()
  }

  async append(line: ChainedLine, { event, isBarrier }: FencedLine): Promise<void> {
    this.#lost.signal.throwIfAborted()
    // The line says that another host can continue from here: so its files are there first.
    const hasEnded = event.type === 'run-end'
    const moment =
      event.type === 'checkpoint'
        ? event.checkpointId
        : event.type === 'run-start' || hasEnded
          ? null
          : undefined
    const files = moment === undefined ? undefined : await this.#filesOf({ checkpointId: moment, hasEnded })
    this.#lost.signal.throwIfAborted()
    this.#pending.lines.push(line)
    this.#pending.files = files ?? this.#pending.files
    this.#pending.ends ||= hasEnded
    this.#pending.isListed ||= listedTypes.has(event.type)
    this.#foldedBytes += Buffer.byteLength(line.body) + 1
    // This host made it of an event.
    this.#fold?.next(JSON.parse(line.body) as JournalEvent, { ...line, bytes: this.#foldedBytes })
    this.#pendingBytes += line.body.length
    if (isBarrier || this.#pendingBytes > pendingMaxBytes) {
      await this.flush()
      if (this.#leaving !== undefined && event.type === 'checkpoint') await this.#leave()
      return
    }
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

  /** Waits while the store of files is away, as lines wait for the database. */
  async #filesOf({ checkpointId, hasEnded }: Moment): Promise<MomentFiles | undefined> {
    if (this.#storeFiles === undefined) return undefined
    for (let waitMs = again.firstMs; ; waitMs = Math.min(2 * waitMs, again.mostMs)) {
      this.#lost.signal.throwIfAborted()
      try {
        return { checkpointId, hasEnded, list: await this.#storeFiles(checkpointId, hasEnded) }
      } catch (error) {
        if (!isConnectionLost(error)) throw error
      }
      await sleep(waitMs, undefined, { signal: this.#lost.signal }).catch(() => undefined)
    }
  }

  async #leave(): Promise<void> {
    clearTimeout(this.#leaving)
    await this.flush().catch(() => undefined)
    this.lose('another host continues it')
  }

  async #store(): Promise<void> {
    // What comes while these are tried again counts with the next ones alone.
    const { lines, ends, isListed } = this.#pending
    let { files } = this.#pending
    const last = lines.at(-1)
    if (last === undefined) return
    this.#pending = noLines()
    this.#pendingBytes = 0
    const isDue = isListed || performance.now() - this.#listedAt >= listedMs
    const outline = isDue ? this.#fold?.outline : undefined
    if (outline !== undefined) this.#listedAt = performance.now()
    for (let waitMs = again.firstMs; ; waitMs = Math.min(2 * waitMs, again.mostMs)) {
      this.#lost.signal.throwIfAborted()
      try {
        await this.#runs.append(this.hold, lines, { ends, files: files?.list, outline })
        this.#head = last
        return
      } catch (error) {
        if (error instanceof BlobsGone && files !== undefined) files = await this.#filesOf(files)
        else if (!isConnectionLost(error)) {
          this.#lost.abort(error)
          throw error
        }
      }
      // Whether they were stored is not known; the same lines are no others.
      await sleep(waitMs, undefined, { signal: this.#lost.signal }).catch(() => undefined)
    }
  }
}
