/**
 * Determines the position of each path in the flag rules, under all names by which the host reaches it: its own, names
 * through links (of the host and the change set), and names in git's pointer files. Folds all names.
 */

import type { Turns } from '../yield-turns.ts'
import { crowded, enter, maxTracks, nowhere, type Track } from './flag-rules.ts'
import { foldFileName, foldPath } from './folded-path.ts'
import type { LinkTarget, LinkView } from './link-view.ts'
import type { Repositories } from './repositories.ts'

/** Maximum rounds in which links pass on positions; each follows one link more, and Linux follows 40. */
const MAX_ROUNDS = 40

/** Makes one place count as another: a link, or a file in which git finds a path. */
export interface Pointer {
  readonly path: string
  readonly target: string
  /** `link`: the target has the link's position. `git`: it is a `.git`. `common`: it is a repository's shared part. */
  readonly kind: 'link' | 'git' | 'common'
  /** Its owner; a pointer of the change set is itself flagged where it counts. */
  readonly from: 'host' | 'change'
}

interface Place {
  readonly folded: string
  readonly tracks: readonly Track[]
}

export class Places {
  readonly #links: Readonly<Record<Pointer['from'], LinkView>>
  readonly #repositories: Repositories
  /** Positions added by pointers, by folded path. */
  readonly #added = new Map<string, Track[]>()
  /** Folded directories between a pointer and its target, with the pointer. */
  readonly #ways = new Map<string, string>()
  /** Directories already judged. */
  readonly #known = new Map<string, Place>()

  /** @param links one view per side, so that links of the change set cannot use up the host's limit */
  constructor(links: Readonly<Record<Pointer['from'], LinkView>>, repositories: Repositories) {
    this.#links = links
    this.#repositories = repositories
  }

  /**
   * Follows pointers until none adds a position. Pointers without a position add none.
   * @returns the first host pointer that could not be followed; then no path is known to be harmless
   */
  async follow(pointers: readonly Pointer[], turns: Turns): Promise<string | undefined> {
    const targets = new Map<Pointer, readonly LinkTarget[]>()
    for (let round = 0; round < MAX_ROUNDS; round++) {
      let isNew = false
      for (const pointer of pointers) {
        if (turns.isDue) await turns.give()
        const tracks = this.#tracksGiven(pointer)
        if (tracks.length === 0) continue
        const known =
          targets.get(pointer) ?? this.#links[pointer.from].targetsOf(pointer.path, pointer.target)
        if (known === undefined && pointer.from === 'host') return pointer.path
        targets.set(pointer, known ?? [])
        for (const target of known ?? []) isNew = this.#add(pointer, target, tracks) || isNew
      }
      if (!isNew) return
      this.#known.clear()
    }
    return
  }

  /** The positions of a path. */
  at(path: string): readonly Track[] {
    return this.#place(path).tracks
  }

  /** The pointer that leads through a path, if any. */
  wayOf(path: string): string | undefined {
    return this.#ways.get(this.#place(path).folded)
  }

  #tracksGiven({ path, kind }: Pointer): readonly Track[] {
    if (kind === 'git') return [{ kind: 'git', below: '' }]
    if (kind === 'common') return [{ kind: 'repository', whole: false }]
    return this.at(path).filter((track) => track.kind !== 'flagged' || track.followsLinks)
  }

  #add(pointer: Pointer, target: LinkTarget, tracks: readonly Track[]): boolean {
    const to = foldPath(target.path)
    const has = this.#added.get(to) ?? []
    this.#added.set(to, has)
    for (const way of target.ways) this.#ways.set(foldPath(way), pointer.path)
    const before = has.length
    for (const track of tracks) {
      if (has.length >= maxTracks) break
      const added = has.length === maxTracks - 1 ? crowded : { ...track, via: track.via ?? pointer.path }
      if (!has.some((known) => isSame(known, added))) has.push(added)
    }
    return has.length > before
  }

  #directory(path: string): Place {
    const known = this.#known.get(path)
    if (known !== undefined) return known
    const found = this.#place(path)
    this.#known.set(path, found)
    return found
  }

  #place(path: string): Place {
    if (path === '') return { folded: '', tracks: this.#with('', nowhere) }
    const end = path.lastIndexOf('/')
    const above = this.#directory(path.slice(0, Math.max(0, end)))
    const name = foldFileName(path.slice(end + 1))
    const folded = above.folded === '' ? name : `${above.folded}/${name}`
    return { folded, tracks: this.#with(folded, enter(above.tracks, name)) }
  }

  #with(folded: string, tracks: readonly Track[]): readonly Track[] {
    const added = this.#added.get(folded) ?? nowhere
    // Contents of a `.git`, or of a host repository, already have that position.
    const isInGit = tracks.some((track) => track.kind === 'git')
    const repository = isInGit ? undefined : this.#repositories.at(folded)
    if (added.length === 0 && repository === undefined) return tracks
    const isKnown = isInGit || repository === 'whole'
    const all = [...tracks, ...added.filter(({ kind }) => !(isKnown && kind === 'repository'))]
    if (repository !== undefined) all.push({ kind: 'repository', whole: repository === 'whole' })
    return all.length > maxTracks ? [crowded] : all
  }
}

function isSame(a: Track, b: Track): boolean {
  if (a.kind === 'flagged') return b.kind === 'flagged' && a.reason === b.reason
  if (a.kind === 'content') return b.kind === 'content' && a.name === b.name
  if (a.kind === 'begun') return b.kind === 'begun' && a.pattern === b.pattern && a.count === b.count
  if (a.kind === 'git') return b.kind === 'git' && a.below === b.below
  return b.kind === 'repository' && a.whole === b.whole
}
