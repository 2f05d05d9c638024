/**
 * Finds pointers in the workspace: links, and the files in which git finds a repository's path. Searches the change set
 * and the host, including paths excluded from the VM. Follows nothing.
 */
import type { Root } from '#specs/node/descriptor-walk.ts'
import { decodePath } from '#specs/node/path-text.ts'
import { type ChangeSet, readWhole } from '../change-set.ts'
import type { ManifestIndex } from '../conflicts.ts'
import type { Turns } from '../yield-turns.ts'
import { enter, nowhere, type Track } from './flag-rules.ts'
import { foldFileName } from './folded-path.ts'
import type { Pointer } from './places.ts'

/** A larger file contains no path. */
const POINTER_MAX_BYTES = 64 * 1024
/** Maximum names read in one excluded directory. */
const LEFT_OUT_MAX_NAMES = 20_000

/** Inputs for finding flags. */
export interface FlagSurroundings {
  readonly root: Root
  readonly index: ManifestIndex
  readonly changes: ChangeSet
  /** Descriptor of the change set's contents. */
  readonly contents: number
}

/** Host pointers first. */
export async function findPointers(around: FlagSurroundings, turns: Turns): Promise<Pointer[]> {
  const { index, changes, root, contents } = around
  const found: Pointer[] = []
  for (const entry of index.manifest.entries.values()) {
    if (turns.isDue) await turns.give()
    if (entry.kind === 'link')
      found.push({ path: entry.path, target: entry.target, kind: 'link', from: 'host' })
    if (entry.kind === 'file') addFile(entry.path, () => readHost(root, entry.path), found)
  }
  await new LeftOutLinks(root, found, turns).add(index.manifest.leftOut.map(({ path }) => path))
  for (const change of changes.entries.values()) {
    if (turns.isDue) await turns.give()
    if (change.kind === 'link')
      found.push({ path: change.path, target: change.target, kind: 'link', from: 'change' })
    if (change.kind !== 'file' || change.size > POINTER_MAX_BYTES) continue
    addFile(change.path, () => readWhole(contents ?? -1, change.offset, change.size), found, 'change')
  }
  return found
}

function addFile(
  path: string,
  read: () => Buffer | undefined,
  to: Pointer[],
  from: Pointer['from'] = 'host',
): void {
  const name = foldFileName(path.slice(path.lastIndexOf('/') + 1))
  if (name !== '.git' && name !== 'commondir') return
  const bytes = read()
  const text = bytes === undefined ? '' : decodePath(bytes)
  if (name === 'commondir')
    return void to.push({ path, target: text.replace(/[\r\n]+$/, ''), kind: 'common', from })
  const named = /^gitdir: (.+?)[\r\n]*$/s.exec(text)?.[1]
  if (named !== undefined) to.push({ path, target: named, kind: 'git', from })
}

function readHost(root: Root, path: string): Buffer | undefined {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return
  using place = located.value
  const opened = place.openFile()
  if (!opened.ok) return
  using file = opened.value
  if (file.stat.size > POINTER_MAX_BYTES) return
  return readWhole(file.fd, 0, file.stat.size)
}

/** Excluded links that can count: by their own place, or in a directory that counts. */
class LeftOutLinks {
  readonly #root: Root
  readonly #found: Pointer[]
  readonly #turns: Turns
  #names = 0

  constructor(root: Root, found: Pointer[], turns: Turns) {
    this.#root = root
    this.#found = found
    this.#turns = turns
  }

  async add(paths: readonly string[]): Promise<void> {
    for (const path of paths) {
      if (this.#turns.isDue) await this.#turns.give()
      const plain = path.replace(/\/$/, '')
      const tracks = plain
        .split('/')
        .reduce<readonly Track[]>((above, name) => enter(above, foldFileName(name)), nowhere)
      this.#names = 0
      if (counts(tracks)) await this.#look(plain, tracks)
    }
  }

  async #look(path: string, tracks: readonly Track[]): Promise<void> {
    if (this.#turns.isDue) await this.#turns.give()
    if (++this.#names > LEFT_OUT_MAX_NAMES) return
    const located = this.#root.locate(path, { links: 'refuse' })
    if (!located.ok) return
    using place = located.value
    const stat = place.stat()
    if (!stat.ok) return
    if (stat.value.isSymbolicLink()) {
      const read = place.readLink()
      if (read.ok) this.#found.push({ path, target: read.value, kind: 'link', from: 'host' })
    } else if (stat.value.isFile()) addFile(path, () => readHost(this.#root, path), this.#found)
    if (!stat.value.isDirectory()) return
    const opened = place.openDirectory()
    if (!opened.ok) return
    using directory = opened.value
    for (const { name } of directory.list()) {
      const below = enter(tracks, foldFileName(name))
      if (counts(below)) await this.#look(`${path}/${name}`, below)
    }
  }
}

/** Whether a link at these positions makes its target count. */
function counts(tracks: readonly Track[]): boolean {
  return tracks.some((track) => track.kind !== 'flagged' || track.followsLinks)
}
