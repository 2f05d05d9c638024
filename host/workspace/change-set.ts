/**
 * A run's change set on the host's disk: `changes.jsonl` (entries and a final line with counts) and `changes.bin` (the
 * concatenated contents of all files). Written once on receipt, read strictly.
 */

import { createHash } from 'node:crypto'
import { readSync } from 'node:fs'
import path from 'node:path'
import { z } from 'zod'
import {
  DeletionChange,
  DirectoryChange,
  FileChange,
  LinkChange,
  ModeChange,
  UnsupportedChange,
} from '#specs/protocol/change.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Count, Sha256 } from '#specs/protocol/text.ts'
import { openRegularSync, readRegular } from '../files/regular-file.ts'
import { readCountedLines } from './counted-lines.ts'
import {
  failureOf,
  WorkspaceFailure,
  type WorkspaceResult,
  workspaceFailure,
  workspaceSuccess,
} from './workspace-error.ts'
import { Turns } from './yield-turns.ts'

/** A stored entry: a file also has its digest and the offset of its content in `changes.bin`. */
export const StoredChange = z.discriminatedUnion('kind', [
  z.strictObject({ ...FileChange.shape, sha256: Sha256, offset: Count }),
  LinkChange,
  DirectoryChange,
  ModeChange,
  DeletionChange,
  UnsupportedChange,
])
export type StoredChange = z.infer<typeof StoredChange>
export type StoredFile = Extract<StoredChange, { kind: 'file' }>
const StoredEnd = z.strictObject({ end: z.literal(true), entries: Count, contentBytes: Count })

interface ChangeSetPaths {
  readonly entries: string
  readonly contents: string
}

/** Paths of the change set in a run's directory. */
export function changeSetPaths(runDirectory: string): ChangeSetPaths {
  return {
    entries: path.join(runDirectory, 'changes.jsonl'),
    contents: path.join(runDirectory, 'changes.bin'),
  }
}

export interface ChangeSet {
  /** In the order of `comparePaths`. */
  readonly entries: ReadonlyMap<string, StoredChange>
  readonly contentBytes: number
  /** Digest of `changes.jsonl`, which contains the digests of all contents. */
  readonly sha256: string
  readonly paths: ChangeSetPaths
}

/**
 * Reads a received change set. Failures: `damaged`, `unreadable`.
 * @param sha256 the expected digest, from the run's journal. Absent: only the format is checked
 */
export async function readChangeSet(
  runDirectory: string,
  sha256?: string,
): Promise<WorkspaceResult<ChangeSet>> {
  const paths = changeSetPaths(runDirectory)
  const damaged = (why: string) =>
    workspaceFailure('damaged', `the change set ${paths.entries} was modified: ${why}; it cannot be applied`)
  try {
    const bytes = await readRegular(paths.entries)
    const digest = createHash('sha256').update(bytes).digest('hex')
    if (sha256 !== undefined && digest !== sha256) return damaged('its digest is not the one in the journal')
    const read = readCountedLines(bytes, (line) => {
      const end = StoredEnd.parse(JSON.parse(line), plainMessages)
      if (end.entries > limits.changeMaxEntries)
        return `it has ${end.entries} changes, expected at most ${limits.changeMaxEntries}`
      return { end, count: end.entries }
    })
    if (typeof read === 'string') return damaged(read)
    const { end, lines } = read
    const entries = new Map<string, StoredChange>()
    const turns = new Turns()
    for (const line of lines) {
      if (turns.isDue) await turns.give()
      const entry = StoredChange.parse(JSON.parse(line), plainMessages)
      entries.set(entry.path, entry)
    }
    if (entries.size !== end.entries) return damaged('it names a path twice')
    return workspaceSuccess({ entries, contentBytes: end.contentBytes, sha256: digest, paths })
  } catch (thrown) {
    if (thrown instanceof z.ZodError) return damaged(describeIssues(thrown, { root: 'a line of it', max: 1 }))
    if (thrown instanceof SyntaxError) return damaged(thrown.message)
    return failureOf(`reading the change set ${paths.entries}`, thrown)
  }
}

/** Opens a contents file for {@link readSlices}. Throws the system's error. */
export function openContents(file: string): number {
  return openRegularSync(file)
}

/** Reads a small range of a file. Failures: like {@link readSlices}. */
export function readWhole(fd: number, offset: number, size: number): Buffer {
  // Copied piece by piece: the next one replaces it.
  return Buffer.concat(Array.from(readSlices(fd, offset, size), (piece) => Buffer.from(piece)))
}

/**
 * Reads a range of a file in pieces; each piece is valid until the next.
 * @throws {WorkspaceFailure} `damaged` when the file is shorter
 */
export function* readSlices(fd: number, offset: number, size: number): Generator<Buffer, void, undefined> {
  const buffer = Buffer.allocUnsafe(Math.max(1, Math.min(size, 1024 * 1024)))
  for (let done = 0; done < size; ) {
    const count = readSync(fd, buffer, 0, Math.min(buffer.length, size - done), offset + done)
    if (count === 0)
      throw new WorkspaceFailure('damaged', 'stored content ends too early; it cannot be applied')
    done += count
    yield buffer.subarray(0, count)
  }
}
