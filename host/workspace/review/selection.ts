/**
 * Selects which changes of a review are applied: all unflagged ones, or named ones with their dependencies. Never
 * selects a conflict and never touches the disk.
 */
import { ancestorsOf } from '../conflicts.ts'
import { Inherited } from '../inherited.ts'
import type { HunkSelection } from './hunks.ts'
import { holdBack, type Review, type ReviewItem } from './review.ts'

/** All except flagged and conflicting changes, or those that are named. */
export type ChangeSelection =
  | 'all'
  | {
      /** A path includes everything below it, unless `exact` is set. */
      readonly paths: readonly string[]
      readonly exact?: boolean
      /** Parts of further files. */
      readonly hunks?: HunkSelection
    }

/** The named paths, those of hunks among them. */
export function namedPaths({ paths, hunks = {} }: Exclude<ChangeSelection, 'all'>): string[] {
  return [...paths, ...Object.keys(hunks)]
}

export interface HeldBack {
  readonly path: string
  readonly reason: string
}

interface SelectedChanges {
  /** Changes to apply, in order. */
  readonly chosen: readonly ReviewItem[]
  /** Selected, but already in the target state. */
  readonly already: readonly string[]
  /** Selected, but the host has changed. */
  readonly conflicts: readonly HeldBack[]
  /** Not selected, flagged without being named, or unsupported. */
  readonly leftOut: readonly HeldBack[]
  /** Named paths without a change. */
  readonly unknown: readonly string[]
}

/** Why a change outside the selection is skipped. */
export const notChosen = 'not chosen'

/** Sorts a review's items by a selection. */
export function selectChanges(review: Review, selection: ChangeSelection): SelectedChanges {
  const named =
    selection === 'all' ? undefined : namedItems(review, namedPaths(selection), selection.exact === true)
  const chosen = new Map<string, ReviewItem>()
  const conflicts: HeldBack[] = []
  const leftOut: HeldBack[] = []
  const already: string[] = []
  /** Directories that will be missing for the changes below them. */
  const missing = new Map<string, string>()
  const blocked = new Inherited((directory) => missing.get(directory))
  for (const item of review.items) {
    const isNamed = named?.exact.has(item.path) === true
    const isWanted = named === undefined || named.all.has(item.path)
    const above = blocked.above(item.path)
    if (!isWanted) leftOut.push({ path: item.path, reason: notChosen })
    else if (item.change === 'unsupported') leftOut.push({ path: item.path, reason: holdBack(item) ?? '' })
    else if (item.state.kind === 'applied') already.push(item.path)
    else if (item.state.kind === 'conflict') conflicts.push({ path: item.path, reason: item.state.reason })
    else if (above !== undefined) leftOut.push({ path: item.path, reason: above })
    else if (item.flagged !== undefined && !isNamed)
      leftOut.push({ path: item.path, reason: `flagged: ${item.flagged}` })
    else chosen.set(item.path, item)
    const isThere =
      chosen.has(item.path) || item.state.kind === 'applied' || item.before?.kind === 'directory'
    if (item.after?.kind === 'directory' && !isThere)
      missing.set(item.path, `"${item.path}" above it is not applied`)
  }
  for (const path of hollowDirectories(review, chosen, named)) {
    chosen.delete(path)
    leftOut.push({ path, reason: 'all that would be in it is left out' })
  }
  return { chosen: [...chosen.values()], already, conflicts, leftOut, unknown: named?.unknown ?? [] }
}

/**
 * New directories that would be empty because only flagged changes are below them. Directories that the agent left
 * empty, or that were named, are kept.
 */
function hollowDirectories(
  review: Review,
  chosen: ReadonlyMap<string, ReviewItem>,
  named: Named | undefined,
): string[] {
  const aboveFlagged = new Set<string>()
  for (const item of review.items)
    if (item.flagged !== undefined && !chosen.has(item.path)) addAncestors(item.path, aboveFlagged)
  if (aboveFlagged.size === 0) return []
  const isDoubtful = (item: ReviewItem) =>
    item.after?.kind === 'directory' &&
    item.before?.kind !== 'directory' &&
    aboveFlagged.has(item.path) &&
    named?.exact.has(item.path) !== true
  const needed = new Set<string>()
  for (const item of chosen.values()) if (!isDoubtful(item)) addAncestors(item.path, needed)
  return [...chosen.values()]
    .filter((item) => isDoubtful(item) && !needed.has(item.path))
    .map(({ path }) => path)
}

function addAncestors(path: string, to: Set<string>): void {
  for (const above of ancestorsOf(path)) {
    // Its parents were added with it.
    if (to.has(above)) return
    to.add(above)
  }
}

interface Named {
  /** Paths given literally. */
  readonly exact: ReadonlySet<string>
  /** With their contents, and the new parent directories. */
  readonly all: ReadonlySet<string>
  readonly unknown: readonly string[]
}

function namedItems(review: Review, given: readonly string[], isExact: boolean): Named {
  const items = new Map(review.items.map((item) => [item.path, item]))
  const wanted = new Set(given.map((path) => path.replace(/\/+$/, '').replace(/^\.\//, '')))
  const all = new Set<string>()
  const met = new Set<string>()
  for (const path of items.keys()) {
    for (const at of isExact ? [path] : [path, ...ancestorsOf(path)]) {
      if (!wanted.has(at)) continue
      met.add(at)
      all.add(path)
    }
  }
  for (const path of [...all]) {
    for (const above of ancestorsOf(path)) if (items.get(above)?.after?.kind === 'directory') all.add(above)
  }
  return { exact: wanted, all, unknown: [...wanted].filter((path) => !met.has(path)) }
}
