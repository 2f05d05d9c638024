/**
 * Why a change of a review must be named to be applied: by its place, by what it does there, by where it leads, and by
 * what git's configuration on the host says of it. Looks at the host and changes nothing.
 */
import type { Root } from '#specs/node/descriptor-walk.ts'
import { type ChangeSet, readSlices, type StoredChange, type StoredFile } from './change-set.ts'
import type { ManifestIndex } from './conflicts.ts'
import { changesPackageScripts, flagOf } from './flagged.ts'
import type { HistorySubject } from './git-history/examine.ts'
import { GitPointers } from './git-pointers.ts'
import { LinkView } from './link-view.ts'
import type { ManifestEntry } from './manifest.ts'

/** A package.json larger than this is flagged without a look. */
const PACKAGE_MAX_BYTES = 1024 * 1024

const packageName = /(^|\/)package\.json$/i
const linkedPackage = 'a link in the place of package.json'
const changedScripts = 'its scripts run at install, test or start'

export interface FlagSurroundings {
  readonly root: Root
  readonly index: ManifestIndex
  readonly changes: ChangeSet
  /** Descriptor of the change set's contents; -1 when it has none. */
  readonly contents: number
}

export class Flagger {
  readonly #around: FlagSurroundings
  readonly #exists: (path: string) => boolean
  readonly #links: LinkView
  readonly #git: GitPointers

  constructor(around: FlagSurroundings) {
    const { root, index, changes } = around
    this.#around = around
    this.#exists = existenceAfter(index, changes)
    this.#links = new LinkView(root, changes.entries)
    this.#git = new GitPointers(index.manifest.root, repositoriesOf(index))
  }

  /** Why it must be named; nothing if it need not. For a directory that goes, what in it is flagged counts. */
  reasonFor(change: StoredChange): string | undefined {
    const entry = this.#around.index.get(change.path)
    const kind = change.kind === 'deleted' || change.kind === 'mode' ? (entry?.kind ?? 'file') : change.kind
    if (kind === 'unsupported') return
    return (
      this.#ownReason(change, kind, entry) ??
      this.#packageReason(change, entry) ??
      this.#git.reasonFor(change.path, kind) ??
      this.#reasonBelow(change, entry)
    )
  }

  /** The same for a file or link that git's history would put into the workspace. */
  reasonInHistory({ path, kind, target, before, after }: HistorySubject): string | undefined {
    const own = flagOf({ path, kind, exists: this.#exists, ...(target === undefined ? {} : { target }) })
    if (own !== undefined) return own
    if (kind === 'link') {
      if (packageName.test(path)) return linkedPackage
      return this.#links.leadsOut(path, target ?? '') ?? this.#git.reasonFor(path, kind)
    }
    if (packageName.test(path)) {
      const now = after()
      if (
        now !== undefined &&
        (now.length > PACKAGE_MAX_BYTES || changesPackageScripts(before()?.toString(), now.toString()))
      )
        return changedScripts
    }
    return this.#git.reasonFor(path, kind)
  }

  #ownReason(
    change: StoredChange,
    kind: 'file' | 'directory' | 'link',
    entry: ManifestEntry | undefined,
  ): string | undefined {
    const target = change.kind === 'link' ? change.target : entry?.kind === 'link' ? entry.target : undefined
    // A link that goes away leads nowhere.
    if (change.kind === 'deleted' && kind === 'link') return
    const flagged = flagOf({
      path: change.path,
      kind,
      exists: this.#exists,
      ...(target === undefined ? {} : { target }),
    })
    return flagged ?? (change.kind === 'link' ? this.#links.leadsOut(change.path, change.target) : undefined)
  }

  #packageReason(change: StoredChange, entry: ManifestEntry | undefined): string | undefined {
    if (!packageName.test(change.path)) return
    if (change.kind === 'link') return linkedPackage
    if (change.kind !== 'file' || !packageScriptsChange(this.#around, change, entry)) return
    return changedScripts
  }

  #reasonBelow(change: StoredChange, entry: ManifestEntry | undefined): string | undefined {
    if (entry?.kind !== 'directory' || change.kind === 'directory' || change.kind === 'mode') return
    const { index } = this.#around
    for (const path of index.below(change.path)) {
      if (index.get(path)?.kind !== 'file') continue
      const reason = flagOf({ path, kind: 'file', exists: this.#exists }) ?? this.#git.reasonFor(path, 'file')
      if (reason !== undefined) return `"${path}" in it: ${reason}`.slice(0, 500)
    }
    return
  }
}

/** Directories with a repository of their own, whether it went into the VM or was left out. */
function repositoriesOf({ manifest }: ManifestIndex): string[] {
  const all = [...manifest.entries.keys(), ...manifest.leftOut.map(({ path }) => path.replace(/\/$/, ''))]
  return all.filter((path) => path.endsWith('/.git')).map((path) => path.slice(0, -'/.git'.length))
}

function packageScriptsChange(
  around: FlagSurroundings,
  change: StoredFile,
  entry: ManifestEntry | undefined,
): boolean {
  if (change.size > PACKAGE_MAX_BYTES) return true
  const after = Buffer.concat(
    [...readSlices(around.contents, change.offset, change.size)].map((piece) => Buffer.from(piece)),
  )
  if (entry?.kind !== 'file') return changesPackageScripts(undefined, after.toString('utf8'))
  const located = around.root.locate(change.path, { links: 'refuse' })
  if (!located.ok) return true
  using place = located.value
  const opened = place.openFile()
  if (!opened.ok || opened.value.stat.size > PACKAGE_MAX_BYTES) {
    if (opened.ok) opened.value[Symbol.dispose]()
    return true
  }
  using file = opened.value
  const before = Buffer.concat([...readSlices(file.fd, 0, file.stat.size)].map((piece) => Buffer.from(piece)))
  return changesPackageScripts(before.toString('utf8'), after.toString('utf8'))
}

/** Whether a path is there once all changes are applied. */
function existenceAfter(index: ManifestIndex, changes: ChangeSet): (path: string) => boolean {
  return (path) => {
    const own = changes.entries.get(path)
    if (own !== undefined) return own.kind !== 'deleted'
    if (index.get(path) === undefined) return false
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) {
      const above = changes.entries.get(path.slice(0, at))
      if (above !== undefined && above.kind !== 'directory' && above.kind !== 'mode') return false
    }
    return true
  }
}
