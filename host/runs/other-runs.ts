/**
 * Names the other run behind a conflict: one that applied a change to the same path since this run copied the
 * directory, or since this run was applied. Reads the apply logs of the runs on the same files; changes nothing.
 */
import path from 'node:path'
import { formatTime } from '../files/format.ts'
import type { RunStore } from '../journal/run-store.ts'
import { type HeldBack, readApplyLog } from '../workspace/index.ts'

interface OtherApply {
  readonly runId: string
  /** ms since 1970; absent in logs of earlier versions. */
  readonly at?: number | undefined
  /** What is below it is not affected. */
  readonly isDirectory: boolean
}

/** The last changes that other runs applied and did not undo, by absolute path. */
type OtherApplies = ReadonlyMap<string, OtherApply>

/** @param sinceMs ms since 1970; what was applied earlier is no reason for a conflict */
export async function nameOtherRuns(
  held: readonly HeldBack[],
  around: {
    readonly store: RunStore
    readonly runId: string
    readonly root: string
    readonly sinceMs: number
  },
  advice: (other: string) => string = () => '',
): Promise<HeldBack[]> {
  if (held.length === 0) return []
  const applies = await findOtherApplies(around)
  if (applies.size === 0) return [...held]
  return held.map((one) => {
    const found = find(applies, path.join(around.root, one.path))
    if (found === undefined) return one
    const { runId, at } = found.apply
    const what = found.isExact
      ? 'also changed'
      : `"${path.relative(around.root, found.place)}" was also changed`
    const when = at === undefined ? '' : `, applied ${formatTime(at)}`
    return { ...one, reason: `${what} by ${runId}${when}${advice(runId)}` }
  })
}

/** The change of this path, else of one above it, else of one below it. */
function find(
  applies: OtherApplies,
  wanted: string,
): { readonly place: string; readonly apply: OtherApply; readonly isExact: boolean } | undefined {
  for (let at = wanted; at !== path.dirname(at); at = path.dirname(at)) {
    const apply = applies.get(at)
    if (apply !== undefined && (at === wanted || !apply.isDirectory))
      return { place: at, apply, isExact: at === wanted }
  }
  for (const [place, apply] of applies)
    if (place.startsWith(`${wanted}/`)) return { place, apply, isExact: false }
  return undefined
}

async function findOtherApplies({
  store,
  runId,
  root,
  sinceMs,
}: Parameters<typeof nameOtherRuns>[1]): Promise<OtherApplies> {
  const found = new Map<string, OtherApply>()
  const isNear = (other: string) => `${other}/`.startsWith(`${root}/`) || `${root}/`.startsWith(`${other}/`)
  // A fleet has any number of runs. What was applied of them here is in folders of this machine.
  for (const { id: other, workspace, state } of await store.those(await store.ids())) {
    const isApplied = (state.applied ?? 0) > 0 || state.unfinished !== null
    if (other === runId || !isApplied || workspace === '' || !isNear(path.resolve(workspace))) continue
    for (const { path: name, at, after, outcome, place } of operationsOf(store.paths(other).directory)) {
      if (outcome === 'failed' || outcome === 'restored' || (at !== undefined && at < sinceMs)) continue
      const full = path.join(place, name)
      if ((found.get(full)?.at ?? -1) <= (at ?? 0))
        found.set(full, { runId: other, at, isDirectory: after.kind === 'directory' })
    }
  }
  return found
}

/** Nothing for a log that cannot be read: the conflict then keeps its general reason. */
function operationsOf(runDirectory: string) {
  try {
    const log = readApplyLog(runDirectory)
    return (log?.operations ?? []).map((operation) => ({ ...operation, place: log?.root ?? '' }))
  } catch {
    return []
  }
}
