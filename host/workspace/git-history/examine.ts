/**
 * Examines what a change set does to the workspace's git repositories: which branches move, how many commits are added,
 * and whether the next checkout or push would bring flagged or excluded content. Reads objects as data; runs no git and
 * obeys no configuration except the object format.
 */
import type { Turns } from '../yield-turns.ts'
import { type HistoryBounds, HistoryBudget, NotExaminable } from './budget.ts'
import { findNewHistory } from './commits.ts'
import { Findings, type FindingsOptions, type FlaggedInHistory } from './findings.ts'
import { type GitIndex, INDEX_MAX_BYTES, parseIndex } from './index-file.ts'
import { ObjectStore, parseCommit } from './objects.ts'
import { isIndex, type MovedReference, References, readChangedBytes, readHostBytes } from './references.ts'
import {
  findChangedRepositories,
  idBytesOf,
  isObject,
  type RepositoryOptions,
  workingTreeOf,
} from './repositories.ts'

interface ExamineOptions extends FindingsOptions, RepositoryOptions {
  readonly bounds?: HistoryBounds
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

interface GitHistory {
  readonly reports: readonly HistoryReport[]
  /** Why a path must be named to be applied. */
  readonly reasons: ReadonlyMap<string, string>
}

/** Examines all repositories that the change set touches. */
export async function examineHistory(options: ExamineOptions, turns: Turns): Promise<GitHistory> {
  const reports: HistoryReport[] = []
  const { members: repositories, unexamined } = await findChangedRepositories(options, turns)
  const reasons = new Map(unexamined.map((path) => [path, 'too many git repositories change at once']))
  for (const [directory, members] of repositories) {
    if (turns.isDue) await turns.give()
    const examined = await examineRepository(options, directory, members)
    for (const [path, reason] of examined.objectReasons) reasons.set(path, reason)
    const { report } = examined
    reports.push(report)
    if (report.reason !== undefined) for (const path of members) reasons.set(path, report.reason)
  }
  return { reports, reasons }
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
  const budget = new HistoryBudget(options.bounds)
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
