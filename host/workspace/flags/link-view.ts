/**
 * Resolves links name by name, through the links of the change set and of the host. Uses descriptors and never follows
 * a link; a hostile change set can make it give up, but not run for long.
 */
import { realpathSync } from 'node:fs'
import path from 'node:path'
import type { Root } from '#specs/node/descriptor-walk.ts'
import { decodePath, encodePath } from '#specs/node/path-text.ts'
import type { StoredChange } from '../change-set.ts'

/** Maximum links in one path; Linux's own limit. */
const MAX_LINKS = 40
/** Cost limit of all lookups in one view: one per character of a path, and this many per name looked up on the host. */
const MAX_COST = 200_000_000
const COST_OF_NAME = 3_000

/** Kind of a name: a link with its target, anything that may have children, or the end of the host's tree. */
type Name = { readonly target: string } | 'way' | 'end'

/** Target of a link inside the workspace. */
export interface LinkTarget {
  readonly path: string
  /** Paths that it passes through. */
  readonly ways: readonly string[]
}

/** Where a link ends: inside, outside, nowhere (the system would not follow it either), or unknown with the reason. */
type End = LinkTarget | { readonly out: string } | { readonly endless: string } | { readonly lost: string }

export class LinkView {
  readonly #root: Root
  readonly #changes: ReadonlyMap<string, StoredChange>
  readonly #maxCost: number
  readonly #onHost = new Map<string, Name>()
  #cost = 0

  /** @param maxCost cost limit of all lookups. Absent: {@link MAX_COST} */
  constructor(root: Root, changes: ReadonlyMap<string, StoredChange>, maxCost = MAX_COST) {
    this.#root = root
    this.#changes = changes
    this.#maxCost = maxCost
  }

  /**
   * Targets in the workspace of a link at `at`: after the changes, and on the current host, even through outside paths.
   * @returns undefined when following it would cost too much
   */
  targetsOf(at: string, target: string): readonly LinkTarget[] | undefined {
    const ends = [this.#changes, new Map()].map((changes) => this.#follow(at, target, changes))
    if (ends.some((end) => 'lost' in end)) return
    return [...ends.filter((end) => 'path' in end), ...this.#realTarget(at)]
  }

  /** Where the system itself resolves a path of the host. */
  #realTarget(at: string): LinkTarget[] {
    try {
      const place = Buffer.concat([Buffer.from(`${this.#root.path}/`), encodePath(at)])
      const real = decodePath(realpathSync.native(place, { encoding: 'buffer' }))
      const below = this.#below(real)
      return below === undefined ? [] : [{ path: below, ways: [] }]
    } catch {
      return []
    }
  }

  /**
   * Whether a link at `at` leaves the workspace through another link: after the changes, or on the current host, since
   * not every change need be applied.
   * @returns why it does, or may; undefined if it does not
   */
  leadsOut(at: string, target: string): string | undefined {
    for (const changes of [this.#changes, new Map()]) {
      const end = this.#follow(at, target, changes)
      if ('lost' in end) return end.lost
      if ('endless' in end) return end.endless
      if ('out' in end) return end.out
    }
    return
  }

  #follow(at: string, target: string, changes: ReadonlyMap<string, StoredChange>): End {
    const resolved = at.split('/').slice(0, -1)
    const pending = (target.startsWith('/') ? (this.#below(target) ?? '/..') : target).split('/').reverse()
    if (target.startsWith('/')) resolved.length = 0
    const ways = new Set<string>()
    let via: string | undefined
    let links = 0
    /** Number of names until the host's tree ends; deeper names are not looked up. */
    let end = Number.POSITIVE_INFINITY
    for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
      if (name === '' || name === '.') continue
      if (name === '..') {
        if (resolved.pop() === undefined) return { out: describe(via) }
        continue
      }
      if (resolved.length < end) end = Number.POSITIVE_INFINITY
      resolved.push(name)
      const here = resolved.join('/')
      this.#cost += here.length
      const found = here === at ? 'way' : this.#nameAt(here, changes, resolved.length <= end)
      if (this.#cost > this.#maxCost) return { lost: 'a link among too many to follow' }
      if (found === 'end') end = Math.min(end, resolved.length)
      ways.add(here)
      if (typeof found === 'string') continue
      if (++links > MAX_LINKS) return { endless: 'a link that goes through too many others' }
      via ??= here
      resolved.pop()
      const below = found.target.startsWith('/') ? this.#below(found.target) : found.target
      if (below === undefined) return { out: describe(via) }
      if (found.target.startsWith('/')) resolved.length = 0
      pending.push(...below.split('/').reverse())
    }
    const path = resolved.join('/')
    ways.delete(path)
    return { path, ways: [...ways] }
  }

  #nameAt(path: string, changes: ReadonlyMap<string, StoredChange>, mayLook: boolean): Name {
    const change = changes.get(path)
    if (change?.kind === 'link') return { target: change.target }
    if (change !== undefined && change.kind !== 'mode') return 'way'
    if (!mayLook) return 'end'
    const known = this.#onHost.get(path)
    if (known !== undefined) return known
    this.#cost += COST_OF_NAME * path.split('/').length
    const found = this.#look(path)
    this.#onHost.set(path, found)
    return found
  }

  #look(path: string): Name {
    const located = this.#root.locate(path, { links: 'refuse' })
    if (!located.ok) return 'end'
    using place = located.value
    const stat = place.stat()
    if (!stat.ok) return 'end'
    const read = stat.value.isSymbolicLink() ? place.readLink() : undefined
    if (read?.ok === true) return { target: read.value }
    return stat.value.isDirectory() ? 'way' : 'end'
  }

  /** The part of an absolute target below the workspace. */
  #below(target: string): string | undefined {
    if (target === this.#root.path) return ''
    return target.startsWith(`${this.#root.path}/`) ? target.slice(this.#root.path.length + 1) : undefined
  }
}

function describe(via: string | undefined): string {
  return via === undefined
    ? 'a link that leads out of the workspace'
    : `a link that leads out of the workspace, by way of the link "${via}"`.slice(0, 500)
}

/**
 * Whether a link at `at` leaves the workspace, or may: `..` after a name goes up from wherever that name leads,
 * possibly a link to a shallower place, so the text alone is not enough.
 */
export function leadsOutside(at: string, target: string): boolean {
  if (target.startsWith('/')) return true
  const names = target.split('/').filter((name) => name !== '' && name !== '.')
  if (
    names.slice(names.findIndex((name) => name !== '..')).includes('..') &&
    names.some((name) => name !== '..')
  )
    return true
  const reached = path.posix.normalize(path.posix.join(path.posix.dirname(at), target))
  return reached === '..' || reached.startsWith('../')
}
