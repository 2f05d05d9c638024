/**
 * Text index of one workspace with its files as they were read. Updated before each search, in time slices and within
 * limits; results report what the limits left out. Stores no file text.
 */
import { Root } from '#specs/node/descriptor-walk.ts'
import { Mutex } from '#specs/node/semaphore.ts'
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure } from '../tool-calls/tool.ts'
import type { IndexMemoryBudget } from './index-memory-budget.ts'
import { type IndexedFile, IndexedFiles, rowsOf } from './indexed-files.ts'
import { cutText, indexLines, type Passage, passageText } from './passages.ts'
import { type IndexedText, isFresh, isUnchanged, readIndexedText, stateOf } from './read-file.ts'
import { openStore, type Store } from './store.ts'
import { type FoundFile, type SearchLeftOut, Slices, walkWorkspace } from './walk.ts'
import { prepareText } from './words.ts'

/** Limits, each with a default. */
export interface IndexBounds {
  /** Maximum file size. Default 512 KiB. */
  readonly fileMaxBytes?: number
  /** Maximum number of files. Default 50,000. */
  readonly maxFiles?: number
  /** Time per search for reading new or changed files; reading continues between searches. Default 45 s. */
  readonly updateMaxMs?: number
}

interface IndexOptions {
  /** The workspace's tree, trusted itself. */
  readonly root: string
  readonly room: IndexMemoryBudget
  readonly bounds?: IndexBounds
}

interface FindRequest {
  /** Expression from `matchOf`; null: every passage, in file order. */
  readonly match: string | null
  /** A file or folder below the root; empty: all. */
  readonly path: string
  readonly limit: number
  /** Maximum passages of one file. */
  readonly perFile: number
}

export interface FoundPassage extends Passage {
  readonly path: string
  readonly text: string
}

interface Found {
  /** Best first. */
  readonly passages: readonly FoundPassage[]
  /** Number of files searched. */
  readonly files: number
  readonly leftOut: Readonly<Partial<Record<SearchLeftOut, number>>>
}

/** Maximum updates between two searches, so that constantly changing files do not cause endless work. */
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
  #leftOut: Partial<Record<SearchLeftOut, number>> = {}
  /** Time that the current update has spent on new or changed files; checking the others is never cut short. */
  #readingMs = 0

  constructor(options: IndexOptions) {
    this.#options = options
  }

  /** Updates the index and searches; a search that waits for another one also ends with `signal`. */
  async find(request: FindRequest, signal: AbortSignal): Promise<Result<Found>> {
    const ends = AbortSignal.any([signal, this.#closing.signal])
    this.#ahead.abort()
    return await this.#turns.run(async () => {
      try {
        ends.throwIfAborted()
        this.#store ??= await openStore(this.#options.room.gatherBytes)
        const updated = await this.#update(this.#store, ends)
        if (this.#leftOut.late !== undefined) this.#resume(this.#store)
        return updated.ok ? await this.#look(this.#store, request, ends) : updated
      } catch (error) {
        if (ends.aborted) return toolFailure('cancelled', 'The search was cancelled.')
        throw error
      }
    })
  }

  /** Continues unfinished updates until the next search, while the model thinks. */
  #resume(store: Store): void {
    this.#ahead.abort()
    this.#ahead = new AbortController()
    const ends = AbortSignal.any([this.#ahead.signal, this.#closing.signal])
    const readOn = async (): Promise<void> => {
      for (let round = 0; round < aheadMaxRounds && !ends.aborted; round++) {
        const updated = await this.#update(store, ends)
        if (!updated.ok || this.#leftOut.late === undefined) return
      }
    }
    // An error here recurs in the next search, which reports it.
    void this.#turns.run(readOn).catch(() => undefined)
  }

  /** Frees the memory once the current search has ended. */
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

  #leave(reason: SearchLeftOut): undefined {
    this.#leftOut[reason] = (this.#leftOut[reason] ?? 0) + 1
    return undefined
  }

  /** Adds a file to the index unless its current state is there. */
  #take(
    found: FoundFile,
    round: number,
    maxBytes: number,
    store: Store,
    slices: Slices,
  ): Promise<void> | undefined {
    const { path, stat } = found
    const known = this.#files.get(path)
    if (known !== undefined && !known.isFresh && isUnchanged(known.state, stateOf(stat))) {
      known.seenIn = round
      return known.leftOut === undefined ? undefined : this.#leave(known.leftOut)
    }
    if (known !== undefined) this.#drop(known, store)
    // A replacement of the same size needs no extra memory.
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
    const read = readIndexedText(found, maxBytes)
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
    { state, text, isAscii, leftOut }: IndexedText,
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

  /** A file whose reading is interrupted counts as unread. */
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
      // Changed or deleted since the update: its current content was not searched.
      if (lines !== null) passages.push({ path: file.path, ...passage, text: passageText(lines, passage) })
    }
    let files = 0
    for (const { leftOut } of this.#files) if (leftOut === undefined) files++
    return { ok: true, value: { passages, files, leftOut: { ...this.#leftOut } } }
  }
}

/** The lines of a file that is unchanged since indexing; null otherwise. */
function readAgain(root: Root, { path, state }: IndexedFile): readonly string[] | null {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return null
  using place = located.value
  const read = readIndexedText({ directory: place.directory, name: place.name }, state.size)
  return read?.text !== undefined && isUnchanged(read.state, state) ? indexLines(read.text) : null
}
