/** Finds the commits that the change set adds to the host's history, and the paths they change. */
import { type HistoryBudget, NotExaminable } from './budget.ts'
import { type Commit, type ObjectStore, parseCommit, parseTree, type TreeEntry } from './objects.ts'

/** Maximum nesting of tags. */
const MAX_TAGS = 16
const MAX_DEPTH = 256
/** New commits walked before the host's own are read. */
const NEAR_COMMITS = 1_000

interface NewHistory {
  readonly commits: readonly { readonly id: string; readonly commit: Commit }[]
  /** Trees named without a commit, by a tag or a pseudo-reference. */
  readonly trees: readonly string[]
}

/** Everything reachable from `newIds` and not from `hostIds`. @throws {NotExaminable} */
export async function findNewHistory(
  store: ObjectStore,
  newIds: ReadonlySet<string>,
  hostIds: ReadonlySet<string>,
  budget: HistoryBudget,
): Promise<NewHistory> {
  const tips = new Set<string>()
  const trees: string[] = []
  for (const id of newIds) {
    const peeled = peel(store, id)
    if (peeled.type === 'commit') tips.add(peeled.id)
    else if (peeled.type === 'tree') trees.push(peeled.id)
  }
  const near = await walkNear(store, tips, hostIds, budget)
  return { commits: near ?? (await walkByDate(store, tips, hostIds, budget)), trees }
}

function peel(store: ObjectStore, id: string): { id: string; type: string } {
  let at = id
  for (let tags = 0; tags < MAX_TAGS; tags++) {
    const object = store.read(at)
    if (object.type !== 'tag') return { id: at, type: object.type }
    const named = /^object ([0-9a-f]{40,64})\n/.exec(object.data.toString('latin1', 0, 80))?.[1]
    if (named === undefined) break
    at = named
  }
  throw new NotExaminable('a tag is damaged')
}

type Found = { readonly id: string; readonly commit: Commit }[]

/** The usual case: a few commits on top of the host's. Undefined if one of them leads elsewhere. */
async function walkNear(
  store: ObjectStore,
  tips: ReadonlySet<string>,
  hostIds: ReadonlySet<string>,
  budget: HistoryBudget,
): Promise<Found | undefined> {
  const found = new Map<string, Commit>()
  const pending = [...tips].filter((id) => !hostIds.has(id))
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
    if (found.has(id)) continue
    if (found.size >= NEAR_COMMITS) return
    await budget.pause()
    budget.commit()
    const commit = parseCommit(store.read(id))
    // The start of a separate history, or an early commit of the host.
    if (commit.parents.length === 0 && hostIds.size > 0) return
    found.set(id, commit)
    pending.push(...commit.parents.filter((parent) => !hostIds.has(parent)))
  }
  return [...found].map(([id, commit]) => ({ id, commit }))
}

interface Waiting {
  readonly id: string
  readonly commit: Commit
}

/**
 * Walks both histories by date, like git, until no new commit is left. With wrong dates, host commits may count as new,
 * but never the reverse.
 */
async function walkByDate(
  store: ObjectStore,
  tips: ReadonlySet<string>,
  hostIds: ReadonlySet<string>,
  budget: HistoryBudget,
): Promise<Found> {
  const own = new Set<string>()
  const fresh = new Map<string, Commit>()
  const known = new Map<string, Commit>()
  const waiting = new Heap()
  let freshWaiting = 0
  const enqueue = (id: string, isOwn: boolean) => {
    const commit = readCommit(store, id, isOwn, budget)
    if (commit === undefined) return
    known.set(id, commit)
    waiting.push({ id, commit })
    if (!isOwn) freshWaiting++
  }
  const addFresh = (id: string) => {
    if (!own.has(id) && !known.has(id)) enqueue(id, false)
  }
  const addOwn = (first: string) => {
    const pending = [first]
    for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
      if (own.has(id)) continue
      own.add(id)
      // Already counted as new on another path: its parents belong to the host too.
      if (fresh.delete(id)) pending.push(...(known.get(id)?.parents ?? []))
      else if (known.has(id)) freshWaiting--
      else enqueue(id, true)
    }
  }
  for (const id of hostIds) {
    await budget.pause()
    const commit = peelOwn(store, id)
    if (commit !== undefined) addOwn(commit)
  }
  for (const id of tips) addFresh(id)
  while (freshWaiting > 0) {
    await budget.pause()
    const next = waiting.pop()
    if (next === undefined) break
    if (own.has(next.id)) {
      for (const parent of next.commit.parents) addOwn(parent)
      continue
    }
    freshWaiting--
    fresh.set(next.id, next.commit)
    for (const parent of next.commit.parents) addFresh(parent)
  }
  return [...fresh].map(([id, commit]) => ({ id, commit }))
}

function readCommit(
  store: ObjectStore,
  id: string,
  isOwn: boolean,
  budget: HistoryBudget,
): Commit | undefined {
  budget.commit()
  if (!isOwn) return parseCommit(store.read(id))
  try {
    return parseCommit(store.read(id))
  } catch (thrown) {
    // The host's own history may end early: a shallow clone, an expired log.
    if (thrown instanceof NotExaminable) return
    throw thrown
  }
}

function peelOwn(store: ObjectStore, id: string): string | undefined {
  try {
    const peeled = peel(store, id)
    return peeled.type === 'commit' ? peeled.id : undefined
  } catch (thrown) {
    if (thrown instanceof NotExaminable) return
    throw thrown
  }
}

/** Latest first. */
class Heap {
  readonly #items: Waiting[] = []

  push(item: Waiting): void {
    let at = this.#items.push(item) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (this.#date(above) >= item.commit.date) break
      this.#swap(at, above)
      at = above
    }
  }

  pop(): Waiting | undefined {
    const first = this.#items[0]
    const last = this.#items.pop()
    if (first === undefined || last === undefined || this.#items.length === 0) return first
    this.#items[0] = last
    for (let at = 0; ; ) {
      const left = at * 2 + 1
      const child = this.#date(left + 1) > this.#date(left) ? left + 1 : left
      if (this.#date(child) <= this.#date(at)) return first
      this.#swap(at, child)
      at = child
    }
  }

  #date(at: number): number {
    return this.#items[at]?.commit.date ?? -1
  }

  #swap(left: number, right: number): void {
    const [a, b] = [this.#items[left], this.#items[right]]
    if (a === undefined || b === undefined) return
    this.#items[left] = b
    this.#items[right] = a
  }
}

/** A path changed by a commit, compared with all its parents. */
export interface ChangedPath {
  readonly path: string
  /** Absent: the commit deletes the path. */
  readonly after?: TreeEntry
  /** The entry in the first parent that has it. */
  readonly before?: TreeEntry
}

/** Files and links in which a tree differs from each of several others. @throws {NotExaminable} */
export async function* changedPaths(
  store: ObjectStore,
  tree: string,
  bases: readonly string[],
  budget: HistoryBudget,
): AsyncGenerator<ChangedPath, void, undefined> {
  const read = (id: string) => parseTree(store.read(id), store.idBytes)
  const pending = [{ path: '', depth: 0, own: tree as string | undefined, bases }]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    await budget.pause()
    if (at.depth > MAX_DEPTH) throw new NotExaminable('its trees are too deep')
    const entries = at.own === undefined ? new Map<string, TreeEntry>() : read(at.own)
    const others = at.bases.map(read)
    const prefix = at.path === '' ? '' : `${at.path}/`
    for (const name of new Set([...entries.keys(), ...others.flatMap((other) => [...other.keys()])])) {
      const after = entries.get(name)
      const before = others.map((other) => other.get(name))
      // An entry that one parent also has was judged there.
      if (isAnyOf(after, before)) continue
      const path = prefix + name
      if (Buffer.byteLength(path) > 4_096) throw new NotExaminable('its trees are too deep')
      const below = before.flatMap((entry) => (entry?.kind === 'tree' ? [entry.id] : []))
      if (after?.kind === 'tree' || below.length > 0)
        pending.push({
          path,
          depth: at.depth + 1,
          own: after?.kind === 'tree' ? after.id : undefined,
          bases: below,
        })
      const old = before.find((entry) => entry !== undefined && entry.kind !== 'tree')
      const now = after?.kind === 'tree' ? undefined : after
      if (now !== undefined || old !== undefined)
        yield {
          path,
          ...(now === undefined ? {} : { after: now }),
          ...(old === undefined ? {} : { before: old }),
        }
    }
  }
}

/** A merge may take each entry, or its absence, from any parent. Without a parent everything is new. */
function isAnyOf(after: TreeEntry | undefined, before: readonly (TreeEntry | undefined)[]): boolean {
  return before.some((entry) =>
    entry === undefined || after === undefined
      ? entry === after
      : entry.id === after.id && entry.mode === after.mode,
  )
}
