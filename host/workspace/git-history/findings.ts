/**
 * Collects what must be named to be applied: content that the commits, trees and index of one repository would put into
 * the workspace.
 */
import { createHash } from 'node:crypto'
import { decodePath } from '#specs/node/path-text.ts'
import { type HistoryBudget, NotExaminable } from './budget.ts'
import { type ChangedPath, changedPaths } from './commits.ts'
import type { GitIndex, IndexEntry } from './index-file.ts'
import {
  type HistorySurroundings,
  kindOfMode,
  type ObjectStore,
  parseTree,
  type TreeEntry,
} from './objects.ts'

/** Maximum flagged paths in a report. */
const NAMED_PATHS = 100
/** Maximum bytes of a link's target in a commit. */
const TARGET_MAX_BYTES = 4_096

/** A file or link that commits or the index would put into the workspace. */
interface HistorySubject {
  readonly path: string
  readonly kind: 'file' | 'link'
  /** A link's target. */
  readonly target?: string
  /** Content before and after; undefined if there is none or it is no file. @throws {NotExaminable} */
  before(): Buffer | undefined
  after(): Buffer | undefined
}

export interface FindingsOptions extends HistorySurroundings {
  /** Why a path must be named to be applied, as for a change of the working files. */
  judge(subject: HistorySubject): string | undefined
}

export interface FlaggedInHistory {
  readonly path: string
  readonly reason: string
}

export class Findings {
  readonly named: FlaggedInHistory[] = []
  count = 0
  readonly #options: FindingsOptions
  readonly #budget: HistoryBudget
  /** Prefix of the working tree's paths below the workspace: empty, or with a trailing slash. */
  readonly #prefix: string
  readonly #judged = new Set<string>()
  readonly #paths = new Set<string>()
  #problem: string | undefined

  constructor(options: FindingsOptions, budget: HistoryBudget, workingTree: string) {
    this.#options = options
    this.#prefix = workingTree === '' ? '' : `${workingTree}/`
    this.#budget = budget
  }

  get reason(): string | undefined {
    if (this.#problem !== undefined) return this.#problem
    const first = this.named[0]
    if (first === undefined) return undefined
    const more = this.count === 1 ? '' : ` and ${this.count - 1} more`
    return `git's history holds changes that must be named: "${first.path}" (${first.reason})${more}`.slice(
      0,
      500,
    )
  }

  addProblem(problem: string): void {
    this.#problem ??= problem
  }

  async addTree(store: ObjectStore, tree: string, bases: readonly string[]): Promise<void> {
    for await (const changed of changedPaths(store, tree, bases, this.#budget)) this.#add(store, changed)
  }

  async addIndex(
    store: ObjectStore,
    { before, after, tree }: { before: GitIndex; after: GitIndex; tree: string | undefined },
  ): Promise<void> {
    for (const [name, digest] of after.caches)
      if (before.caches.get(name) !== digest)
        this.addProblem('the index has a cache by which git status passes over files')
    for (const [key, entry] of after.entries) {
      await this.#budget.pause()
      const old = before.entries.get(key)
      if (entry.isHidden && old?.isHidden !== true)
        this.addProblem(`the index hides changes of "${entry.path}" from git status`)
      if (old?.id === entry.id && old.mode === entry.mode) continue
      const after = treeEntryOf(entry)
      // An entry equal to that of the host's HEAD adds nothing.
      const isOwn = () => {
        const head = tree === undefined ? undefined : entryAt(store, tree, entry.path)
        return head?.id === after.id && head.mode === after.mode
      }
      this.#add(
        store,
        { path: entry.path, after, ...(old === undefined ? {} : { before: treeEntryOf(old) }) },
        isOwn,
      )
    }
    for (const [key, entry] of before.entries)
      if (!after.entries.has(key) && !after.entries.has(`0:${entry.path}`))
        this.#add(store, { path: entry.path, before: treeEntryOf(entry) })
  }

  #add(store: ObjectStore, changed: ChangedPath, isOwn: () => boolean = () => false): void {
    const { after, before } = changed
    const path = `${this.#prefix}${changed.path}`
    const key = `${after?.mode ?? 0} ${after?.id ?? ''} ${before?.id ?? ''} ${path}`
    if (this.#judged.has(key)) return
    this.#judged.add(key)
    this.#budget.path()
    // A submodule names a commit elsewhere; .gitmodules decides what is fetched.
    const entry = after?.kind === 'submodule' ? undefined : (after ?? before)
    if (entry === undefined || entry.kind === 'submodule' || entry.kind === 'tree') return
    if (after !== undefined && !store.isThereAfter(after.id))
      throw new NotExaminable(`the object ${after.id.slice(0, 12)} is missing`)
    const reason = this.#reasonFor(store, path, entry, changed)
    if (reason === undefined || this.#paths.has(path) || isOwn()) return
    this.#paths.add(path)
    this.count++
    if (this.named.length < NAMED_PATHS) this.named.push({ path, reason })
  }

  #reasonFor(store: ObjectStore, path: string, entry: TreeEntry, changed: ChangedPath): string | undefined {
    const { index, judge } = this.#options
    const { after, before } = changed
    const content = (of: TreeEntry | undefined) =>
      of?.kind === 'file' || of?.kind === 'link' ? store.read(of.id).data : undefined
    const target = entry.kind === 'link' ? targetOf(content(entry)) : undefined
    const leftOut = index.get(path) === undefined ? index.leftOutAt(path) : undefined
    const reason =
      leftOut !== undefined
        ? `it was left out of the VM (${leftOut.reason})`
        : judge({
            path,
            kind: entry.kind === 'link' ? 'link' : 'file',
            ...(target === undefined ? {} : { target }),
            before: () => content(before),
            after: () => content(after),
          })
    if (reason === undefined || this.#isAsItWentIn(path, after, content)) return
    return reason
  }

  /** Whether the history has the same content at a path as the workspace at the start of the run: the user's own. */
  #isAsItWentIn(
    path: string,
    after: TreeEntry | undefined,
    content: (of: TreeEntry | undefined) => Buffer | undefined,
  ): boolean {
    const { index } = this.#options
    const entry = index.get(path)
    if (after === undefined) return entry === undefined && index.leftOutAt(path) === undefined
    if (entry?.kind === 'link') return after.kind === 'link' && targetOf(content(after)) === entry.target
    if (entry?.kind !== 'file' || after.kind !== 'file') return false
    const data = content(after)
    return data !== undefined && createHash('sha256').update(data).digest('hex') === entry.sha256
  }
}

function targetOf(content: Buffer | undefined): string | undefined {
  return content === undefined ? undefined : decodePath(content.subarray(0, TARGET_MAX_BYTES))
}

function treeEntryOf({ path, mode, id }: IndexEntry): TreeEntry {
  return { name: path, kind: kindOfMode(mode), mode, id }
}

function entryAt(store: ObjectStore, tree: string, path: string): TreeEntry | undefined {
  let at = tree
  const names = path.split('/')
  for (const [place, name] of names.entries()) {
    const entry = parseTree(store.read(at), store.idBytes).get(name)
    if (entry === undefined || place === names.length - 1) return entry
    if (entry.kind !== 'tree') return
    at = entry.id
  }
  return
}
