// One thing that Caisson keeps on disk, and which of them a cleaning frees. Touches no file but to measure it.

import { lstat, readdir } from 'node:fs/promises'
import path from 'node:path'

export const keptKinds = [
  'image',
  'agent',
  'template',
  'download',
  'probe',
  'leftover',
  'moments',
  'run',
  'unknown',
] as const
export type KeptKind = (typeof keptKinds)[number]

export interface Kept {
  readonly kind: KeptKind
  /** Key, digest, id or file name. */
  readonly name: string
  readonly path: string
  /** As it lies on disk: a sparse file counts for what it takes. */
  readonly bytes: number
  /** ms since 1970: when it was made, or last used where that is known. */
  readonly usedAt: number
  /**
   * `busy`: a process works with it, nothing frees it. `current`: what the next run would take, freed by `all` alone.
   * `old`: freed when asked to clean. `ended`: a run, freed by its age alone. `unknown`: not made by this version,
   * never freed.
   */
  readonly state: 'busy' | 'current' | 'old' | 'ended' | 'unknown'
  /** What a person should know of it, such as a run's task; may hold untrusted text. */
  readonly note?: string
}

export interface CleanOptions {
  /** Also what is current, and downloads. */
  readonly all: boolean
  /** Frees runs that began this long ago or earlier; undefined leaves runs alone. */
  readonly runsOlderThanMs?: number
  /** ms since 1970. */
  readonly now: number
}

/** Whether a cleaning with these options frees it. */
export function isFreed({ state, usedAt }: Kept, { all, runsOlderThanMs, now }: CleanOptions): boolean {
  switch (state) {
    case 'old':
      return true
    case 'current':
      return all
    case 'ended':
      return runsOlderThanMs !== undefined && now - usedAt >= runsOlderThanMs
    case 'busy':
    case 'unknown':
      return false
  }
}

/** What lies at a path: bytes on disk and inodes, links not followed; nothing when it is gone. */
export async function measure(place: string): Promise<{ bytes: number; inodes: string[] }> {
  const found = await lstat(place).catch(() => undefined)
  if (found === undefined) return { bytes: 0, inodes: [] }
  const own = { bytes: found.blocks * 512, inodes: [String(found.ino)] }
  if (!found.isDirectory()) return own
  const names = await readdir(place).catch(() => [])
  const below = await Promise.all(names.map((name) => measure(path.join(place, name))))
  return {
    bytes: below.reduce((sum, { bytes }) => sum + bytes, own.bytes),
    inodes: [...own.inodes, ...below.flatMap(({ inodes }) => inodes)],
  }
}
