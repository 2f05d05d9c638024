/**
 * Builds a review: each change with its effect, sizes, flags and conflicts with the host's current state. Changes
 * nothing.
 */
import { closeSync, readSync } from 'node:fs'
import path from 'node:path'
import { Root } from '#specs/node/descriptor-walk.ts'
import { type ChangeSet, openContents, type StoredChange, type StoredFile } from '../change-set.ts'
import { ConflictFinder, type ConflictState, ManifestIndex } from '../conflicts.ts'
import { checkSamePlace } from '../directory-check.ts'
import { Flagger } from '../flags/flag-changes.ts'
import { examineHistory, type HistoryReport } from '../git-history/examine.ts'
import { type SetAside, withCommitsAside } from '../git-history/set-aside.ts'
import type { Manifest, ManifestEntry } from '../manifest.ts'
import { failureOf, type WorkspaceResult, workspaceFailure, workspaceSuccess } from '../workspace-error.ts'
import { readOwnStates } from '../write-ahead.ts'
import { Turns } from '../yield-turns.ts'

/** Bytes read to tell text from binary; same as git. */
const SNIFF_BYTES = 8_000
/** Maximum deleted files with equal content that are compared with a new file's name. */
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
  /** `modified` includes a change of kind; `mode` changes only the permission bits. */
  readonly change: 'added' | 'modified' | 'deleted' | 'mode' | 'unsupported'
  readonly before?: ReviewSide
  readonly after?: ReviewSide
  /** Whether the new content is binary; only for files. */
  readonly binary?: boolean
  /** Number of files that a removed or replaced directory contains. */
  readonly filesBelow?: number
  /** The deleted path with the same content; both changes stay separate. */
  readonly renamedFrom?: string
  readonly renamedTo?: string
  /** Why it must be named to be applied. */
  readonly flagged?: string
  readonly state: ConflictState
  /** Why it cannot be transferred; only for `unsupported`. Untrusted guest text. */
  readonly reason?: string
}

export interface Review extends Disposable {
  readonly root: Root
  readonly index: ManifestIndex
  readonly changes: ChangeSet
  /** In the order of paths. */
  readonly items: readonly ReviewItem[]
  /** Effects on git repositories. */
  readonly history: readonly HistoryReport[]
  /** Branches applied under another name because their history is flagged; their files are items. */
  readonly aside: readonly SetAside[]
}

/**
 * Combines change set, manifest and host. The caller disposes the review. The directory may have been replaced by
 * another at the same path: each path is compared separately. Large change sets do not block other tasks of the
 * process. Failures: `unreadable`, `damaged`, `internal`.
 */
export async function reviewChanges(
  manifest: Manifest,
  received: ChangeSet,
): Promise<WorkspaceResult<Review>> {
  const place = checkSamePlace(manifest.root)
  if (!place.ok) return place
  const opened = Root.open(place.value)
  if (!opened.ok) return workspaceFailure('unreadable', `reviewing the changes: ${opened.error.message}`)
  const root = opened.value
  let contents: number | undefined
  try {
    const index = new ManifestIndex(manifest)
    contents = openContents(received.paths.contents)
    const turns = new Turns()
    const flags = await Flagger.create({ root, index, changes: received, contents }, turns)
    const { reports, reasons } = await examineHistory(
      {
        ...{ root, index, changes: received.entries, contents },
        judge: (subject) => flags.reasonOf(subject),
        isRepository: (directory) => flags.isRepository(directory),
      },
      turns,
    )
    const { changes, aside } = withCommitsAside(received, index, contents, reports)
    const renames = await findRenames(index, changes, turns)
    const own = readOwnStates(path.dirname(changes.paths.entries))
    const finder = new ConflictFinder(root, index, own, turns)
    const around = { index, contents, flags, history: reasons, renames, finder }
    const items: ReviewItem[] = []
    for (const change of changes.entries.values()) {
      if (turns.isDue) await turns.give()
      items.push(await makeItem(around, change))
    }
    return workspaceSuccess({
      ...{ root, index, changes, items, history: reports, aside },
      [Symbol.dispose]: () => root[Symbol.dispose](),
    })
  } catch (thrown) {
    root[Symbol.dispose]()
    return failureOf('reviewing the changes', thrown)
  } finally {
    if (contents !== undefined) closeSync(contents)
  }
}

/** Why "apply all" skips an item; undefined if it does not. */
export function holdBack(item: ReviewItem): string | undefined {
  if (item.change === 'unsupported') return `it cannot be transferred: ${item.reason ?? ''}`
  if (item.state.kind === 'conflict') return item.state.reason
  return item.flagged
}

interface Surroundings {
  readonly index: ManifestIndex
  readonly contents: number
  readonly flags: Flagger
  /** Why a path of git's history must be named. */
  readonly history: ReadonlyMap<string, string>
  readonly renames: Renames
  readonly finder: ConflictFinder
}

async function makeItem(around: Surroundings, change: StoredChange): Promise<ReviewItem> {
  const { index, renames } = around
  const entry = index.get(change.path)
  if (change.kind === 'unsupported') {
    return { path: change.path, change: 'unsupported', state: { kind: 'clear' }, reason: change.reason }
  }
  const flagged = (await around.flags.reasonFor(change)) ?? around.history.get(change.path)
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
    state: await around.finder.find(change),
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

function sniff(contents: number, change: StoredFile): Buffer {
  const head = Buffer.alloc(Math.min(SNIFF_BYTES, change.size))
  return head.subarray(0, readSync(contents, head, 0, head.length, change.offset))
}

/** Whether a file starts like binary data: it contains a NUL, as in git. */
export function isBinary(head: Buffer): boolean {
  return head.includes(0)
}

interface Renames {
  /** New path to old one. */
  readonly from: ReadonlyMap<string, string>
  readonly to: ReadonlyMap<string, string>
}

/** Pairs each added file with a deleted one of the same content; skips empty files. */
async function findRenames(index: ManifestIndex, changes: ChangeSet, turns: Turns): Promise<Renames> {
  const gone = new Map<string, string[]>()
  for (const change of changes.entries.values()) {
    if (change.kind !== 'deleted') continue
    for (const path of [change.path, ...index.below(change.path)]) {
      if (turns.isDue) await turns.give()
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
    if (turns.isDue) await turns.give()
    if (change.kind !== 'file' || index.get(change.path) !== undefined) continue
    const candidates = gone.get(change.sha256)
    if (candidates === undefined || candidates.length === 0) continue
    const name = change.path.slice(change.path.lastIndexOf('/') + 1)
    // Compares only the last of many equal files, to limit the number of pairs.
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
