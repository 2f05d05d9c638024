/**
 * Examines what a change set does to the workspace's git repositories: which branches move, how many commits are added,
 * and whether the next checkout or push would bring flagged or excluded content. Reads objects as data; runs no git and
 * obeys no configuration except the object format.
 */
import { createHash } from 'node:crypto'
import { posix } from 'node:path'
import { decodePath } from '#specs/node/path-text.ts'
import { foldName, foldPath } from '../flags/folded-path.ts'
import { Budget, type HistoryBounds, NotExaminable } from './budget.ts'
import { type ChangedPath, changedPaths, findNewHistory } from './commits.ts'
import { type GitIndex, INDEX_MAX_BYTES, type IndexEntry, parseIndex } from './index-file.ts'
import {
  type HistorySurroundings,
  kindOfMode,
  ObjectStore,
  parseCommit,
  parseTree,
  type TreeEntry,
} from './objects.ts'
import {
  isIndex,
  isReference,
  type MovedReference,
  References,
  readChangedBytes,
  readHostBytes,
} from './references.ts'

/** Maximum flagged paths in a report. */
const NAMED_PATHS = 100
/** Maximum bytes of a link's target in a commit. */
const TARGET_MAX_BYTES = 4_096

/** A file or link that commits or the index would put into the workspace. */
export interface HistorySubject {
  readonly path: string
  readonly kind: 'file' | 'link'
  /** A link's target. */
  readonly target?: string
  /** Content before and after; undefined if there is none or it is no file. @throws {NotExaminable} */
  before(): Buffer | undefined
  after(): Buffer | undefined
}

export interface ExamineOptions extends HistorySurroundings {
  /** Why a path must be named to be applied, as for a change of the working files. */
  judge(subject: HistorySubject): string | undefined
  /** Whether git on the host treats a directory as a repository, or as the `.git` of a working tree. */
  isRepository(directory: string): boolean
  readonly bounds?: HistoryBounds
}

export interface FlaggedInHistory {
  readonly path: string
  readonly reason: string
}

/** Result for one repository. */
export interface HistoryReport {
  /** Its directory below the workspace, such as `.git`. */
  readonly directory: string
  readonly moved: readonly MovedReference[]
  /** Number of new commits. */
  readonly commits: number
  /** Content of the new commits and the index that must be named, at most 100. */
  readonly flagged: readonly FlaggedInHistory[]
  readonly flaggedCount: number
  /** Why HEAD, refs, logs and index must be named to be applied. */
  readonly reason?: string
  /** Length of an object name in characters. */
  readonly idLength: number
  /** Whether every new object was found and readable. */
  readonly isExamined: boolean
}

export interface History {
  readonly reports: readonly HistoryReport[]
  /** Why a path must be named to be applied. */
  readonly reasons: ReadonlyMap<string, string>
}

/** Examines all repositories that the change set touches. */
export async function examineHistory(options: ExamineOptions): Promise<History> {
  const reports: HistoryReport[] = []
  const reasons = new Map<string, string>()
  for (const [directory, members] of membersByRepository(options)) {
    const examined = await examineRepository(options, directory, members)
    for (const [path, reason] of examined.objectReasons) reasons.set(path, reason)
    const { report } = examined
    reports.push(report)
    if (report.reason !== undefined) for (const path of members) reasons.set(path, report.reason)
  }
  return { reports, reasons }
}

/** The changes of each repository that affect where its history ends. */
function membersByRepository({ changes, index, isRepository }: ExamineOptions): Map<string, string[]> {
  const repositories = new Map<string, string[]>()
  const repositoriesAbove = findRepositoriesAbove(isRepository)
  for (const change of changes.values()) {
    if (change.kind === 'mode' || change.kind === 'unsupported') continue
    const found = repositoryOf(change.path, repositoriesAbove)
    // A directory alone means nothing; its contents are examined separately.
    if (found === undefined || (change.kind === 'directory' && index.get(change.path)?.kind !== 'file'))
      continue
    const [directory, below] = found
    const members = repositories.get(directory) ?? []
    if (isReference(below)) members.push(change.path)
    repositories.set(directory, members)
  }
  return repositories
}

/**
 * The repository of a path, whatever its directory's name. A submodule's name may contain slashes, so the repository
 * below `modules` ends where the rest looks like git's. If that is too early, its objects are missing and it is
 * flagged.
 */
function repositoryOf(
  path: string,
  repositoriesAbove: RepositoriesAbove,
): [directory: string, below: string] | undefined {
  const depths = repositoriesAbove(path)
  if (depths.length === 0) return
  const names = path.split('/')
  for (const git of depths) {
    const isModule = foldName(names[git] ?? '') === 'modules'
    for (let at = isModule ? git + 2 : git; at < names.length; at++) {
      const below = names.slice(at).join('/')
      if (isReference(below) || isObject(below)) return [names.slice(0, at).join('/'), below]
      if (!isModule) break
    }
  }
  return
}

/** Number of names in each parent directory that is a repository, shortest first. */
type RepositoriesAbove = (path: string) => readonly number[]

/** Judges each directory once, however many changes are below it. */
function findRepositoriesAbove(isRepository: ExamineOptions['isRepository']): RepositoriesAbove {
  const known = new Map<string, readonly number[]>()
  const above: RepositoriesAbove = (path) => {
    const end = path.lastIndexOf('/')
    if (end < 0) return []
    const directory = path.slice(0, end)
    const found = known.get(directory)
    if (found !== undefined) return found
    const own = isRepository(directory) ? [directory.split('/').length] : []
    const all = [...above(directory), ...own]
    known.set(directory, all)
    return all
  }
  return above
}

function isObject(below: string): boolean {
  return /^objects(\/|$)/.test(foldPath(below))
}

interface Examined {
  readonly report: HistoryReport
  readonly objectReasons: ReadonlyMap<string, string>
}

async function examineRepository(
  options: ExamineOptions,
  directory: string,
  members: readonly string[],
): Promise<Examined> {
  const budget = new Budget(options.bounds)
  let objectReasons: ReadonlyMap<string, string> | undefined
  let moved: readonly MovedReference[] = []
  let commits = 0
  let idLength = 40
  const findings = new Findings(options, budget, workingTreeOf(options, directory))
  const finish = (problem?: string): Examined => {
    const reason =
      problem === undefined
        ? findings.reason
        : `git's history could not be examined: ${problem}`.slice(0, 500)
    const report: HistoryReport = {
      directory,
      idLength,
      moved,
      commits,
      flagged: findings.named,
      flaggedCount: findings.count,
      isExamined: problem === undefined,
      ...(reason === undefined ? {} : { reason }),
    }
    return { report, objectReasons: objectReasons ?? unexaminedObjects(options, directory, reason) }
  }
  try {
    const idBytes = idBytesOf(options, directory)
    idLength = idBytes * 2
    using store = new ObjectStore(options, { directory, idBytes, budget })
    objectReasons = await store.checkChanges()
    if (members.length === 0) return finish()
    const references = new References(options, directory, idBytes)
    moved = references.moved
    if (references.problem !== undefined) findings.addProblem(references.problem)
    const found = await findNewHistory(store, references.newIds, references.hostIds, budget)
    commits = found.commits.length
    for (const { commit } of found.commits) {
      const bases = commit.parents.map((parent) => parseCommit(store.read(parent)).tree)
      await findings.addTree(store, commit.tree, bases)
    }
    for (const tree of found.trees) await findings.addTree(store, tree, [])
    for (const path of members) await examineMember(options, { path, directory, store, references, findings })
    const bad = [...objectReasons.values()].find((reason) => reason.startsWith("git's objects"))
    return finish(bad)
  } catch (thrown) {
    if (thrown instanceof NotExaminable) return finish(thrown.message)
    throw thrown
  }
}

/** Objects that were not verified: under a false name, one could replace an object of the host. */
function unexaminedObjects(
  { changes }: ExamineOptions,
  directory: string,
  reason = "git's objects could not be examined",
): ReadonlyMap<string, string> {
  const paths = [...changes.keys()].filter(
    (path) => path.startsWith(`${directory}/`) && isObject(path.slice(directory.length + 1)),
  )
  return new Map(paths.map((path) => [path, reason]))
}

interface MemberContext {
  readonly path: string
  readonly directory: string
  readonly store: ObjectStore
  readonly references: References
  readonly findings: Findings
}

async function examineMember(
  options: ExamineOptions,
  { path, directory, store, references, findings }: MemberContext,
): Promise<void> {
  const below = path.slice(directory.length + 1)
  const change = options.changes.get(path)
  if (/^refs\/replace(\/|$)/i.test(below))
    findings.addProblem('it has objects that stand in for others (refs/replace)')
  if (/^refs\/caisson(\/|$)/i.test(below))
    findings.addProblem('it changes refs/caisson, where commits of earlier runs are kept')
  if (!isIndex(below) || change?.kind !== 'file') return
  const after = parseIndex(readChangedBytes(options, change, INDEX_MAX_BYTES), store.idBytes)
  const bytes = readHostBytes(options.root, path, INDEX_MAX_BYTES)
  const before = bytes === undefined ? emptyIndex : parseIndex(bytes, store.idBytes)
  const head = references.hostHead
  const tree = head === undefined ? undefined : parseCommit(store.read(head)).tree
  await findings.addIndex(store, { before, after, tree })
}

const emptyIndex: GitIndex = { entries: new Map(), caches: new Map() }

/** Collects what must be named over the commits, trees and index of one repository. */
class Findings {
  readonly named: FlaggedInHistory[] = []
  count = 0
  readonly #options: ExamineOptions
  readonly #budget: Budget
  /** Prefix of the working tree's paths below the workspace: empty, or with a trailing slash. */
  readonly #prefix: string
  readonly #judged = new Set<string>()
  readonly #paths = new Set<string>()
  #problem: string | undefined

  constructor(options: ExamineOptions, budget: Budget, workingTree: string) {
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

/** The working tree of a repository below the workspace, according to the host; empty if it is the workspace. */
function workingTreeOf({ root }: ExamineOptions, directory: string): string {
  const text = readHostBytes(root, `${directory}/config`, 1024 * 1024)?.toString('latin1') ?? ''
  const set = /^\s*worktree\s*=\s*"?([^"\r\n]+)"?\s*$/im.exec(text)?.[1]
  // The working tree of a repository named `.git` is its parent directory.
  const named = set ?? (/(^|\/)\.git$/i.test(directory) ? '..' : undefined)
  if (named === undefined || named.startsWith('/')) return ''
  const tree = posix.join(directory, named)
  return tree === '.' || tree === '..' || tree.startsWith('../') ? '' : tree.replace(/\/$/, '')
}

/** Length of an object name in bytes, from the repository's configuration on the host or in the changes. */
function idBytesOf(options: ExamineOptions, directory: string): number {
  const path = `${directory}/config`
  const own = readHostBytes(options.root, path, 1024 * 1024)
  const change = options.changes.get(path)
  const text = own ?? (change?.kind === 'file' ? readChangedBytes(options, change, 1024 * 1024) : undefined)
  return /^\s*objectformat\s*=\s*"?sha256/im.test(text?.toString('latin1') ?? '') ? 32 : 20
}
