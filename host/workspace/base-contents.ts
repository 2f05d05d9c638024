/**
 * Keeps what went into the VM of the text files that a run changed, so that a conflict can be merged three ways. Copied
 * from the workspace disk; a file that is binary or large is not kept.
 */
import { hash } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { ChangeSet } from './change-set.ts'
import type { Manifest } from './manifest.ts'
import { isBinary } from './review/review.ts'
import { readErofsFile } from './scan/erofs.ts'
import { Turns } from './yield-turns.ts'

const FILE_MAX_BYTES = 1024 * 1024
const TOTAL_MAX_BYTES = 64 * 1024 * 1024

/** Folder of a run that holds them. */
export const basesOf = (runDirectory: string) => path.join(runDirectory, 'base')

/** Reads the content that a file had before; undefined if it is not known. Throws the system's error. */
export type ReadBefore = (path: string, sha256: string) => Buffer | undefined

interface KeptFrom {
  readonly readBefore: ReadBefore
  /** What went into the VM. */
  readonly manifest: Manifest
  readonly changes: ChangeSet
  readonly runDirectory: string
}

/** Throws the system's error; what was kept until then stays. */
export async function keepBases({ readBefore, manifest, changes, runDirectory }: KeptFrom): Promise<void> {
  const folder = basesOf(runDirectory)
  const turns = new Turns()
  let total = 0
  for (const { kind, path: name } of changes.entries.values()) {
    if (turns.isDue) await turns.give()
    const entry = manifest.entries.get(name)
    if (kind !== 'file' || entry?.kind !== 'file') continue
    if (entry.size > FILE_MAX_BYTES || total + entry.size > TOTAL_MAX_BYTES) continue
    const content = readBefore(name, entry.sha256)
    if (content === undefined || isBinary(content) || hash('sha256', content) !== entry.sha256) continue
    if (total === 0) mkdirSync(folder, { recursive: true, mode: 0o700 })
    writeFileSync(path.join(folder, entry.sha256), content, { mode: 0o600 })
    total += content.length
  }
}

/** Reads from a workspace disk. @param fileNids inode numbers on it, by path */
export function readFromDisk(disk: number, fileNids: ReadonlyMap<string, number>): ReadBefore {
  return (name) => {
    const nid = fileNids.get(name)
    return nid === undefined ? undefined : readErofsFile(disk, nid)
  }
}

/** The content with this digest; undefined if it was not kept, or is damaged. */
export function readBase(runDirectory: string, sha256: string): Buffer | undefined {
  try {
    const content = readFileSync(path.join(basesOf(runDirectory), sha256))
    return hash('sha256', content) === sha256 ? content : undefined
  } catch {
    return undefined
  }
}
