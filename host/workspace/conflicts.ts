/**
 * Determines whether a change can be applied: the host must still match what was copied into the VM. Compares with the
 * manifest by size, times and inode first, and by content if these differ.
 */

import type { Root } from '#specs/node/descriptor-walk.ts'
import { comparePaths } from '#specs/node/path-text.ts'
import type { LeftOut } from '#specs/protocol/event.ts'
import type { StoredChange } from './change-set.ts'
import { isRefreshedIndex } from './git-history/refreshed-index.ts'
import { Inherited } from './inherited.ts'
import type { Manifest, ManifestEntry } from './manifest.ts'
import { captureState, isSameState, manifestState, type PathState } from './path-state.ts'
import { isOwnState, type LoggedOperation } from './write-ahead.ts'
import type { Turns } from './yield-turns.ts'

/** A manifest with lookup by path. */
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

  /** Entries below a directory, in order. */
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

  /** The excluded path at or above this one. */
  leftOutAt(path: string): LeftOut | undefined {
    for (let at = path; ; at = at.slice(0, at.lastIndexOf('/'))) {
      const found = this.#leftOut.get(at)
      if (found !== undefined || !at.includes('/')) return found
    }
  }
}

export type ConflictState =
  | { readonly kind: 'clear' }
  /** The host is already in the target state. */
  | { readonly kind: 'applied' }
  | { readonly kind: 'conflict'; readonly reason: string }

/** The target state of a change; undefined for a mode change, and for unsupported changes. */
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

/** Classifies the changes of one review, in order, against the host's current state. */
export class ConflictFinder {
  readonly #root: Root
  readonly #index: ManifestIndex
  readonly #own: ReadonlyMap<string, readonly LoggedOperation[]>
  /** Directories that do not exist on the host yet, so nothing can be below them. */
  readonly #vacant = new Set<string>()
  readonly #isVacant = new Inherited((directory) => this.#vacant.has(directory) || undefined)
  /** Whether a directory that was copied is gone. */
  readonly #lost = new Map<string, boolean>()
  readonly #turns: Turns

  /** @param own states that an earlier apply left, by path: none of them is a conflict */
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

  async find(change: StoredChange): Promise<ConflictState> {
    if (this.#isVacant.above(change.path) === true) return { kind: 'clear' }
    const before = this.#index.get(change.path)
    if (before !== undefined && isUntouched(this.#root, before)) return this.#untouched(change, before)
    const captured = captureState(this.#root, change.path)
    if (!captured.ok) return conflict(captured.error.message)
    const found = await this.#compare(change, before, captured.value.state)
    if (found.kind === 'clear') this.#noteVacant(change, captured.value.state.kind)
    return found
  }

  /** The usual case, without reading content. */
  async #untouched(change: StoredChange, before: ManifestEntry): Promise<ConflictState> {
    this.#noteVacant(change, before.kind)
    if (before.kind !== 'directory' || change.kind === 'mode' || change.kind === 'directory')
      return { kind: 'clear' }
    return await subtreeConflict(this.#root, this.#index, change.path, this.#turns)
  }

  async #compare(
    change: StoredChange,
    before: ManifestEntry | undefined,
    now: PathState,
  ): Promise<ConflictState> {
    if (change.kind === 'mode') return modeConflict(now, before, change.mode)
    const after = stateAfter(change)
    if (after === undefined) return conflict('it cannot be transferred')
    if (now.kind !== 'absent' && before === undefined) {
      const leftOut = this.#index.leftOutAt(change.path)
      if (leftOut !== undefined) {
        return conflict(`it exists on the host but was left out of the VM (${leftOut.reason})`)
      }
    }
    if (isSameIgnoringSpecialBits(now, after)) return { kind: 'applied' }
    if (this.#isRefreshedApply(change.path, after, now)) return { kind: 'applied' }
    if (isAsCopied(this.#root, change.path, before, now)) {
      if (now.kind === 'directory' && after.kind !== 'directory')
        return await subtreeConflict(this.#root, this.#index, change.path, this.#turns)
      return now.kind === 'absent' ? this.#parentConflict(change.path) : { kind: 'clear' }
    }
    if (isOwnState(this.#own.get(change.path), now)) return { kind: 'clear' }
    return conflict(describeConflict(now, before))
  }

  /** git's index as an earlier apply left it, but for what `git status` refreshes. */
  #isRefreshedApply(path: string, after: PathState, now: PathState): boolean {
    return (this.#own.get(path) ?? []).some(
      (own) => isSameState(own.after, after) && isRefreshedIndex(this.#root, path, now, own.indexMeaning),
    )
  }

  /** Nothing is added below a directory that the host lost meanwhile. */
  #parentConflict(path: string): ConflictState {
    const parent = path.slice(0, Math.max(0, path.lastIndexOf('/')))
    if (this.#index.get(parent)?.kind !== 'directory') return { kind: 'clear' }
    let isLost = this.#lost.get(parent)
    if (isLost === undefined) {
      const captured = captureState(this.#root, parent)
      isLost = captured.ok && captured.value.state.kind === 'absent'
      this.#lost.set(parent, isLost)
    }
    return isLost
      ? conflict(`its directory "${parent}" was deleted on the host since the run began`)
      : { kind: 'clear' }
  }

  #noteVacant(change: StoredChange, now: PathState['kind']): void {
    if (change.kind === 'directory' && now !== 'directory') this.#vacant.add(change.path)
  }
}

/** Whether the path is as it was copied. For git's index only its entries count. */
export function isAsCopied(
  root: Root,
  path: string,
  before: ManifestEntry | undefined,
  now: PathState,
): boolean {
  const copied = manifestState(before)
  if (isSameState(now, copied)) return true
  const isSameMode = now.kind === 'file' && copied.kind === 'file' && now.mode === copied.mode
  return isSameMode && before?.kind === 'file' && isRefreshedIndex(root, path, now, before.indexMeaning)
}

/** Parent directories of a path, nearest first. */
export function ancestorsOf(path: string): string[] {
  const found: string[] = []
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1))
    found.push(path.slice(0, at))
  return found
}

function modeConflict(now: PathState, before: ManifestEntry | undefined, mode: number): ConflictState {
  if (before === undefined || now.kind !== before.kind || now.kind === 'link' || !('mode' in now)) {
    return conflict(describeConflict(now, before))
  }
  if ((now.mode & 0o777) === mode) return { kind: 'applied' }
  return now.mode === before.mode
    ? { kind: 'clear' }
    : conflict('its mode was changed on the host since the run began')
}

/** A directory may be removed only if all its contents were copied into the VM and are unchanged. */
async function subtreeConflict(
  root: Root,
  index: ManifestIndex,
  path: string,
  turns: Turns,
): Promise<ConflictState> {
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
      if (!isAsCopied(root, below, entry, captured.value.state)) {
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

/** Whether size, times, mode and inode match the manifest, so that the content need not be read. */
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
  // A directory's times change with its contents, which are checked separately.
  if (entry.kind === 'directory') return true
  return (
    String(value.ino) === entry.inode &&
    String(value.mtimeNs) === entry.mtimeNs &&
    String(value.ctimeNs) === entry.ctimeNs &&
    (entry.kind === 'link' || Number(value.size) === entry.size)
  )
}

/** Set-uid, set-gid and sticky never come from the VM, so they do not affect whether a change is applied. */
function isSameIgnoringSpecialBits(now: PathState, after: PathState): boolean {
  return isSameState('mode' in now ? { ...now, mode: now.mode & 0o777 } : now, after)
}

function describeConflict(now: PathState, before: ManifestEntry | undefined): string {
  if (before === undefined) return 'it was made on the host since the run began'
  if (now.kind === 'absent') return 'it was deleted on the host since the run began'
  if (now.kind !== before.kind) return `it became another kind of file on the host since the run began`
  return 'it was changed on the host since the run began'
}

function conflict(reason: string): ConflictState {
  return { kind: 'conflict', reason: reason.slice(0, 500) }
}
