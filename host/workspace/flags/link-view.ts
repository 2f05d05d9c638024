/**
 * Where a link leads: name by name, through the links of the change set and those that lie on the host. Looks by
 * descriptor and never follows one; a hostile change set can make it give up, not make it go on for long.
 */
import { realpathSync } from 'node:fs'
import path from 'node:path'
import type { Root } from '#specs/node/descriptor-walk.ts'
import { decodePath, encodePath } from '#specs/node/path-text.ts'
import type { StoredChange } from '../change-set.ts'

/** Links that one path may go through; Linux's own bound. */
const MAX_LINKS = 40
/** What all looks of one view may cost: a character of a path counts one, a name looked for on the host this many. */
const MAX_COST = 200_000_000
const COST_OF_NAME = 3_000

/** What a name is: a link with its target, anything that may have names below it, or the end of what the host has. */
type Name = { readonly target: string } | 'way' | 'end'

/** Where a link leads in the workspace. */
export interface LinkTarget {
  readonly path: string
  /** What it passes through on the way there. */
  readonly ways: readonly string[]
}

/**
 * Where following a link ends: inside, outside, nowhere since the system would not follow it as far either, or at a
 * place that cannot be said, with the reason.
 */
type End = LinkTarget | { readonly out: string } | { readonly endless: string } | { readonly lost: string }

export class LinkView {
  readonly #root: Root
  readonly #changes: ReadonlyMap<string, StoredChange>
  readonly #maxCost: number
  readonly #onHost = new Map<string, Name>()
  #cost = 0

  /** @param maxCost what all looks may cost; absent: {@link MAX_COST} */
  constructor(root: Root, changes: ReadonlyMap<string, StoredChange>, maxCost = MAX_COST) {
    this.#root = root
    this.#changes = changes
    this.#maxCost = maxCost
  }

  /**
   * What a link at `at` with this target leads to in the workspace: as it will be, and as the host is now, by a way
   * outside too.
   * @returns nothing when following it would cost too much
   */
  targetsOf(at: string, target: string): readonly LinkTarget[] | undefined {
    const ends = [this.#changes, new Map()].map((changes) => this.#follow(at, target, changes))
    if (ends.some((end) => 'lost' in end)) return
    return [...ends.filter((end) => 'path' in end), ...this.#realTarget(at)]
  }

  /** Where the system itself finds what is at a path of the host. */
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
   * Whether a link at `at` with this target leads out of the workspace by way of another link: as it will be, or, for
   * not every change need be applied, as the host is now.
   * @returns why it does, or may, in words; nothing if it does not
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
    /** How many names lead to where the host ends; what is below that is not looked for. */
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
 * Whether a link at `at` with this target leads out of the workspace, or may: `..` behind a name goes up from
 * wherever that name leads, which may be a link to a shallower place, so the text alone does not tell.
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
