/**
 * What each conversation knows of the files that it has read or written: a fingerprint of their content. A change to a file
 * that became another one meanwhile is refused as `stale`, so that no agent undoes what it has not seen. Files that a
 * conversation never looked at are free to it.
 */
import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { attempt } from '#specs/node/file-error.ts'
import type { OpenFile, Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type ToolContext, toolFailure, toolSuccess } from '../tool-calls/tool.ts'

/** What a file holds, in short; `absent` where there is none. */
export type Fingerprint = `sha256:${string}` | `stat:${string}` | 'absent'

/** Larger files are known by size, time and inode alone. */
const hashMaxBytes = 8 * 1024 * 1024
/** The conversation that was quiet for longest is forgotten first; so are the files of one. */
const maxConversations = 64
const maxFiles = 10_000

/** Whose knowledge it is. */
export type Reader = Pick<ToolContext, 'runId' | 'agentPath' | 'stepId'>

/** The fingerprint of content that is at hand. */
export function fingerprintBytes(bytes: Uint8Array): Fingerprint {
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

  /** Notes what the conversation has seen at the place, or put there. */
  note(reader: Reader, place: Place, seen: Fingerprint): void {
    const files = this.#filesOf(reader)
    files.delete(place.path)
    files.set(place.path, seen)
    forgetFirst(files, maxFiles)
  }

  /** Notes the content that this conversation has just put there. */
  noteBytes(reader: Reader, place: Place, bytes: Uint8Array): void {
    this.note(reader, place, fingerprintBytes(bytes))
  }

  /**
   * Whether the place is as the conversation saw it; so it is too where it never looked. A failure is `stale`, and says
   * what to do; of a file that cannot be read the reason.
   */
  check(reader: Reader, place: Place): Result<void> {
    const seen = this.#conversations.get(keyOf(reader))?.get(place.path)
    if (seen === undefined) return toolSuccess(undefined)
    const now = fingerprintAt(place)
    if (!now.ok) return now
    return compare(place, seen, now.value)
  }

  /** As {@link check}, for content that is at hand, of at most 8 MiB. */
  checkBytes(reader: Reader, place: Place, bytes: Uint8Array): Result<void> {
    const seen = this.#conversations.get(keyOf(reader))?.get(place.path)
    if (seen === undefined) return toolSuccess(undefined)
    return compare(place, seen, fingerprintBytes(bytes))
  }

  /** What was known of a path, or of all below it, is known of another from now on. */
  move(reader: Reader, from: string, to: string): void {
    const files = this.#filesOf(reader)
    for (const [path, seen] of [...files]) {
      if (path !== from && !path.startsWith(`${from}/`)) continue
      files.delete(path)
      files.set(to + path.slice(from.length), seen)
    }
  }

  /** Nothing is known any more of what was below a directory. */
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

/** What is there now; what is no file has nothing of a file that was read. */
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
