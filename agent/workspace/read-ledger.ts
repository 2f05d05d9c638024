/**
 * Records a fingerprint of each file that a conversation has read or written. A change to a file that has changed
 * meanwhile is refused as `stale`, so that no agent overwrites unseen changes. Files that a conversation never read
 * are not restricted.
 */
import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { attempt } from '#specs/node/file-error.ts'
import type { OpenFile, Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type ToolContext, toolFailure, toolSuccess } from '../tool-calls/tool.ts'

/** Fingerprint of a file's content; `absent` when there is none. */
type Fingerprint = `sha256:${string}` | `stat:${string}` | 'absent'

/** Larger files are identified by size, time and inode alone. */
const hashMaxBytes = 8 * 1024 * 1024
/** Maximum conversations, and files of one; the least recently used is forgotten first. */
const maxConversations = 64
const maxFiles = 10_000

/** The conversation. */
export type Reader = Pick<ToolContext, 'runId' | 'agentPath' | 'stepId'>

/** Fingerprint of content in memory. */
function fingerprintBytes(bytes: Uint8Array): Fingerprint {
  return `sha256:${hash('sha256', bytes)}`
}

/** The fingerprint of an open file. */
export function fingerprintFile(file: OpenFile): Result<Fingerprint> {
  const { size, mtimeMs, ino } = file.stat
  if (size > hashMaxBytes) return { ok: true, value: `stat:${size}:${mtimeMs}:${ino}` }
  return attempt('cannot read the file', () => fingerprintBytes(readFileSync(file.fd)))
}

export class ReadLedger {
  readonly #conversations = new Map<string, Map<string, Fingerprint>>()

  /** Records what the conversation has seen or written at the place. */
  note(reader: Reader, place: Place, seen: Fingerprint): void {
    const files = this.#filesOf(reader)
    files.delete(place.path)
    files.set(place.path, seen)
    forgetFirst(files, maxFiles)
  }

  /** Records content that this conversation has just written. */
  noteBytes(reader: Reader, place: Place, bytes: Uint8Array): void {
    this.note(reader, place, fingerprintBytes(bytes))
  }

  /**
   * Whether the place is unchanged since the conversation saw it, or was never seen. A failure is `stale` with
   * advice, or the reason why the file cannot be read.
   */
  check(reader: Reader, place: Place): Result<void> {
    const seen = this.#conversations.get(keyOf(reader))?.get(place.path)
    if (seen === undefined) return toolSuccess(undefined)
    const now = fingerprintAt(place)
    if (!now.ok) return now
    return compare(place, seen, now.value)
  }

  /** As {@link check}, for content in memory of at most 8 MiB. */
  checkBytes(reader: Reader, place: Place, bytes: Uint8Array): Result<void> {
    const seen = this.#conversations.get(keyOf(reader))?.get(place.path)
    if (seen === undefined) return toolSuccess(undefined)
    return compare(place, seen, fingerprintBytes(bytes))
  }

  /** Moves the records of a path and everything below it to another path. */
  move(reader: Reader, from: string, to: string): void {
    const files = this.#filesOf(reader)
    for (const [path, seen] of [...files]) {
      if (path !== from && !path.startsWith(`${from}/`)) continue
      files.delete(path)
      files.set(to + path.slice(from.length), seen)
    }
  }

  /** Forgets everything below a directory. */
  forgetBelow(reader: Reader, directory: string): void {
    const files = this.#filesOf(reader)
    for (const path of [...files.keys()]) if (path.startsWith(`${directory}/`)) files.delete(path)
  }

  #filesOf(reader: Reader): Map<string, Fingerprint> {
    const key = keyOf(reader)
    const files = this.#conversations.get(key) ?? new Map<string, Fingerprint>()
    this.#conversations.delete(key)
    this.#conversations.set(key, files)
    forgetFirst(this.#conversations, maxConversations)
    return files
  }
}

function keyOf({ runId = '', agentPath = 'root', stepId = '' }: Reader): string {
  return `${runId} ${agentPath} ${stepId}`
}

function forgetFirst<K, V>(map: Map<K, V>, maxSize: number): void {
  const [first] = map.keys()
  if (map.size > maxSize && first !== undefined) map.delete(first)
}

/** Current fingerprint; an entry that is not a file never matches one. */
function fingerprintAt(place: Place): Result<Fingerprint> {
  const opened = place.openFile('read')
  if (!opened.ok) {
    const isGone = opened.error.code === 'not_found' || opened.error.code === 'not_a_file'
    return isGone ? toolSuccess('absent') : opened
  }
  using file = opened.value
  return fingerprintFile(file)
}

function compare(place: Place, seen: Fingerprint, now: Fingerprint): Result<void> {
  if (seen === now) return toolSuccess(undefined)
  const what =
    now === 'absent'
      ? 'is gone since this conversation read it'
      : seen === 'absent'
        ? 'was not there when this conversation looked, and is now'
        : 'has changed since this conversation read it'
  return toolFailure(
    'stale',
    `${place} ${what}; by whom is not known. Nothing was done: read it again with read_file, and make the change to what is there now.`,
  )
}
