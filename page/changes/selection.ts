/** Which changes of a run are chosen to be applied. Pure: each choice gives a new selection. */
import type { ServiceReply } from '../../client/index.ts'

export type Change = ServiceReply<'listChanges'>['changes'][number]

/** By path: all of it, or some of its hunks by id. A path that is not here is not chosen. */
export type Selection = ReadonlyMap<string, 'all' | ReadonlySet<string>>

export function canApply({ change, state }: Change): boolean {
  return change !== 'unsupported' && state.kind === 'clear'
}

/** What "all" applies: neither flagged nor in conflict. */
export function firstSelection(changes: readonly Change[]): Selection {
  const chosen = changes.filter((change) => canApply(change) && change.flagged === undefined)
  return new Map(chosen.map(({ path }) => [path, 'all']))
}

export function withFile(selection: Selection, { path }: Change, isChosen: boolean): Selection {
  const next = new Map(selection)
  if (isChosen) next.set(path, 'all')
  else next.delete(path)
  return next
}

export function withHunk(
  selection: Selection,
  { path, hunks }: Change,
  id: string,
  isChosen: boolean,
): Selection {
  const before = selection.get(path)
  const ids = new Set(before === 'all' ? hunks.map((hunk) => hunk.id) : before)
  if (isChosen) ids.add(id)
  else ids.delete(id)
  const next = new Map(selection)
  if (ids.size === 0) next.delete(path)
  else next.set(path, ids.size === hunks.length ? 'all' : ids)
  return next
}

export function hasHunk(selection: Selection, path: string, id: string): boolean {
  const chosen = selection.get(path)
  return chosen === 'all' || chosen?.has(id) === true
}

/** Body of the request; undefined where nothing is chosen. Paths that are gone meanwhile are left out. */
export function applyBody(
  selection: Selection,
  changes: readonly Change[],
):
  | { select: { paths: string[]; hunks?: Record<string, string[]> } | { hunks: Record<string, string[]> } }
  | undefined {
  const paths: string[] = []
  const hunks: [string, string[]][] = []
  for (const change of changes) {
    const chosen = selection.get(change.path)
    if (chosen === undefined || !canApply(change)) continue
    if (chosen === 'all') paths.push(change.path)
    else hunks.push([change.path, change.hunks.map(({ id }) => id).filter((id) => chosen.has(id))])
  }
  if (paths.length + hunks.length === 0) return undefined
  const byPath = Object.fromEntries(hunks)
  if (paths.length === 0) return { select: { hunks: byPath } }
  return { select: { paths, ...(hunks.length === 0 ? {} : { hunks: byPath }) } }
}
