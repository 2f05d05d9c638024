/**
 * Merges a sub-agent's view into its parent's workspace by comparing three trees: the view now, the view at its
 * start, and the parent's workspace now. Paths that the parent has not changed are updated. Paths that both changed
 * differently are conflicts and keep the parent's version. A name is merged whole or not at all.
 */
import { rmdirSync, type Stats } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Directory, type Owner } from '#specs/node/directory.ts'
import { errnoOf, reasonOf } from '#specs/node/file-error.ts'
import { isSameInode } from './examine.ts'
import { isSame, kindAt, makeDirectory, openSpot, removeAt, type Spot, stageCopy, statSpot } from './trees.ts'

/** Maximum directory depth; each level holds three descriptors. */
const MAX_DEPTH = 256
/** How long the walk runs before yielding, in milliseconds. */
const TURN_MS = 8

interface MergeTrees {
  /** The view now. */
  readonly child: string
  /** The view at its start. */
  readonly start: string
  /** The workspace to update. */
  readonly parent: string
  /** The view's upper directory; missing on disk means that everything is compared. */
  readonly upper?: string
}

interface MergeOptions {
  /** Owner of created entries, if this process may set it. */
  readonly owner: Owner
  /** Stops the merge between two paths, or two chunks of a file. */
  readonly signal?: AbortSignal
}

export interface MergeResult {
  /** Paths that now equal the view, including deleted ones. */
  readonly merged: readonly string[]
  /** Paths that both changed. */
  readonly conflicts: readonly string[]
  /** Paths that could not be merged, with the reason. */
  readonly leftOut: readonly { readonly path: string; readonly reason: string }[]
}

/** The same name in the three trees. */
interface Trio {
  readonly child: Spot
  readonly start: Spot
  readonly parent: Spot
  readonly path: string
}

/** The same directory in the three trees; at least one exists. */
interface Level {
  readonly child: Directory | undefined
  readonly start: Directory | undefined
  readonly parent: Directory | undefined
  readonly path: string
  readonly depth: number
}

/**
 * Merges the trees; reports every unreadable or unwritable path in the result. Throws only when a tree cannot be
 * opened.
 */
export async function mergeView(trees: MergeTrees, options: MergeOptions): Promise<MergeResult> {
  using child = Directory.openTrusted(trees.child)
  using start = Directory.openTrusted(trees.start)
  using parent = Directory.openTrusted(trees.parent)
  const merge = new Merge(options)
  await merge.level({ child, start, parent, path: '', depth: 0 }, namesOf(trees.upper))
  return merge
}

/**
 * Makes `name` of the parent equal to the child's: a file, a link, a directory with its content, or nothing. The
 * parent's old entry is removed only when the new one is complete. Both directories hold `name`. Throws the system's
 * error.
 */
export async function takeName(from: Directory, to: Directory, name: string, owner: Owner): Promise<void> {
  const kind = kindAt({ directory: from, name })
  if (kind === 'missing') return removeAt(to, name)
  if (kind === 'other') throw Object.assign(new Error('it is a device, FIFO or socket'), { code: 'ENXIO' })
  using staged = await stageCopy({ directory: from, name }, { directory: to, name }, owner)
  // No rename replaces one kind with the other.
  if (kind === 'directory' || kindAt({ directory: to, name }) === 'directory') removeAt(to, name)
  staged.place()
}

function namesOf(upper: string | undefined): ReadonlySet<string> | undefined {
  if (upper === undefined) return undefined
  try {
    using directory = Directory.openTrusted(upper)
    return new Set(directory.list().map(({ name }) => name))
  } catch {
    return undefined
  }
}

class Merge implements MergeResult {
  readonly merged: string[] = []
  readonly conflicts: string[] = []
  readonly leftOut: { path: string; reason: string }[] = []
  readonly #owner: Owner
  readonly #signal: AbortSignal | undefined
  #turnEnd = performance.now() + TURN_MS

  constructor({ owner, signal }: MergeOptions) {
    this.#owner = owner
    this.#signal = signal
  }

  /** @param touched names that were written; all others are unchanged. Only the top level knows them. */
  async level(level: Level, touched?: ReadonlySet<string>): Promise<void> {
    const before = new Map(level.start?.list().map(({ name, kind }) => [name, kind]))
    const after = new Map(level.child?.list().map(({ name, kind }) => [name, kind]))
    for (const name of [...new Set([...after.keys(), ...before.keys()])].sort()) {
      if (touched?.has(name) === false && after.get(name) === before.get(name)) continue
      await this.#yield()
      if (this.#signal?.aborted) return
      await this.#name(level, name)
    }
  }

  async #name(level: Level, name: string): Promise<void> {
    const path = level.path === '' ? name : `${level.path}/${name}`
    const spot = (directory: Directory | undefined): Spot => ({ directory, name })
    const trio = { child: spot(level.child), start: spot(level.start), parent: spot(level.parent), path }
    try {
      const kind = kindAt(trio.child)
      if (kind === 'directory') await this.#directory(trio, level.depth)
      else if (kind === 'other') this.#device(trio)
      else if (kind === 'missing') await this.#deleted(trio, level.depth)
      else await this.#content(trio)
    } catch (thrown) {
      this.leftOut.push({ path, reason: reasonOf(thrown) })
    }
  }

  #device({ start, path }: Trio): void {
    if (kindAt(start) !== 'other') this.leftOut.push({ path, reason: 'it is a device, FIFO or socket' })
  }

  /** A file or link of the child. */
  async #content(trio: Trio): Promise<void> {
    const { child, start, parent, path } = trio
    if ((await this.#isSame(child, start)) || (await this.#isSame(child, parent))) return
    const seen = statSpot(parent)
    if (parent.directory === undefined || !(await isSameTree(parent, start, this.#signal))) {
      this.conflicts.push(path)
      return
    }
    const target = { directory: parent.directory, name: parent.name }
    using staged = await stageCopy(child, target, this.#owner, this.#signal)
    // A program of the parent may have written meanwhile.
    if (!isUntouched(seen, statSpot(parent))) {
      this.conflicts.push(path)
      return
    }
    if (seen?.isDirectory()) removeAt(target.directory, target.name)
    staged.place()
    this.merged.push(path)
  }

  async #directory(trio: Trio, depth: number): Promise<void> {
    const { start, parent, path } = trio
    if (depth >= MAX_DEPTH) return void this.leftOut.push({ path, reason: 'it is nested too deep' })
    const was = kindAt(start)
    if (was === 'directory') await this.#mode(trio)
    else if (kindAt(parent) !== 'directory' && !(await this.#newDirectory(trio))) return
    await this.#below(
      { ...trio, start: was === 'directory' ? start : { ...start, directory: undefined } },
      depth,
    )
  }

  /** All that is in the directories of the trio. */
  async #below({ child, start, parent, path }: Trio, depth: number): Promise<void> {
    using childDirectory = openSpot(child)
    using startDirectory = openSpot(start)
    using parentDirectory = openSpot(parent)
    const directories = { child: childDirectory, start: startDirectory, parent: parentDirectory }
    await this.level({ ...directories, path, depth: depth + 1 })
  }

  /** Updates a directory that exists on both sides. */
  async #mode({ child, start, parent, path }: Trio): Promise<void> {
    if ((await this.#isSame(child, start)) || (await this.#isSame(child, parent))) return
    if (!(await this.#isSame(parent, start))) return void this.conflicts.push(path)
    using directory = openSpot(parent)
    directory?.chmod((statSpot(child)?.mode ?? 0o755) & 0o777)
    this.merged.push(path)
  }

  /** Whether the parent has it now. */
  async #newDirectory({ child, start, parent, path }: Trio): Promise<boolean> {
    if (parent.directory === undefined || !(await this.#isSame(parent, start))) {
      this.conflicts.push(path)
      return false
    }
    removeAt(parent.directory, parent.name)
    makeDirectory(parent.directory, parent.name, (statSpot(child)?.mode ?? 0o755) & 0o777, this.#owner)
    this.merged.push(path)
    return true
  }

  async #deleted({ start, parent, path }: Trio, depth: number): Promise<void> {
    if (parent.directory === undefined || kindAt(parent) === 'missing') return
    const isDirectory = kindAt(start) === 'directory'
    if (isDirectory ? kindAt(parent) !== 'directory' : !(await this.#isSame(parent, start))) {
      this.conflicts.push(path)
      return
    }
    if (isDirectory && !(await this.#deletedDirectory({ start, parent }, path, depth))) return
    if (!isDirectory) removeAt(parent.directory, parent.name)
    this.merged.push(path)
  }

  /**
   * Deletes everything in it that the parent has not changed, then the empty directory. Returns whether it is gone.
   */
  async #deletedDirectory(
    { start, parent }: Pick<Trio, 'start' | 'parent'>,
    path: string,
    depth: number,
  ): Promise<boolean> {
    await this.#below({ child: { directory: undefined, name: start.name }, start, parent, path }, depth)
    try {
      if (parent.directory !== undefined) rmdirSync(parent.directory.at(parent.name))
      return true
    } catch (thrown) {
      if (errnoOf(thrown) === 'ENOTEMPTY') return false
      throw thrown
    }
  }

  #isSame(a: Spot, b: Spot): Promise<boolean> {
    return isSame(a, b, this.#signal)
  }

  async #yield(): Promise<void> {
    if (performance.now() < this.#turnEnd) return
    await nextTurn()
    this.#turnEnd = performance.now() + TURN_MS
  }
}

/** Whether nothing differs, also in directories. */
async function isSameTree(a: Spot, b: Spot, signal: AbortSignal | undefined, depth = 0): Promise<boolean> {
  if (depth > MAX_DEPTH) throw new Error('it is nested too deep')
  if (!(await isSame(a, b, signal))) return false
  if (kindAt(a) !== 'directory') return true
  using directoryA = openSpot(a)
  using directoryB = openSpot(b)
  const names = directoryA?.list().map(({ name }) => name) ?? []
  if (names.length !== directoryB?.list().length) return false
  for (const name of names) {
    const [inA, inB] = [
      { directory: directoryA, name },
      { directory: directoryB, name },
    ] as const
    if (!(await isSameTree(inA, inB, signal, depth + 1))) return false
  }
  return true
}

function isUntouched(before: Stats | undefined, now: Stats | undefined): boolean {
  if (before === undefined || now === undefined) return before === now
  return isSameInode(before, now)
}
