/**
 * Writes the change set: differences between the workspace as copied in (the base) and now (the merged view), as the
 * stream of specs/protocol/change.ts. Entries that cannot be transferred are reported as `unsupported`. No tool
 * should run meanwhile; a file that changes anyway is never sent with a wrong size.
 * Compares the trees name by name. The overlay's upper directory is a hint in two ways: top-level names missing there
 * were never touched, and files in it were written. Below the top its directories mislead: opaque and redirected ones
 * look ordinary. Content always comes from the workspace, never from the hint.
 */
import { Buffer } from 'node:buffer'
import { closeSync, existsSync, fstatSync } from 'node:fs'
import type { Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { ChangeEncoder, type PathChange } from '#specs/node/change-encoder.ts'
import { Directory, type EntryKind } from '#specs/node/directory.ts'
import { failure, fileFailure } from '#specs/node/file-error.ts'
import type { Result, ToolErrorCode } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import {
  type ChangeFinding,
  type DirectoryPair,
  Examiner,
  openPair,
  readPiece,
  unsupported,
} from './examine.ts'

/** Where things are mounted in the guest. */
export const guestPaths = {
  merged: '/mnt/workspace',
  base: '/run/caisson/base',
  upper: '/run/caisson/scratch/upper',
} as const

/** A longer directory path could hold names that exceed the protocol's limit. */
export const MAX_DIRECTORY_PATH = limits.pathMaxBytes - limits.nameMaxBytes - 1
/** How long the walk runs before yielding, in milliseconds. */
const TURN_MS = 8
/** Names between two clock reads; in an emulated guest one read costs as much as reading a small file. */
const NAMES_PER_LOOK = 16
/** Chunk size for large files, in bytes. */
const PIECE_BYTES = 256 * 1024

export interface CollectOptions {
  /** The current workspace. */
  readonly merged?: string
  /** The workspace as it was copied in; missing on disk means that it was empty. */
  readonly base?: string
  /** The overlay's upper directory; missing on disk means that everything is compared. */
  readonly upper?: string
  readonly signal?: AbortSignal
  readonly maxEntries?: number
  /** Maximum bytes of content; a file that does not fit is reported as unsupported. */
  readonly maxContentBytes?: number
}

export interface CollectSummary {
  readonly entries: number
  readonly contentBytes: number
}

/**
 * Compares and writes the whole stream, including its end; leaves `sink` open. The sink must be done with a chunk
 * when it calls back: the next chunk reuses the memory.
 * @returns counts, or `cancelled`, `limit_reached`, `unavailable` (the sink ended, or a file changed while it was
 * sent), or the system's error about the directories. After a failure the stream has no end frame, so the receiver
 * detects that it is truncated.
 */
export async function collectChanges(
  sink: Writable,
  options: CollectOptions = {},
): Promise<Result<CollectSummary>> {
  const encoder = new ChangeEncoder((chunk) => writeChunk(sink, chunk))
  try {
    using merged = Directory.openTrusted(options.merged ?? guestPaths.merged)
    using base = openIfThere(options.base ?? guestPaths.base)
    using upper = base === undefined ? undefined : openIfThere(options.upper ?? guestPaths.upper)
    await new Collection(encoder, options).compare(openPair({ merged, base, upper }, '', 0))
    await encoder.end()
    return { ok: true, value: { entries: encoder.entries, contentBytes: encoder.contentBytes } }
  } catch (thrown) {
    if (thrown instanceof Stopped) return failure(thrown.code, thrown.message, thrown.code === 'unavailable')
    return fileFailure('cannot collect the change set', thrown)
  }
}

/** Leaves the walk from any depth; becomes the failed result. */
class Stopped extends Error {
  readonly code: ToolErrorCode

  constructor(code: ToolErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

class Collection {
  readonly #encoder: ChangeEncoder
  readonly #examiner = new Examiner()
  readonly #signal: AbortSignal | undefined
  readonly #maxEntries: number
  readonly #maxContentBytes: number
  #piece: Buffer | undefined
  #turnEnd = performance.now() + TURN_MS
  #names = 0

  constructor(encoder: ChangeEncoder, options: CollectOptions) {
    this.#encoder = encoder
    this.#signal = options.signal
    this.#maxEntries = options.maxEntries ?? limits.changeMaxEntries
    this.#maxContentBytes = options.maxContentBytes ?? limits.changeMaxContentBytes
  }

  async compare(pair: DirectoryPair): Promise<void> {
    const before = new Map(pair.before.map(({ name, kind }) => [name, kind]))
    const after = new Map(pair.after.map(({ name, kind }) => [name, kind]))
    const names = before.size === 0 ? [...after.keys()] : [...new Set([...after.keys(), ...before.keys()])]
    // Only at the top does a name missing in the upper directory mean that nothing below it was touched.
    const touched = pair.depth === 0 ? pair.written : undefined
    for (const name of names.sort()) {
      const was = before.get(name)
      const is = after.get(name)
      if (was === is && was !== 'other' && touched?.has(name) === false) continue
      if (++this.#names % NAMES_PER_LOOK === 0 && performance.now() > this.#turnEnd) await this.#yield()
      const finding = is === undefined ? deletion(pair.path, name) : this.#examine(pair, name, was, is)
      if (finding === undefined) continue
      // Most findings are small files; thousands of promises would cost more.
      const { large, enter } = finding
      const wait = large === undefined && enter === undefined ? this.#write(finding) : this.#take(finding)
      if (wait !== undefined) await wait
    }
  }

  #examine(
    pair: DirectoryPair,
    name: string,
    was: EntryKind | undefined,
    is: EntryKind,
  ): ChangeFinding | undefined {
    const roomBytes = this.#maxContentBytes - this.#encoder.contentBytes
    const finding = this.#examiner.examine(pair, name, was, is, roomBytes)
    if (finding?.entry?.kind !== 'file' || finding.entry.size <= roomBytes) return finding
    if (finding.large !== undefined) closeSync(finding.large.fd)
    return unsupported(
      finding.entry.path,
      `too large: the change set may have ${this.#maxContentBytes} bytes of content`,
    )
  }

  /** A finding that holds descriptors. */
  async #take({ entry, large, enter }: ChangeFinding): Promise<void> {
    try {
      const isTooDeep =
        enter !== undefined && (enter.depth > limits.changeMaxDepth || enter.path.length > MAX_DIRECTORY_PATH)
      if (isTooDeep) return await this.#write(unsupported(enter.path, 'it is nested too deep'))
      await this.#write({ entry })
      if (large !== undefined && entry !== undefined) await this.#sendLarge(large, entry.path)
      if (enter !== undefined) await this.compare(enter)
    } finally {
      if (large !== undefined) closeSync(large.fd)
      for (const directory of [enter?.merged, enter?.base, enter?.upper]) directory?.[Symbol.dispose]()
    }
  }

  #write({ entry, bytes }: { entry?: PathChange | undefined; bytes?: Buffer }): Promise<void> | undefined {
    if (entry === undefined) return undefined
    if (this.#encoder.entries >= this.#maxEntries) {
      throw new Stopped('limit_reached', `the change set has more than ${this.#maxEntries} entries`)
    }
    return this.#encoder.entry(entry, bytes)
  }

  async #sendLarge({ fd, stat }: NonNullable<ChangeFinding['large']>, path: string): Promise<void> {
    this.#piece ??= Buffer.allocUnsafeSlow(PIECE_BYTES)
    let sent = 0
    while (sent < stat.size) {
      const piece = readPiece(fd, this.#piece.subarray(0, stat.size - sent), sent)
      if (piece.length === 0) break
      await this.#encoder.content(piece)
      sent += piece.length
      if (performance.now() > this.#turnEnd) await this.#yield()
    }
    const after = fstatSync(fd)
    if (sent === stat.size && after.size === stat.size && after.mtimeMs === stat.mtimeMs) return
    throw new Stopped(
      'unavailable',
      `"${path}" changed while it was sent; collect again when nothing writes to it`,
    )
  }

  async #yield(): Promise<void> {
    await nextTurn()
    if (this.#signal?.aborted) throw new Stopped('cancelled', 'collecting the change set was cancelled')
    this.#turnEnd = performance.now() + TURN_MS
  }
}

/** Writes one chunk and waits until the sink is done with it. Rejects when the sink ends or fails. */
function writeChunk(sink: Writable, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    if (sink.destroyed || sink.writableEnded) return reject(sinkEnded(sink.errored))
    const settle = (error?: Error | null): void => {
      sink.off('close', settle).off('error', settle)
      if (error || sink.destroyed) reject(sinkEnded(error ?? sink.errored))
      else resolve()
    }
    // A write pending when a stream is destroyed may never call back.
    sink.on('close', settle).on('error', settle)
    sink.write(chunk, settle)
  })
}

function sinkEnded(cause: Error | null): Stopped {
  return new Stopped(
    'unavailable',
    `the receiver of the change set went away${cause ? `: ${cause.message}` : ''}`,
  )
}

function deletion(parent: string, name: string): ChangeFinding {
  return { entry: { kind: 'deleted', path: parent === '' ? name : `${parent}/${name}` } }
}

/** Opens the directory; nothing when it cannot be opened: the base of an empty workspace, or a missing hint. */
export function openIfThere(path: string): Directory | undefined {
  return existsSync(path) ? Directory.openTrusted(path) : undefined
}
