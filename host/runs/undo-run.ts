/**
 * Reverts what a run applied, using only the run's apply log. A damaged journal or a full disk prevents no restore;
 * missing entries are reported.
 */
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunFold } from '../journal/run-outline.ts'
import { RunRecord } from '../journal/run-record.ts'
import type { RunStore } from '../journal/run-store.ts'
import type { Folders } from '../state/folders.ts'
import {
  type ApplyLog,
  countApplied,
  type HeldBack,
  readApplyLog,
  type UndoSummary,
  undoChanges,
} from '../workspace/index.ts'
import { RunLock } from '../workspace/run-lock.ts'
import { KeptRules } from './ignore-rule-changes.ts'
import { nameOtherRuns } from './other-runs.ts'
import { requireValue } from './prepare.ts'

export interface ChangeOptions {
  /** Cancels between two files. */
  readonly signal?: AbortSignal
  /** Who applies or undoes, for the journal; one line. Default: not named. */
  readonly by?: string
}

/**
 * @throws {CaissonError} `run_busy` when the run or its directory is in use, `state_corrupted` when the apply log is
 * damaged
 * @throws {CaissonError} `run_not_found`
 */
export async function undoRun(
  runId: string,
  store: RunStore,
  folders: Folders,
  { signal, by }: ChangeOptions = {},
): Promise<UndoSummary> {
  const { directory } = store.paths(runId)
  const journal = await readState(store, runId)
  if (readLog(directory) === undefined && 'fold' in journal && (journal.fold.state.applied ?? 0) > 0)
    await store.requireHere(runId, 'apply log')
  const root = readLog(directory)?.root ?? ('fold' in journal ? journal.fold.facts.workspace : '')
  if (root === '')
    throw new CaissonError('not_possible_now', `${runId} has no apply log, and ${textOf(journal)}`)
  const problems: string[] = []
  await using held = await holdRun(store, runId, root, problems, signal)
  const { record } = held
  // Read again under the lock: the log may have grown meanwhile.
  const log = readLog(directory)
  problems.unshift(...findGaps(log, await readState(store, runId)))
  const paths = new Set(log?.operations.map(({ path }) => path)).size
  const forgetRules = async () =>
    await new KeptRules(folders).forget(root, runId).catch((error: unknown) => {
      problems.push(`the run's ignore rules are still kept: ${errorMessage(error)}`)
    })
  if (paths === 0 && (record === null || record.state.unfinished === null)) {
    await forgetRules()
    return { restored: [], conflicts: [], appliedNow: 0, problems }
  }
  const who = by === undefined ? {} : { by }
  await record?.host({ type: 'undo-start', paths, ...who }).catch(noteUnrecorded(problems))
  const options = { runDirectory: directory, ...(signal === undefined ? {} : { signal }) }
  const summary = requireValue(await undoChanges(options))
  const { restored, appliedNow, stopped } = summary
  const conflicts = await nameOtherRuns(
    summary.conflicts,
    { store, runId, root, sinceMs: log?.operations[0]?.at ?? 0 },
    (other) => `; undo that run first: caisson workspace undo ${other}`,
  )
  if (conflicts.length === 0 && stopped === undefined) await forgetRules()
  await record
    ?.host({
      type: 'undo-end',
      restored: restored.length,
      paths: firstPaths(restored),
      conflicts: boundHeld(conflicts),
      total: appliedNow,
    })
    .catch(noteUnrecorded(problems))
  return { ...summary, conflicts, problems }
}

/** The locked run and directory, with the record if the journal is writable. @throws {CaissonError} */
async function holdRun(
  store: RunStore,
  runId: string,
  root: string,
  problems: string[],
  signal: AbortSignal | undefined,
): Promise<AsyncDisposable & { readonly record: RunRecord | null }> {
  await using undo = new AsyncDisposableStack()
  const wait = signal === undefined ? {} : { signal }
  const record = await openRecord(store, runId, problems)
  if (record !== null) {
    undo.use(record)
    undo.use(requireValue(await record.holdDirectory(root, wait)))
  } else {
    const lock = undo.use(await RunLock.take(store.paths(runId).locks, runId))
    undo.use(requireValue(await lock.holdDirectory(root, undefined, wait)))
  }
  const held = undo.move()
  return { record, [Symbol.asyncDispose]: () => held.disposeAsync() }
}

type JournalState = { readonly fold: RunFold } | { readonly damage: string }

async function readState(store: RunStore, runId: string): Promise<JournalState> {
  try {
    return { fold: await store.fold(runId) }
  } catch (error) {
    if (hasCode(error, 'state_corrupted')) return { damage: error.message }
    throw error
  }
}

function textOf(journal: JournalState): string {
  return 'damage' in journal ? `its journal cannot be used: ${journal.damage}` : 'it has not begun'
}

/** @throws {CaissonError} `state_corrupted` */
function readLog(runDirectory: string): ApplyLog | undefined {
  try {
    return readApplyLog(runDirectory)
  } catch (error) {
    throw new CaissonError('state_corrupted', errorMessage(error), { cause: error })
  }
}

/** Lists why more may be applied than the log can undo. */
function findGaps(log: ApplyLog | undefined, journal: JournalState): string[] {
  const found = countApplied(log?.operations ?? [])
  if ('damage' in journal) {
    const gap =
      log?.isEnded === true ? [] : ['the apply log has no end: more may have been applied than was restored']
    return [`this undo is not recorded: ${journal.damage}`, ...gap]
  }
  const { applied, unfinished } = journal.fold.state
  if (unfinished !== null || applied === null || (found >= applied && log?.isEnded !== false)) return []
  return [
    `the apply log lost lines: by the journal ${applied} paths are applied, the log has ${found}; the others cannot be undone`,
  ]
}

/** Null if the journal is damaged; {@link findGaps} reports it. */
async function openRecord(store: RunStore, runId: string, problems: string[]): Promise<RunRecord | null> {
  try {
    return await RunRecord.open(store.paths(runId))
  } catch (error) {
    if (hasCode(error, 'run_busy')) throw error
    if (!hasCode(error, 'state_corrupted')) noteUnrecorded(problems)(error)
    return null
  }
}

function noteUnrecorded(problems: string[]): (error: unknown) => void {
  return (error) => {
    problems.push(`this undo is not recorded: ${errorMessage(error)}`)
  }
}

/** As many entries as the journal accepts, with reasons cut to one line. */
/** As many paths as an event takes: their text is bounded too. */
export function firstPaths(paths: readonly string[]): string[] {
  let chars = 0
  return paths.slice(0, 1_000).filter((path) => {
    chars += path.length
    return chars <= limits.documentMaxChars
  })
}

export function boundHeld(held: readonly HeldBack[]): HeldBack[] {
  return held
    .slice(0, 1_000)
    .map(({ path, reason }) => ({ path, reason: reason.slice(0, limits.lineMaxChars) }))
}
