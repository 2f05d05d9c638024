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

export function withHunk(selection: Selection, change: Change, id: string, isChosen: boolean): Selection {
  const ids = new Set(chosenHunks(selection, change))
  if (isChosen) ids.add(id)
  else ids.delete(id)
  const next = new Map(selection)
  if (ids.size === 0) next.delete(change.path)
  else next.set(change.path, ids.size === change.hunks.length ? 'all' : ids)
  return next
}

/** Ids of the chosen hunks that the file still has: those that are applied are gone from it. */
export function chosenHunks(selection: Selection, { path, hunks }: Change): string[] {
  const chosen = selection.get(path)
  const ids = hunks.map(({ id }) => id)
  return chosen === 'all' ? ids : ids.filter((id) => chosen?.has(id) === true)
}

export type Extent = 'all' | 'some' | 'none'

/** How much of a change is chosen. */
export function extentOf(selection: Selection, change: Change): Extent {
  const chosen = selection.get(change.path)
  if (chosen === undefined || chosen === 'all') return chosen ?? 'none'
  return chosenHunks(selection, change).length > 0 ? 'some' : 'none'
}

type ApplyBody = {
  select: { paths: string[]; hunks?: Record<string, string[]> } | { hunks: Record<string, string[]> }
}

/** Body of the request; undefined where nothing is chosen that can be applied now. */
export function applyBody(selection: Selection, changes: readonly Change[]): ApplyBody | undefined {
  const paths: string[] = []
  const parts: [string, string[]][] = []
  for (const change of changes) {
    const extent = canApply(change) ? extentOf(selection, change) : 'none'
    if (extent === 'all') paths.push(change.path)
    else if (extent === 'some') parts.push([change.path, chosenHunks(selection, change)])
  }
  if (paths.length + parts.length === 0) return undefined
  const hunks = Object.fromEntries(parts)
  if (paths.length === 0) return { select: { hunks } }
  return { select: { paths, ...(parts.length === 0 ? {} : { hunks }) } }
}
