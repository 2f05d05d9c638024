/**
 * The journal of one run: hash-chained JSON lines, appended by the host alone. Written in order, made durable at
 * barriers, with its length known beside it. The chain shows accidents; it is no proof against someone who may rewrite
 * both files. Keeps room for the host's own last lines, whatever a guest fills it with.
 */

import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import type { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { writeWithDiskSpace } from '../files/disk-space.ts'
import { syncDirectory } from '../files/durable.ts'
import { RunLock } from '../workspace/run-lock.ts'
import { chainLine, type JournalPoint } from './journal-lines.ts'
import { readSummary, readWholeJournal, writeSummary } from './journal-summary.ts'
import { RunFold } from './run-outline.ts'

export { readJournal } from './journal-summary.ts'

type Entry =
  | { source: 'host'; event: HostEvent }
  | { source: 'agent'; agentPath: string; n: number; event: AgentEvent }

/** Events after which the file is flushed to the disk before anything else happens. */
const barriers: ReadonlySet<string> = new Set([
  'run-start',
  'approval-request',
  'approval-decision',
  // The effect of a host's tool is outside of the VM: its intent has to be known after any crash.
  'host-tool-start',
  'notes-decide',
  'vm-kept',
  'changes-ready',
  'apply-start',
  'apply-end',
  'undo-start',
  'undo-end',
  'run-end',
])

/** Ends of what was begun, and what a person does after the run. A guest cannot cause more of them than it caused beginnings. */
const alwaysFit: ReadonlySet<string> = new Set([
  'approval-decision',
  'host-tool-end',
  'notes-decide',
  'cancel-request',
  'vm-kept',
  'vm-end',
  'changes-ready',
  'apply-start',
  'apply-end',
  'undo-start',
  'undo-end',
  'run-end',
])

/** Bytes after which the summary is written anew without a barrier: a list reads no more than these of any journal. */
const checkpointBytes = 4 * 1024 * 1024

export interface JournalOptions {
  readonly runId: string
  readonly path: string
  /** The folder of locks: the run's is held for as long as the journal is open. */
  readonly locks: string
  /** The clock, ms since 1970. */
  readonly now?: () => number
  /** Absent: those of the protocol. */
  readonly bounds?: JournalBounds
}

export interface JournalBounds {
  readonly maxEvents: number
  readonly maxBytes: number
  /** Of the above, what a guest cannot use up. */
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
  /** Nobody else appends while it is held. */
  readonly lock: RunLock
  readonly #options: JournalOptions
  readonly #file: FileHandle
  readonly #fold: RunFold
  #end: JournalPoint
  /** What the summary last told of. */
  #told: JournalPoint
  /** A line may have been written in part. */
  #isTorn = false
  #tail: Promise<unknown> = Promise.resolve()
  /** Asked where the disk is full; lines that follow wait as well. Absent: `append` throws. */
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
    this.#told = end
  }

  /**
   * Opens or makes the journal; an existing one is verified first and a last line cut short by a crash is dropped.
   * @throws {CaissonError} `run_busy` while another process has it open `state_corrupted` where it is damaged
   */
  static async open(options: JournalOptions): Promise<Journal> {
    const { path: place, runId, locks } = options
    await using undo = new AsyncDisposableStack()
    const lock = undo.use(await RunLock.take(locks, runId))
    const fold = new RunFold()
    // Where there is a summary and no journal, one was lost.
    if ((await readSummary(place)) === undefined) await makeFile(place)
    const { end, tornBytes } = await readWholeJournal(place, runId, (event) => fold.next(event))
    const file = undo.use(await open(place, 'a', 0o600))
    if (tornBytes > 0) await file.truncate(end.bytes)
    // Else a crash would leave more than the summary says was all.
    if ((await readSummary(place))?.closed === true)
      await writeSummary(place, { ...end, closed: false, outline: fold.outline }, true)
    undo.move()
    return new Journal(options, lock, file, fold, end)
  }

  /** `hash` of the last line; 64 zeros before the first. */
  get head(): string {
    return this.#end.hash
  }

  /** The fold over the lines that are written. */
  get state(): RunState {
    return this.#fold.state
  }

  /**
   * Stamps, chains and writes one event; resolves once it is handed to the system, and at a barrier once it is on the disk.
   * Calls are written in the order they were made. A line that could not be written is not in the chain.
   * @throws {CaissonError} `state_corrupted` when there is no room for lines of this kind. @throws what the disk says
   */
  async append(entry: Entry): Promise<JournalEvent> {
    const written = this.#tail.then(() => writeWithDiskSpace(() => this.#write(entry), this.waitForDiskSpace))
    this.#tail = written.catch(() => undefined)
    return await written
  }

  async #write(entry: Entry): Promise<JournalEvent> {
    const body = this.#stamp(entry)
    const { line, hash } = chainLine(body)
    const bytes = Buffer.byteLength(line) + 1
    this.#requireRoom(entry.event, bytes)
    if (this.#isTorn) await this.#file.truncate(this.#end.bytes)
    this.#isTorn = true
    await this.#file.appendFile(`${line}\n`)
    const isBarrier = barriers.has(entry.event.type)
    if (isBarrier) await this.#file.datasync()
    this.#isTorn = false
    this.#end = { seq: body.seq, bytes: this.#end.bytes + bytes, hash }
    const event: JournalEvent = { ...body, hash }
    this.#fold.next(event)
    if (isBarrier) await this.#tell()
    else if (this.#end.bytes - this.#told.bytes >= checkpointBytes) {
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

  /** After the journal is on the disk. Where this fails an older summary stands, which vouches for less. */
  async #tell(): Promise<void> {
    const summary = { ...this.#end, closed: false, outline: this.#fold.outline }
    await writeSummary(this.#options.path, summary, false).then(
      () => {
        this.#told = this.#end
      },
      () => undefined,
    )
  }

  /** @throws when the summary that says how long the journal is cannot be written */
  async close(): Promise<void> {
    await this.#tail
    try {
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

/** Where there is none. Its name is on the disk from then on. */
async function makeFile(place: string): Promise<void> {
  try {
    await (await open(place, 'ax', 0o600)).close()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return
    throw error
  }
  await syncDirectory(path.dirname(place))
}
