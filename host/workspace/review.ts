/**
 * What a person reviews: each change with what it does, its sizes, whether it is flagged and how it stands to the
 * host as it is now. Changes nothing.
 */
import { closeSync, readSync } from 'node:fs'
import path from 'node:path'
import { Root } from '#specs/node/descriptor-walk.ts'
import { type ChangeSet, openContents, readSlices, type StoredChange, type StoredFile } from './change-set.ts'
import { ManifestIndex, type Standing, StandingFinder } from './conflicts.ts'
import { changesPackageScripts, flagOf } from './flagged.ts'
import type { Manifest, ManifestEntry } from './manifest.ts'
import { failureOf, type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'
import { readOwnStates } from './write-ahead.ts'

/** Bytes looked at to tell text from binary; git's number. */
const SNIFF_BYTES = 8_000
/** A package.json larger than this is flagged without a look. */
const PACKAGE_MAX_BYTES = 1024 * 1024

/** Deleted files with one content that are looked at for the name of a new one. */
const RENAME_CANDIDATES = 64

/** One side of a change. */
export interface ReviewSide {
  readonly kind: 'file' | 'directory' | 'link'
  /** Permission bits. */
  readonly mode?: number
  /** Bytes of a file. */
  readonly size?: number
  /** A link's target. */
  readonly target?: string
}

export interface ReviewItem {
  readonly path: string
  /** `modified` includes a change of kind; `mode` is the permission bits alone. */
  readonly change: 'added' | 'modified' | 'deleted' | 'mode' | 'unsupported'
  readonly before?: ReviewSide
  readonly after?: ReviewSide
  /** Whether the new content is not text; only for files. */
  readonly binary?: boolean
  /** What a deletion, or the end of a directory, takes with it. */
  readonly filesBelow?: number
  /** The deleted path that had the same content; both changes stay separate. */
  readonly renamedFrom?: string
  readonly renamedTo?: string
  /** Why it must be named to be applied. */
  readonly flagged?: string
  readonly standing: Standing
  /** Why it cannot come home; only for `unsupported`. The guest's words. */
  readonly reason?: string
}

export interface Review extends Disposable {
  readonly root: Root
  readonly index: ManifestIndex
  readonly changes: ChangeSet
  /** In the order of paths. */
  readonly items: readonly ReviewItem[]
}

/**
 * Joins change set, manifest and host. The caller disposes the review. The directory itself may have been replaced
 * by another of the same path: each path is compared by itself. Failures: `unreadable`, `damaged`, `internal`.
 */
export function reviewChanges(manifest: Manifest, changes: ChangeSet): WorkspaceResult<Review> {
  const opened = Root.open(manifest.root)
  if (!opened.ok) return workspaceFailure('unreadable', `reviewing the changes: ${opened.error.message}`)
  const root = opened.value
  let contents: number | undefined
  try {
    const index = new ManifestIndex(manifest)
    contents = openContents(changes.paths.contents)
    const renames = findRenames(index, changes)
    const exists = existenceAfter(index, changes)
    const own = readOwnStates(path.dirname(changes.paths.entries))
    const standings = new StandingFinder(root, index, own)
    const items = [...changes.entries.values()].map((change) =>
      makeItem({ root, index, contents: contents ?? -1, exists, renames, standings }, change),
    )
    return workspaceSuccess({ root, index, changes, items, [Symbol.dispose]: () => root[Symbol.dispose]() })
  } catch (thrown) {
    root[Symbol.dispose]()
    return failureOf('reviewing the changes', thrown)
  } finally {
    if (contents !== undefined) closeSync(contents)
  }
}

/** Whether "apply all" takes an item; otherwise why not. */
export function holdBack(item: ReviewItem): string | undefined {
  if (item.change === 'unsupported') return `it cannot come home: ${item.reason ?? ''}`
  if (item.standing.kind === 'conflict') return item.standing.reason
  return item.flagged
}

/** The paths of a change set that are flagged, in order. Failures: as {@link reviewChanges}. */
export function flaggedPaths(manifest: Manifest, changes: ChangeSet): WorkspaceResult<string[]> {
  const reviewed = reviewChanges(manifest, changes)
  if (!reviewed.ok) return reviewed
  using review = reviewed.value
  return workspaceSuccess(review.items.filter(({ flagged }) => flagged !== undefined).map(({ path }) => path))
}

interface Surroundings {
  readonly root: Root
  readonly index: ManifestIndex
  readonly contents: number
  readonly exists: (path: string) => boolean
  readonly renames: Renames
  readonly standings: StandingFinder
}

function makeItem(around: Surroundings, change: StoredChange): ReviewItem {
  const { index, renames } = around
  const entry = index.get(change.path)
  if (change.kind === 'unsupported') {
    return { path: change.path, change: 'unsupported', standing: { kind: 'clear' }, reason: change.reason }
  }
  const flagged = flagChange(around, change, entry)
  const after = sideAfter(change, entry)
  const renamedFrom = renames.from.get(change.path)
  const renamedTo = renames.to.get(change.path)
  const losesDirectory = entry?.kind === 'directory' && after?.kind !== 'directory'
  return {
    path: change.path,
    change:
      change.kind === 'deleted' || change.kind === 'mode'
        ? change.kind
        : entry === undefined
          ? 'added'
          : 'modified',
    ...(entry === undefined ? {} : { before: sideBefore(entry) }),
    ...(after === undefined ? {} : { after }),
    ...(change.kind === 'file' ? { binary: isBinary(sniff(around.contents, change)) } : {}),
    ...(losesDirectory
      ? {
          filesBelow: index.below(change.path).filter((path) => index.get(path)?.kind !== 'directory').length,
        }
      : {}),
    ...(renamedFrom === undefined ? {} : { renamedFrom }),
    ...(renamedTo === undefined ? {} : { renamedTo }),
    ...(flagged === undefined ? {} : { flagged }),
    standing: around.standings.find(change),
  }
}

function sideBefore(entry: ManifestEntry): ReviewSide {
  if (entry.kind === 'link') return { kind: 'link', target: entry.target }
  return { kind: entry.kind, mode: entry.mode, ...(entry.kind === 'file' ? { size: entry.size } : {}) }
}

function sideAfter(change: StoredChange, entry: ManifestEntry | undefined): ReviewSide | undefined {
  if (change.kind === 'file') return { kind: 'file', mode: change.mode, size: change.size }
  if (change.kind === 'link') return { kind: 'link', target: change.target }
  if (change.kind === 'directory') return { kind: 'directory', mode: change.mode }
  if (change.kind === 'mode' && entry !== undefined) return { ...sideBefore(entry), mode: change.mode }
  return undefined
}

/** Why a change is flagged; for a directory that goes, what in it is. */
function flagChange(
  around: Surroundings,
  change: StoredChange,
  entry: ManifestEntry | undefined,
): string | undefined {
  const { exists, index } = around
  const kind = change.kind === 'deleted' || change.kind === 'mode' ? (entry?.kind ?? 'file') : change.kind
  if (kind === 'unsupported') return
  const target = change.kind === 'link' ? change.target : entry?.kind === 'link' ? entry.target : undefined
  // A link that goes away leads nowhere.
  const isLinkGone = change.kind === 'deleted' && kind === 'link'
  const own = isLinkGone
    ? undefined
    : flagOf({ path: change.path, kind, exists, ...(target === undefined ? {} : { target }) })
  if (own !== undefined) return own
  if (/(^|\/)package\.json$/i.test(change.path)) {
    if (change.kind === 'link') return 'a link in the place of package.json'
    if (change.kind === 'file' && packageScriptsChange(around, change, entry))
      return 'its scripts run at install, test or start'
  }
  if (entry?.kind !== 'directory' || change.kind === 'directory' || change.kind === 'mode') return
  for (const path of index.below(change.path)) {
    const below = index.get(path)
    if (below === undefined || below.kind !== 'file') continue
    const reason = flagOf({ path, kind: 'file', exists })
    if (reason !== undefined) return `"${path}" in it: ${reason}`.slice(0, 500)
  }
  return undefined
}

function packageScriptsChange(
  around: Surroundings,
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

function sniff(contents: number, change: StoredFile): Buffer {
  const head = Buffer.alloc(Math.min(SNIFF_BYTES, change.size))
  return head.subarray(0, readSync(contents, head, 0, head.length, change.offset))
}

/** Whether a file's beginning says that it is no text: a NUL in it, as git has it. */
export function isBinary(head: Buffer): boolean {
  return head.includes(0)
}

interface Renames {
  /** New path to old one. */
  readonly from: ReadonlyMap<string, string>
  readonly to: ReadonlyMap<string, string>
}

/** Pairs each added file with a deleted one of the same content, if it has any; empty files are too alike. */
function findRenames(index: ManifestIndex, changes: ChangeSet): Renames {
  const gone = new Map<string, string[]>()
  for (const change of changes.entries.values()) {
    if (change.kind !== 'deleted') continue
    for (const path of [change.path, ...index.below(change.path)]) {
      const entry = index.get(path)
      if (entry?.kind !== 'file' || entry.size === 0) continue
      const same = gone.get(entry.sha256)
      if (same === undefined) gone.set(entry.sha256, [path])
      else same.push(path)
    }
  }
  const from = new Map<string, string>()
  const to = new Map<string, string>()
  for (const change of changes.entries.values()) {
    if (change.kind !== 'file' || index.get(change.path) !== undefined) continue
    const candidates = gone.get(change.sha256)
    if (candidates === undefined || candidates.length === 0) continue
    const name = change.path.slice(change.path.lastIndexOf('/') + 1)
    // Of many equal files only the last few are looked at: each pair would be compared else.
    const first = Math.max(0, candidates.length - RENAME_CANDIDATES)
    const near = candidates.slice(first)
    const alike = near.findIndex((path) => path.slice(path.lastIndexOf('/') + 1) === name)
    const [old] = candidates.splice(first + Math.max(0, alike), 1)
    if (old === undefined) continue
    from.set(change.path, old)
    to.set(old, change.path)
  }
  return { from, to }
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
