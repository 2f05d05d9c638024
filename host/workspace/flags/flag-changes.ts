/**
 * Decides why a change must be named to be applied: by its path under all names, its content, its link target, and
 * git's configuration on the host. Reads the host and changes nothing.
 */
import { readWhole, type StoredChange, type StoredFile } from '../change-set.ts'
import type { ManifestIndex } from '../conflicts.ts'
import type { ManifestEntry } from '../manifest.ts'
import type { Turns } from '../yield-turns.ts'
import { judge } from './flag-rules.ts'
import { GitPointers } from './git-pointers.ts'
import { LinkView, leadsOutside } from './link-view.ts'
import { lockReason, packageReason } from './package-files.ts'
import { Places } from './places.ts'
import { type FlagSurroundings, findPointers } from './pointers.ts'
import { Repositories } from './repositories.ts'

/** A larger package.json or lock file is flagged without parsing. */
const CONTENT_MAX_BYTES = 16 * 1024 * 1024

/** A file or link in its new state, from a change or from git's history. */
interface FlagSubject {
  readonly path: string
  readonly kind: 'file' | 'link'
  /** A link's target. */
  readonly target?: string
  /** Content before and after; undefined if there is none, null if it is not examined. */
  before(): Buffer | undefined | null
  after(): Buffer | undefined | null
}

export class Flagger {
  readonly #around: FlagSurroundings
  readonly #turns: Turns
  readonly #links: LinkView
  readonly #places: Places
  readonly #git: GitPointers
  /** A link of the host that could not be followed. */
  #unread: string | undefined

  private constructor(around: FlagSurroundings, repositories: Repositories, turns: Turns) {
    const { root, index, changes } = around
    this.#around = around
    this.#turns = turns
    this.#links = new LinkView(root, changes.entries)
    const views = { host: new LinkView(root, changes.entries), change: this.#links }
    this.#places = new Places(views, repositories)
    this.#git = new GitPointers(index.manifest.root, repositoriesOf(index))
  }

  /** Analyzes the whole tree, so that {@link reasonFor} can judge each change separately. */
  static async create(around: FlagSurroundings, turns: Turns): Promise<Flagger> {
    const flagger = new Flagger(around, await findRepositories(around, turns), turns)
    flagger.#unread = await flagger.#places.follow(await findPointers(around, turns), turns)
    return flagger
  }

  /** Why a change must be named; undefined if not. A removed directory is flagged for its flagged contents. */
  async reasonFor(change: StoredChange): Promise<string | undefined> {
    const { path } = change
    const entry = this.#around.index.get(path)
    const kind = change.kind === 'deleted' || change.kind === 'mode' ? (entry?.kind ?? 'file') : change.kind
    if (kind === 'unsupported') return
    if (entry !== undefined && entry.kind !== kind && this.#isDotGit(path))
      return 'it tells git where its configuration lies, and becomes another kind of file'
    const own =
      kind === 'directory' ? this.#placeReason(path, kind) : this.reasonOf(this.#subject(change, kind))
    return own ?? (await this.#reasonBelow(change, entry))
  }

  /** Why a file or link must be named; undefined if not. */
  reasonOf(subject: FlagSubject): string | undefined {
    const { path, kind, target } = subject
    const link = kind === 'link' && target !== undefined ? this.#linkReason(path, target) : undefined
    return (
      link ?? this.#placeReason(path, kind) ?? (kind === 'file' ? this.#contentReason(subject) : undefined)
    )
  }

  /** Whether git on the host treats a directory as a repository, or as the `.git` of a working tree. */
  isRepository(directory: string): boolean {
    return this.#places
      .at(directory)
      .some(
        (track) =>
          (track.kind === 'git' && track.below === '') || (track.kind === 'repository' && track.whole),
      )
  }

  #subject(change: StoredChange, kind: 'file' | 'link'): FlagSubject {
    const { path } = change
    return {
      path,
      kind,
      ...(change.kind === 'link' ? { target: change.target } : {}),
      before: () => (this.#around.index.get(path)?.kind === 'file' ? this.#contentBefore(path) : undefined),
      after: () => (change.kind === 'file' ? this.#contentAfter(change) : undefined),
    }
  }

  #linkReason(path: string, target: string): string | undefined {
    if (leadsOutside(path, target)) return 'a link that leads out of the workspace'
    if (/(^|\/)\.[^/]*$/.test(path)) return 'a link in the place of hidden configuration'
    const way = this.#places.wayOf(path)
    if (way !== undefined) return `a link on the way to where "${way}" leads`.slice(0, 500)
    return this.#links.leadsOut(path, target)
  }

  /** By path alone, regardless of content. */
  #placeReason(path: string, kind: 'file' | 'directory' | 'link'): string | undefined {
    if (kind !== 'directory' && this.#unread !== undefined)
      return `the link "${this.#unread}" is too long a way to follow, and may lead to it`.slice(0, 500)
    const found = judge(this.#places.at(path), kind)
    if (found === undefined) return this.#git.reasonFor(path, kind)
    return found.via === undefined ? found.reason : `${found.reason}, by way of "${found.via}"`.slice(0, 500)
  }

  /** Reason for a package.json or lock file. */
  #contentReason({ path, before, after }: FlagSubject): string | undefined {
    const track = this.#places.at(path).find(({ kind }) => kind === 'content')
    if (track?.kind !== 'content') return
    const [old, now] = [before(), after()]
    if (now === undefined) return
    const isUnread = old === null || now === null || now.length > CONTENT_MAX_BYTES
    if (isUnread) return 'it is too large, or cannot be read, to see whether it changes what runs'
    const texts = [old?.toString('utf8'), now.toString('utf8')] as const
    return track.name === 'package.json' ? packageReason(...texts) : lockReason(track.name, ...texts)
  }

  #isDotGit(path: string): boolean {
    return this.#places.at(path).some((track) => track.kind === 'git' && track.below === '')
  }

  #contentAfter({ size, offset }: StoredFile): Buffer | null {
    return size > CONTENT_MAX_BYTES ? null : readWhole(this.#around.contents, offset, size)
  }

  #contentBefore(path: string): Buffer | null {
    const located = this.#around.root.locate(path, { links: 'refuse' })
    if (!located.ok) return null
    using place = located.value
    const opened = place.openFile()
    if (!opened.ok) return null
    using file = opened.value
    return file.stat.size > CONTENT_MAX_BYTES ? null : readWhole(file.fd, 0, file.stat.size)
  }

  async #reasonBelow(change: StoredChange, entry: ManifestEntry | undefined): Promise<string | undefined> {
    if (entry?.kind !== 'directory' || change.kind === 'directory' || change.kind === 'mode') return
    const { index } = this.#around
    for (const path of index.below(change.path)) {
      if (this.#turns.isDue) await this.#turns.give()
      if (index.get(path)?.kind !== 'file') continue
      const reason = this.#placeReason(path, 'file')
      if (reason !== undefined) return `"${path}" in it: ${reason}`.slice(0, 500)
    }
    return
  }
}

/** Directories with their own `.git`, copied into the VM or not. */
function repositoriesOf({ manifest }: ManifestIndex): string[] {
  const all = [...manifest.entries.keys(), ...manifest.leftOut.map(({ path }) => path.replace(/\/$/, ''))]
  return all.filter((path) => path.endsWith('/.git')).map((path) => path.slice(0, -'/.git'.length))
}

/** Directories that git would treat as a repository because of their contents. */
async function findRepositories({ index, changes }: FlagSurroundings, turns: Turns): Promise<Repositories> {
  const found = new Repositories()
  for (const path of index.manifest.entries.keys()) {
    if (turns.isDue) await turns.give()
    found.add(path, 'host')
  }
  for (const { path } of index.manifest.leftOut) found.add(path.replace(/\/$/, ''), 'host')
  for (const change of changes.entries.values()) {
    if (turns.isDue) await turns.give()
    if (change.kind !== 'deleted' && change.kind !== 'unsupported') found.add(change.path, 'change')
  }
  return found
}
