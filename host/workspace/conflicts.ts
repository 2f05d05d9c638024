/**
 * Whether a change can be applied to the host as it is now: the host must still be what went into the VM. Compares
 * with the manifest, by size, times and inode first and by content where these differ.
 */

import type { Root } from '#specs/node/descriptor-walk.ts'
import { comparePaths } from '#specs/node/path-text.ts'
import type { LeftOut } from '#specs/protocol/event.ts'
import type { StoredChange } from './change-set.ts'
import { Inherited } from './inherited.ts'
import type { Manifest, ManifestEntry } from './manifest.ts'
import { captureState, isSameState, manifestState, type PathState } from './path-state.ts'
import { isOwnState, type LoggedOperation } from './write-ahead.ts'
import type { Turns } from './yield-turns.ts'

/** A manifest with what is needed to look things up in it. */
export class ManifestIndex {
  readonly manifest: Manifest
  readonly #paths: readonly string[]
  readonly #leftOut: ReadonlyMap<string, LeftOut>

  constructor(manifest: Manifest) {
    this.manifest = manifest
    this.#paths = [...manifest.entries.keys()]
    this.#leftOut = new Map(manifest.leftOut.map((item) => [item.path.replace(/\/$/, ''), item]))
  }

  get(path: string): ManifestEntry | undefined {
    return this.manifest.entries.get(path)
  }

  /** What went in below a directory, in order. */
  below(path: string): string[] {
    let low = 0
    let high = this.#paths.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (comparePaths(this.#paths[middle] ?? '', path) <= 0) low = middle + 1
      else high = middle
    }
    let end = low
    while (this.#paths[end]?.startsWith(`${path}/`)) end++
    return this.#paths.slice(low, end)
  }

  /** What was left out at the path or above it. */
  leftOutAt(path: string): LeftOut | undefined {
    for (let at = path; ; at = at.slice(0, at.lastIndexOf('/'))) {
      const found = this.#leftOut.get(at)
      if (found !== undefined || !at.includes('/')) return found
    }
  }
}

export type Standing =
  | { readonly kind: 'clear' }
  /** The host already is as the change would make it. */
  | { readonly kind: 'applied' }
  | { readonly kind: 'conflict'; readonly reason: string }

/** The state that a change leads to; nothing for a change of mode alone, and for what cannot come home. */
export function stateAfter(change: StoredChange): PathState | undefined {
  switch (change.kind) {
    case 'file':
      return { kind: 'file', mode: change.mode, size: change.size, sha256: change.sha256 }
    case 'link':
      return { kind: 'link', target: change.target }
    case 'directory':
      return { kind: 'directory', mode: change.mode }
    case 'deleted':
      return { kind: 'absent' }
    default:
      return undefined
  }
}

/** Judges the changes of one review, in their order, against the host as it is now. */
export class ConflictFinder {
  readonly #root: Root
  readonly #index: ManifestIndex
  readonly #own: ReadonlyMap<string, readonly LoggedOperation[]>
  /** Directories still to be made where the host has none: nothing can be below them. */
  readonly #vacant = new Set<string>()
  readonly #isVacant = new Inherited((directory) => this.#vacant.has(directory) || undefined)
  readonly #turns: Turns

  /** @param own what apply did before, by path: a state that it left is no conflict */
  constructor(
    root: Root,
    index: ManifestIndex,
    own: ReadonlyMap<string, readonly LoggedOperation[]>,
    turns: Turns,
  ) {
    this.#root = root
    this.#index = index
    this.#own = own
    this.#turns = turns
  }

  async find(change: StoredChange): Promise<Standing> {
    if (this.#isVacant.above(change.path) === true) return { kind: 'clear' }
    const before = this.#index.get(change.path)
    if (before !== undefined && isUntouched(this.#root, before)) return this.#untouched(change, before)
    const captured = captureState(this.#root, change.path)
    if (!captured.ok) return conflict(captured.error.message)
    const standing = await this.#compare(change, before, captured.value.state)
    if (standing.kind === 'clear') this.#noteVacant(change, captured.value.state.kind)
    return standing
  }

  /** The usual case, judged without reading content. */
  async #untouched(change: StoredChange, before: ManifestEntry): Promise<Standing> {
    this.#noteVacant(change, before.kind)
    if (before.kind !== 'directory' || change.kind === 'mode' || change.kind === 'directory')
      return { kind: 'clear' }
    return await subtreeStanding(this.#root, this.#index, change.path, this.#turns)
  }

  async #compare(change: StoredChange, before: ManifestEntry | undefined, now: PathState): Promise<Standing> {
    if (change.kind === 'mode') return modeStanding(now, before, change.mode)
    const after = stateAfter(change)
    if (after === undefined) return conflict('it cannot come home')
    if (now.kind !== 'absent' && before === undefined) {
      const leftOut = this.#index.leftOutAt(change.path)
      if (leftOut !== undefined) {
        return conflict(`it exists on the host but was left out of the VM (${leftOut.reason})`)
      }
    }
    if (isSameIgnoringSpecialBits(now, after)) return { kind: 'applied' }
    if (isSameState(now, manifestState(before))) {
      return now.kind === 'directory' && after.kind !== 'directory'
        ? await subtreeStanding(this.#root, this.#index, change.path, this.#turns)
        : { kind: 'clear' }
    }
    if (isOwnState(this.#own.get(change.path), now)) return { kind: 'clear' }
    return conflict(describeConflict(now, before))
  }

  #noteVacant(change: StoredChange, now: PathState['kind']): void {
    if (change.kind === 'directory' && now !== 'directory') this.#vacant.add(change.path)
  }
}

/** The directories above a path, nearest first. */
export function ancestorsOf(path: string): string[] {
  const found: string[] = []
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1))
    found.push(path.slice(0, at))
  return found
}

function modeStanding(now: PathState, before: ManifestEntry | undefined, mode: number): Standing {
  if (before === undefined || now.kind !== before.kind || now.kind === 'link' || !('mode' in now)) {
    return conflict(describeConflict(now, before))
  }
  if ((now.mode & 0o777) === mode) return { kind: 'applied' }
  return now.mode === before.mode
    ? { kind: 'clear' }
    : conflict('its mode was changed on the host since the run began')
}

/** A directory may go only if all that is in it went in and is unchanged. */
async function subtreeStanding(
  root: Root,
  index: ManifestIndex,
  path: string,
  turns: Turns,
): Promise<Standing> {
  const pending = [path]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    const names = listNames(root, at)
    if (names === undefined) return conflict(`"${at}" cannot be listed on the host`)
    for (const name of names) {
      if (turns.isDue) await turns.give()
      const below = `${at}/${name}`
      const entry = index.get(below)
      if (entry === undefined) {
        const leftOut = index.leftOutAt(below)
        return conflict(
          leftOut === undefined
            ? `"${below}" in it is new on the host since the run began`
            : `"${below}" in it was left out of the VM (${leftOut.reason})`,
        )
      }
      if (entry.kind === 'directory') pending.push(below)
      if (isUntouched(root, entry)) continue
      const captured = captureState(root, below)
      if (!captured.ok) return conflict(captured.error.message)
      if (!isSameState(captured.value.state, manifestState(entry))) {
        return conflict(`"${below}" in it: ${describeConflict(captured.value.state, entry)}`)
      }
    }
  }
  return { kind: 'clear' }
}

function listNames(root: Root, path: string): string[] | undefined {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return
  using place = located.value
  const opened = place.openDirectory()
  if (!opened.ok) return
  using directory = opened.value
  try {
    return directory.list().map(({ name }) => name)
  } catch {
    return
  }
}

/** Whether size, times, mode and inode are those of the manifest, so that the content need not be read. */
function isUntouched(root: Root, entry: ManifestEntry): boolean {
  const located = root.locate(entry.path, { links: 'refuse' })
  if (!located.ok) return false
  using place = located.value
  const stat = place.statExact()
  if (!stat.ok) return false
  const { value } = stat
  const isKind = { file: value.isFile(), directory: value.isDirectory(), link: value.isSymbolicLink() }[
    entry.kind
  ]
  if (!isKind || (Number(value.mode) & 0o7777) !== entry.mode) return false
  // A directory's times change with what is in it, which is looked at by itself.
  if (entry.kind === 'directory') return true
  return (
    String(value.ino) === entry.inode &&
    String(value.mtimeNs) === entry.mtimeNs &&
    String(value.ctimeNs) === entry.ctimeNs &&
    (entry.kind === 'link' || Number(value.size) === entry.size)
  )
}

/** Set-uid, set-gid and sticky never come from the VM, so they say nothing about whether a change is applied. */
function isSameIgnoringSpecialBits(now: PathState, after: PathState): boolean {
  return isSameState('mode' in now ? { ...now, mode: now.mode & 0o777 } : now, after)
}

function describeConflict(now: PathState, before: ManifestEntry | undefined): string {
  if (before === undefined) return 'it was made on the host since the run began'
  if (now.kind === 'absent') return 'it was deleted on the host since the run began'
  if (now.kind !== before.kind) return `it became another kind of file on the host since the run began`
  return 'it was changed on the host since the run began'
}

function conflict(reason: string): Standing {
  return { kind: 'conflict', reason: reason.slice(0, 500) }
}
