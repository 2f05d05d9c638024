/**
 * What is searched of one workspace by its words: the index and the files in it as they were read. Brought up to date before
 * each search, in slices and within bounds; what they leave out is told. Keeps no text of a file.
 */
import { Root } from '#specs/node/descriptor-walk.ts'
import { Mutex } from '#specs/node/semaphore.ts'
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure } from '../tool-calls/tool.ts'
import type { IndexMemoryBudget } from './index-memory-budget.ts'
import { type IndexedFile, IndexedFiles, rowsOf } from './indexed-files.ts'
import { cutText, linesOf, type Passage, textOf } from './passages.ts'
import { isFresh, isSameState, type ReadText, readText, stateOf } from './read-file.ts'
import { Slices } from './slices.ts'
import { openStore, type Store } from './store.ts'
import { type FoundFile, type LeftOut, walkWorkspace } from './walk.ts'
import { prepareText } from './words.ts'

/** Each has a default. */
export interface IndexBounds {
  /** Default 512 KiB. */
  readonly fileMaxBytes?: number
  /** Default 50,000. */
  readonly maxFiles?: number
  /** Of one search, for reading what is new or has changed; that goes on between searches. Default 45 s. */
  readonly updateMaxMs?: number
}

export interface IndexOptions {
  /** The workspace's tree, trusted itself. */
  readonly root: string
  readonly room: IndexMemoryBudget
  readonly bounds?: IndexBounds
}

export interface FindRequest {
  /** Of `matchOf`; null: every passage, in the order of the files. */
  readonly match: string | null
  /** A file or folder below the root; empty: all. */
  readonly path: string
  readonly limit: number
  /** Passages of one file. */
  readonly perFile: number
}

export interface FoundPassage extends Passage {
  readonly path: string
  readonly text: string
}

export interface Found {
  /** The best first. */
  readonly passages: readonly FoundPassage[]
  /** Files that were searched. */
  readonly files: number
  readonly leftOut: Readonly<Partial<Record<LeftOut, number>>>
}

/** Updates between two searches: files that change again and again are to be no work without end. */
const aheadMaxRounds = 10

export class WorkspaceIndex {
  readonly #options: IndexOptions
  readonly #turns = new Mutex()
  readonly #files = new IndexedFiles()
  readonly #closing = new AbortController()
  /** Ends the work between two searches. */
  #ahead = new AbortController()
  #store: Store | undefined
  #updates = 0
  #leftOut: Partial<Record<LeftOut, number>> = {}
  /** Spent by the update under way on files that are new or have changed; the look at the others is never cut short. */
  #readingMs = 0

  constructor(options: IndexOptions) {
    this.#options = options
  }

  /** Brings the index up to date and looks; a search that waits for another one ends with `signal`, too. */
  async find(request: FindRequest, signal: AbortSignal): Promise<Result<Found>> {
    const ends = AbortSignal.any([signal, this.#closing.signal])
    this.#ahead.abort()
    return await this.#turns.run(async () => {
      try {
        ends.throwIfAborted()
        this.#store ??= await openStore(this.#options.room.gatherBytes)
        const updated = await this.#update(this.#store, ends)
        if (this.#leftOut.late !== undefined) this.#goOn(this.#store)
        return updated.ok ? await this.#look(this.#store, request, ends) : updated
      } catch (error) {
        if (ends.aborted) return toolFailure('cancelled', 'The search was cancelled.')
        throw error
      }
    })
  }

  /** Goes on with what a search had no time for, until the next one comes: the model thinks meanwhile. */
  #goOn(store: Store): void {
    this.#ahead.abort()
    this.#ahead = new AbortController()
    const ends = AbortSignal.any([this.#ahead.signal, this.#closing.signal])
    const readOn = async (): Promise<void> => {
      for (let round = 0; round < aheadMaxRounds && !ends.aborted; round++) {
        const updated = await this.#update(store, ends)
        if (!updated.ok || this.#leftOut.late === undefined) return
      }
    }
    // What failed here fails the next search in the same way, which says so.
    void this.#turns.run(readOn).catch(() => undefined)
  }

  /** Gives the memory back, once the search that runs has ended. */
  async close(): Promise<void> {
    this.#closing.abort()
    await this.#turns.run(() => Promise.resolve())
    this.#store?.[Symbol.dispose]()
    this.#store = undefined
    this.#options.room.leave(this)
  }

  async #update(store: Store, signal: AbortSignal): Promise<Result<void>> {
    const { root: location, bounds = {} } = this.#options
    const { fileMaxBytes = 512 * 1024 } = bounds
    const opened = Root.open(location)
    if (!opened.ok) return opened
    using root = opened.value
    using top = root.openDirectory()
    const slices = new Slices(signal)
    const round = ++this.#updates
    this.#leftOut = {}
    this.#readingMs = 0
    store.begin()
    try {
      const isWhole = await walkWorkspace(top, {
        slices,
        fileMaxBytes,
        onFile: (file) => this.#take(file, round, fileMaxBytes, store, slices),
        onLeftOut: (reason) => this.#leave(reason),
      })
      if (!isWhole) this.#leave('room')
      else for (const file of this.#files) if (file.seenIn !== round) this.#drop(file, store)
    } finally {
      store.commit()
      this.#options.room.note(this, store.bytes)
    }
    return { ok: true, value: undefined }
  }

  #leave(reason: LeftOut): undefined {
    this.#leftOut[reason] = (this.#leftOut[reason] ?? 0) + 1
    return undefined
  }

  /** Takes a file into the index, unless it is there as it is. */
  #take(
    found: FoundFile,
    round: number,
    maxBytes: number,
    store: Store,
    slices: Slices,
  ): Promise<void> | undefined {
    const { path, stat } = found
    const known = this.#files.get(path)
    if (known !== undefined && !known.isFresh && isSameState(known.state, stateOf(stat))) {
      known.seenIn = round
      return known.leftOut === undefined ? undefined : this.#leave(known.leftOut)
    }
    if (known !== undefined) this.#drop(known, store)
    // What takes the place of something as large needs no more room.
    const isMore = known === undefined || stat.size > known.state.size
    if (isMore && !this.#hasRoom(store)) return this.#leave('room')
    if (this.#readingMs >= (this.#options.bounds?.updateMaxMs ?? 45_000)) return this.#leave('late')
    return this.#read(found, maxBytes, { round, store, slices })
  }

  async #read(
    found: FoundFile,
    maxBytes: number,
    update: { readonly round: number; readonly store: Store; readonly slices: Slices },
  ): Promise<void> {
    const startedAt = performance.now()
    const nowMs = Date.now()
    const read = readText(found, maxBytes)
    if (read?.leftOut !== undefined) this.#leave(read.leftOut)
    if (read === undefined) this.#leave('unreadable')
    else await this.#add(found.path, read, { nowMs, ...update })
    this.#readingMs += performance.now() - startedAt
  }

  #hasRoom(store: Store): boolean {
    const { bounds, room } = this.#options
    return this.#files.count < (bounds?.maxFiles ?? 50_000) && room.note(this, store.bytes)
  }

  async #add(
    path: string,
    { state, text, isAscii, leftOut }: ReadText,
    { nowMs, round, store, slices }: { nowMs: number; round: number; store: Store; slices: Slices },
  ): Promise<void> {
    const passages = text === undefined ? [] : cutText(text)
    const left = leftOut === undefined ? {} : { leftOut }
    const file = this.#files.add(
      { path, state, isFresh: isFresh(state, nowMs), ...left, seenIn: round },
      passages,
    )
    const pathWords = prepareText(path.toWellFormed())
    for (const row of rowsOf(file)) {
      const passage = passages[row - file.firstRow]?.text ?? ''
      store.add(row, pathWords, prepareText(passage, isAscii))
      if (slices.isDue) await this.#pauseIn(file, store, slices)
    }
  }

  /** A file that an end cuts through is as if it had never been read. */
  async #pauseIn(file: IndexedFile, store: Store, slices: Slices): Promise<void> {
    try {
      await slices.pause()
    } catch (error) {
      this.#drop(file, store)
      throw error
    }
  }

  #drop(file: IndexedFile, store: Store): void {
    this.#files.remove(file)
    for (const row of rowsOf(file)) store.remove(row)
  }

  async #look(store: Store, request: FindRequest, signal: AbortSignal): Promise<Result<Found>> {
    const hits = this.#files.hitsAt(
      request.match === null ? this.#files.rows() : store.find(request.match),
      request,
    )
    const texts = new Map<IndexedFile, readonly string[] | null>()
    const opened = Root.open(this.#options.root)
    if (!opened.ok) return opened
    using root = opened.value
    const slices = new Slices(signal)
    const passages: FoundPassage[] = []
    for (const { file, passage } of hits) {
      if (slices.isDue) await slices.pause()
      let lines = texts.get(file)
      if (lines === undefined) {
        lines = readAgain(root, file)
        texts.set(file, lines)
      }
      // Changed or gone since the index was brought up to date: what is there now was not searched.
      if (lines !== null) passages.push({ path: file.path, ...passage, text: textOf(lines, passage) })
    }
    let files = 0
    for (const { leftOut } of this.#files) if (leftOut === undefined) files++
    return { ok: true, value: { passages, files, leftOut: { ...this.#leftOut } } }
  }
}

/** The lines of a file that is still as it was when the index took it; null where it is not. */
function readAgain(root: Root, { path, state }: IndexedFile): readonly string[] | null {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return null
  using place = located.value
  const read = readText({ directory: place.directory, name: place.name }, state.size)
  return read?.text !== undefined && isSameState(read.state, state) ? linesOf(read.text) : null
}
