/**
 * Keeps what went into the VM of the text files that a run changed, so that a conflict can be merged three ways. Copied
 * from the run's disk before it is removed; a file that is binary or large is not kept.
 */
import { hash } from 'node:crypto'
import { closeSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { openRegularSync } from '../files/regular-file.ts'
import type { ChangeSet } from './change-set.ts'
import type { Manifest } from './manifest.ts'
import { isBinary } from './review/review.ts'
import { readErofsFile } from './scan/erofs.ts'
import { Turns } from './yield-turns.ts'

const FILE_MAX_BYTES = 1024 * 1024
const TOTAL_MAX_BYTES = 64 * 1024 * 1024

const folderOf = (runDirectory: string) => path.join(runDirectory, 'base')

interface KeptFrom {
  /** Path of the workspace disk. */
  readonly disk: string
  /** Inode numbers on it, by path. */
  readonly fileNids: ReadonlyMap<string, number>
  readonly manifest: Manifest
  readonly changes: ChangeSet
  readonly runDirectory: string
}

/** Throws the system's error; what was kept until then stays. */
export async function keepBases({
  disk,
  fileNids,
  manifest,
  changes,
  runDirectory,
}: KeptFrom): Promise<void> {
  const folder = folderOf(runDirectory)
  const turns = new Turns()
  let total = 0
  const fd = openRegularSync(disk)
  try {
    for (const { kind, path: name } of changes.entries.values()) {
      if (turns.isDue) await turns.give()
      const [entry, nid] = [manifest.entries.get(name), fileNids.get(name)]
      if (kind !== 'file' || entry?.kind !== 'file' || nid === undefined) continue
      if (entry.size > FILE_MAX_BYTES || total + entry.size > TOTAL_MAX_BYTES) continue
      const content = readErofsFile(fd, nid)
      if (isBinary(content) || hash('sha256', content) !== entry.sha256) continue
      if (total === 0) mkdirSync(folder, { recursive: true, mode: 0o700 })
      writeFileSync(path.join(folder, entry.sha256), content, { mode: 0o600 })
      total += content.length
    }
  } finally {
    closeSync(fd)
  }
}

/** The content with this digest; undefined if it was not kept, or is damaged. */
export function readBase(runDirectory: string, sha256: string): Buffer | undefined {
  try {
    const content = readFileSync(path.join(folderOf(runDirectory), sha256))
    return hash('sha256', content) === sha256 ? content : undefined
  } catch {
    return undefined
  }
}
