/**
 * The journal of one run: hash-chained JSON lines, written only by the host, in order, synced at barriers. The chain
 * detects accidents; it does not protect against someone who rewrites journal and summary. Reserves space for the
 * host's own last lines, whatever a guest writes.
 */

import { fstatSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import type { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { writeWithDiskSpace } from '../files/disk-space.ts'
import { syncDirectory } from '../files/durable.ts'
import { RunLock } from '../workspace/run-lock.ts'
import { markFleet, requireNoFleet } from './fleet-mark.ts'
import { chainLine, type JournalPoint } from './journal-lines.ts'
import { readSummary, readWholeJournal, writeSummary } from './journal-summary.ts'
import { alwaysFit, barriers, fencedBarriers } from './line-kinds.ts'
import { RunFold } from './run-outline.ts'

export { readJournal } from './journal-summary.ts'

type Entry =
  | { source: 'host'; event: HostEvent }
  | { source: 'agent'; agentPath: string; n: number; event: AgentEvent }

/** Bytes after which the summary is rewritten without a barrier; the most a list reads of any journal. */
const checkpointBytes = 4 * 1024 * 1024

/** A line as it is in the file, without its newline. */
export interface ChainedLine {
  readonly seq: number
  readonly prev: string
  readonly hash: string
  readonly body: string
}

/** What a fence may know of a line. */
export interface FencedLine {
  readonly event: AgentEvent | HostEvent
  /** Whether it is stored before the append resolves; else it may be stored soon. */
  readonly isBarrier: boolean
}

/** Where each line is stored besides the file, by whoever decides which process may write: a fleet. */
export interface JournalFence {
  /** Where, for people. Absent: unknown. */
  readonly place?: string
  /** `seq` and `hash` of the last line that is stored; `seq` 0: there is none. */
  readonly head: { readonly seq: number; readonly hash: string }
  /** Whether this process may still write. */
  isOwn(): boolean
  /**
   * Calls are in order. @throws {CaissonError} `run_busy` once another process has the run
   */
  append(line: ChainedLine, how: FencedLine): Promise<void>
  /** Resolves once all lines are stored, or another process has the run. */
  flush(): Promise<void>
}

export interface JournalOptions {
  readonly runId: string
  readonly path: string
  /** Folder of locks: the run's is held while the journal is open. */
  readonly locks: string
  /** The clock, ms since 1970. */
  readonly now?: () => number
  /** Absent: the limits of the protocol. */
  readonly bounds?: JournalBounds
  /** Absent: the lock alone decides who writes. */
  readonly fence?: JournalFence
}

interface JournalBounds {
  readonly maxEvents: number
  readonly maxBytes: number
  /** The part that a guest cannot use up. */
  readonly reservedEvents: number
  readonly reservedBytes: number
}

const protocolBounds: JournalBounds = {
  maxEvents: limits.runMaxEvents,
  maxBytes: limits.runMaxJournalBytes,
  reservedEvents: limits.runReservedEvents,
  reservedBytes: limits.runReservedJournalBytes,
}

export class Journal {
  /** No other process appends while it is held. */
  readonly lock: RunLock
  readonly #options: JournalOptions
  readonly #file: FileHandle
  readonly #fold: RunFold
  #end: JournalPoint
  /** Position in the last summary. */
  #summarized: JournalPoint
  /** A line may be partially written. */
  #isTorn = false
  #isClosing = false
  #tail: Promise<unknown> = Promise.resolve()
  /** Why a line was given up for want of disk space: what follows it would tell of a run that was not. */
  #withoutSpace: CaissonError | undefined
  /** Called when the disk is full; later lines wait too. Absent: `append` throws. */
  waitForDiskSpace: (() => Promise<void>) | undefined

  private constructor(
    options: JournalOptions,
    lock: RunLock,
    file: FileHandle,
    fold: RunFold,
    end: JournalPoint,
  ) {
    this.lock = lock
    this.#options = options
    this.#file = file
    this.#fold = fold
    this.#end = end
    this.#summarized = end
  }

  /**
   * Opens or creates the journal; verifies an existing one and drops an incomplete last line.
   * @throws {CaissonError} `run_busy` while another process has it open, `state_corrupted` when it is damaged
   */
  static async open(options: JournalOptions): Promise<Journal> {
    const { path: place, runId, locks, fence } = options
    if (fence === undefined) await requireNoFleet(place, runId)
    await using undo = new AsyncDisposableStack()
    const lock = undo.use(await RunLock.take(locks, runId))
    const fold = new RunFold()
    // A summary without a journal means that the journal was lost.
    if ((await readSummary(place)) === undefined) await makeFile(place)
    const { end, tornBytes } = await readWholeJournal(place, runId, (event, at) => fold.next(event, at))
    const file = undo.use(await open(place, 'a', 0o600))
    if (tornBytes > 0) await file.truncate(end.bytes)
    requireSameEnd(options, end)
    if (fence !== undefined) await markFleet(place, fence.place)
    // Otherwise a crash would leave more lines than a closed summary says.
    if ((await readSummary(place))?.closed === true)
      await writeSummary(place, { ...end, closed: false, outline: fold.outline }, true)
    undo.move()
    return new Journal(options, lock, file, fold, end)
  }

  /** `seq` of the last line; 0: there is none. */
  get seq(): number {
    return this.#end.seq
  }

  /** `hash` of the last line; 64 zeros before the first. */
  get head(): string {
    return this.#end.hash
  }

  /** The run's state after all written lines. */
  get state(): RunState {
    return this.#fold.state
  }

  /**
   * Stamps, chains and writes one event. Resolves once the system has it, and at a barrier once it is on disk. Calls
   * are written in order. A failed line is not in the chain.
   * @throws {CaissonError} `not_possible_now` once it closes, `state_corrupted` when lines of this kind are at their limit
   * @throws the disk's errors
   */
  async append(entry: Entry): Promise<JournalEvent> {
    // A line that its last summary does not count would make the journal one that somebody modified.
    if (this.#isClosing)
      throw new CaissonError('not_possible_now', `the journal of ${this.#options.runId} is closed`)
    const written = this.#tail.then(() => {
      if (this.#withoutSpace !== undefined && !alwaysFit.has(entry.event.type)) throw this.#withoutSpace
      return writeWithDiskSpace(() => this.#write(entry), this.waitForDiskSpace)
    })
    this.#tail = written.catch((error: unknown) => {
      if (hasCode(error, 'no_space')) this.#withoutSpace ??= error
    })
    return await written
  }

  async #write(entry: Entry): Promise<JournalEvent> {
    const body = this.#stamp(entry)
    const { line, hash } = chainLine(body)
    const bytes = Buffer.byteLength(line) + 1
    this.#requireRoom(entry.event, bytes)
    this.#requireOwn()
    if (this.#isTorn) await this.#file.truncate(this.#end.bytes)
    this.#isTorn = true
    await this.#file.appendFile(`${line}\n`)
    const isBarrier = barriers.has(entry.event.type)
    if (isBarrier) await this.#file.datasync()
    // Refused: the line is not in the chain, and is cut off the file again.
    await this.#options.fence?.append(
      { seq: body.seq, prev: body.prev, hash, body: line },
      { event: entry.event, isBarrier: fencedBarriers.has(entry.event.type) },
    )
    this.#isTorn = false
    this.#end = { seq: body.seq, bytes: this.#end.bytes + bytes, hash }
    const event: JournalEvent = { ...body, hash }
    this.#fold.next(event, this.#end)
    if (isBarrier) await this.#tell()
    else if (this.#end.bytes - this.#summarized.bytes >= checkpointBytes) {
      await this.#file.datasync()
      await this.#tell()
    }
    return event
  }

  #stamp(entry: Entry) {
    const { runId, now = Date.now } = this.#options
    const head = { seq: this.#end.seq + 1, at: now(), runId }
    const prev = this.#end.hash
    if (entry.source === 'host') return { ...head, source: entry.source, event: entry.event, prev }
    const { source, agentPath, n, event } = entry
    return { ...head, source, agentPath, n, event, prev }
  }

  /** Whether this process still has the run, and nobody else wrote to its journal. */
  isOwn(): boolean {
    const { size } = fstatSync(this.#file.fd)
    if (this.#options.fence?.isOwn() === false) return false
    return this.lock.isOwn() && (this.#isTorn ? size >= this.#end.bytes : size === this.#end.bytes)
  }

  /** A process that was stopped may find that another one has the run. @throws {CaissonError} `run_busy` */
  #requireOwn(): void {
    if (this.isOwn()) return
    const { runId } = this.#options
    throw new CaissonError(
      'run_busy',
      `another process has taken ${runId} over; this one writes nothing more to it`,
    )
  }

  /** @throws {CaissonError} `state_corrupted` */
  #requireRoom(event: AgentEvent | HostEvent, bytes: number): void {
    if (alwaysFit.has(event.type) || (event.type === 'hook-end' && event.point === 'after-run')) return
    const bounds = this.#options.bounds ?? protocolBounds
    const maxEvents = bounds.maxEvents - bounds.reservedEvents
    const maxBytes = bounds.maxBytes - bounds.reservedBytes
    if (this.#end.seq < maxEvents && this.#end.bytes + bytes <= maxBytes) return
    throw new CaissonError(
      'limit_reached',
      `the run's journal reached its bound of ${maxEvents} events or ${maxBytes} bytes; the rest is kept for the end of the run`,
    )
  }

  /** After the journal is on disk. On failure an older summary remains, which is still valid. */
  async #tell(): Promise<void> {
    const summary = { ...this.#end, closed: false, outline: this.#fold.outline }
    await writeSummary(this.#options.path, summary, false).then(
      () => {
        this.#summarized = this.#end
      },
      () => undefined,
    )
  }

  /** @throws when the summary with the journal's length cannot be written */
  async close(): Promise<void> {
    this.#isClosing = true
    await this.#tail
    try {
      await this.#options.fence?.flush()
      if (!this.isOwn()) return
      if (this.#isTorn) await this.#file.truncate(this.#end.bytes)
      if (this.#end.seq === 0) return
      await this.#file.datasync()
      await writeSummary(
        this.#options.path,
        { ...this.#end, closed: true, outline: this.#fold.outline },
        true,
      )
    } finally {
      await this.#file.close()
      await this.lock[Symbol.asyncDispose]()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** A file of an earlier time of this host is no part of the journal. @throws {CaissonError} `state_corrupted` */
function requireSameEnd({ runId, fence }: JournalOptions, { seq, hash }: JournalPoint): void {
  if (fence === undefined || (fence.head.seq === seq && fence.head.hash === hash)) return
  throw new CaissonError(
    'state_corrupted',
    `the journal of ${runId} on this host ends at line ${seq}, and that of the fleet at another line ${fence.head.seq}`,
  )
}

/** Creates a missing file and syncs its directory entry. */
async function makeFile(place: string): Promise<void> {
  try {
    await (await open(place, 'ax', 0o600)).close()
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return
    throw error
  }
  await syncDirectory(path.dirname(place))
}
