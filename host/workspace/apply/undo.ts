/**
 * Reverts what apply did, and nothing else: the logged operations in reverse order, each only if the host is still in
 * the state the operation left. Can be repeated after a crash, and after conflicts were resolved.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Root } from '#specs/node/descriptor-walk.ts'
import { readSlices } from '../change-set.ts'
import { ancestorsOf } from '../conflicts.ts'
import { checkSamePlace } from '../directory-check.ts'
import { isRefreshedIndex } from '../git-history/refreshed-index.ts'
import { type CapturedState, captureState, isSameState, markOf, type PathState } from '../path-state.ts'
import type { HeldBack } from '../review/selection.ts'
import {
  failureOf,
  type WorkspaceError,
  type WorkspaceResult,
  workspaceFailure,
  workspaceSuccess,
} from '../workspace-error.ts'
import { type LoggedOperation, type OperationOutcome, readApplyLog, WriteAheadLog } from '../write-ahead.ts'
import { removeStaged } from './staged-files.ts'
import { TransitionQueue } from './transition.ts'

interface UndoOptions {
  readonly runDirectory: string
  readonly signal?: AbortSignal
  /** Called after each restored path; if it throws, the undo stops there and can be repeated. */
  onRestored?(path: string): void
}

export interface UndoSummary {
  /** Paths restored to their earlier state. */
  readonly restored: readonly string[]
  /** Paths that changed since, or could not be restored. */
  readonly conflicts: readonly HeldBack[]
  /** Why the undo stopped early; absent if it processed every path. It can be repeated. */
  readonly stopped?: WorkspaceError
  /** Number of paths of the run that are still applied. */
  readonly appliedNow: number
  /** Problems for people: files that may still be applied, or an undo that the journal lacks. */
  readonly problems: readonly string[]
}

/**
 * Undoes all applies of a run, using only its apply log. The caller holds the directory's lock. Failures before any
 * change: `damaged`, `unreadable`, `cancelled`. A later stop is not a failure but {@link UndoSummary.stopped}.
 */
export async function undoChanges(options: UndoOptions): Promise<WorkspaceResult<UndoSummary>> {
  let place: string | undefined
  try {
    place = readApplyLog(options.runDirectory)?.root
  } catch (thrown) {
    return failureOf('undoing the changes', thrown)
  }
  if (place === undefined)
    return workspaceSuccess({ restored: [], conflicts: [], appliedNow: 0, problems: [] })
  const checked = checkSamePlace(place)
  if (!checked.ok) return checked
  const opened = Root.open(checked.value)
  if (!opened.ok) return workspaceFailure('unreadable', `undoing the changes: ${opened.error.message}`)
  using root = opened.value
  try {
    using log = new WriteAheadLog(options.runDirectory)
    using queue = new TransitionQueue(root)
    // Left by a killed apply or undo.
    removeStaged(root, log.operations)
    const undoer = new Undoer(root, log, queue, options.onRestored)
    const stopped = await undoAll(log.operations, undoer, options.signal)
    if (stopped === undefined) await queue.flush()
    undoer.recordAll()
    if (stopped !== undefined && undoer.restored.size === 0) return { ok: false, error: stopped }
    const conflicts = [...undoer.conflicts].map(([path, reason]) => ({ path, reason: reason.slice(0, 500) }))
    if (stopped === undefined && conflicts.length === 0) log.removeUndone()
    else undoer.recordEnd()
    return workspaceSuccess({
      ...(stopped === undefined ? {} : { stopped }),
      restored: [...undoer.restored].filter((path) => !undoer.conflicts.has(path)),
      conflicts,
      appliedNow: log.applied,
      problems: [],
    })
  } catch (thrown) {
    return failureOf('undoing the changes', thrown)
  }
}

/** @returns why it stopped before it processed all paths */
async function undoAll(
  operations: readonly LoggedOperation[],
  undoer: Undoer,
  signal: AbortSignal | undefined,
): Promise<WorkspaceError | undefined> {
  let turnStart = performance.now()
  try {
    for (const operation of operations.toReversed()) {
      signal?.throwIfAborted()
      await undoer.undo(operation)
      undoer.recordSome()
      if (performance.now() - turnStart < 20) continue
      await nextTurn()
      turnStart = performance.now()
    }
    return undefined
  } catch (thrown) {
    return failureOf('undoing the changes', thrown).error
  }
}

class Undoer {
  readonly restored = new Set<string>()
  readonly conflicts = new Map<string, string>()
  readonly #root: Root
  readonly #log: WriteAheadLog
  /** The operations of each path in order: its sequence of states. */
  readonly #chains: Map<string, LoggedOperation[]>

  readonly #queue: TransitionQueue
  readonly #onRestored: ((path: string) => void) | undefined
  readonly #outcomes: OperationOutcome[] = []

  constructor(root: Root, log: WriteAheadLog, queue: TransitionQueue, onRestored?: (path: string) => void) {
    this.#root = root
    this.#log = log
    this.#queue = queue
    this.#onRestored = onRestored
    this.#chains = Map.groupBy(log.operations, ({ path }) => path)
  }

  /** After a killed undo, the log shows approximately how much is applied. */
  recordSome(): void {
    if (this.#outcomes.length >= 64) this.recordAll()
  }

  recordAll(): void {
    this.#try(() => this.#log.record(this.#outcomes.splice(0)))
  }

  recordEnd(): void {
    this.#try(() => this.#log.end())
  }

  /** A full disk prevents no restore: undo checks each path, not these log lines. */
  #try(write: () => void): void {
    try {
      write()
    } catch {
      // Reported above.
    }
  }

  async undo(operation: LoggedOperation): Promise<void> {
    const { path, before, after, outcome } = operation
    // A failed operation left the path unchanged.
    if (outcome === 'failed') return
    if (this.#queue.has(path)) await this.#queue.flush()
    if (this.conflicts.has(path)) return
    const captured = captureState(this.#root, path)
    if (!captured.ok) {
      if (before.kind === 'absent' && this.#isAboveRestored(operation)) return
      return this.#refuse(path, captured.error.message)
    }
    const now = captured.value.state
    if (isSameState(now, before)) return this.#noteRestored(operation)
    const isLeftAsMade =
      isSameState(now, after) ||
      isDirectoryOfOurs(now, after, before) ||
      isRefreshedIndex(this.#root, path, now, operation.indexMeaning)
    // An earlier interrupted undo already restored this path, or apply never reached it.
    if (!isLeftAsMade && this.#wasEarlier(operation, now)) return
    if (!isLeftAsMade) {
      return this.#refuse(
        path,
        'it was changed since it was applied; move your version elsewhere and undo again',
      )
    }
    await this.#restore(operation, captured.value)
  }

  async #restore(operation: LoggedOperation, { state, mark }: CapturedState): Promise<void> {
    const { path, before, temporary, offset, owner } = operation
    const content = () =>
      before.kind === 'file' && offset !== undefined
        ? readSlices(this.#log.undoContents, offset, before.size)
        : []
    const isGuarded = mark !== undefined && state.kind !== 'directory'
    const isUnchanged = isGuarded ? () => markOf(this.#root, path) === mark : undefined
    await this.#queue.add(
      { path, from: state, to: before, temporary, content, owner, isUnchanged },
      (made) => {
        if (!made.ok) return this.#refuse(path, made.error.message)
        this.restored.add(path)
        this.#noteRestored(operation)
        this.#onRestored?.(path)
      },
    )
  }

  #noteRestored({ op, outcome }: LoggedOperation): void {
    if (outcome !== 'restored') this.#outcomes.push({ restored: op })
  }

  #wasEarlier(operation: LoggedOperation, now: PathState): boolean {
    const chain = this.#chains.get(operation.path) ?? []
    return chain.some(({ op, before }) => op < operation.op && isSameState(before, now))
  }

  /** Whether a parent directory was a file or link before, and an earlier undo restored it. */
  #isAboveRestored({ path, op }: LoggedOperation): boolean {
    return ancestorsOf(path).some((above) => {
      const first = this.#chains.get(above)?.find((earlier) => earlier.op < op)
      if (first === undefined || (first.before.kind !== 'file' && first.before.kind !== 'link')) return false
      const captured = captureState(this.#root, above)
      return captured.ok && isSameState(captured.value.state, first.before)
    })
  }

  #refuse(path: string, reason: string): void {
    this.conflicts.set(path, reason)
  }
}

/**
 * A directory is created and then given its mode, so a crash may leave another mode. Removing it is still safe, since
 * only an empty directory can be removed; so is setting the mode of a restored one.
 */
function isDirectoryOfOurs(now: PathState, after: PathState, before: PathState): boolean {
  if (now.kind !== 'directory') return false
  return (
    (after.kind === 'directory' && before.kind !== 'directory') ||
    (after.kind === 'absent' && before.kind === 'directory')
  )
}
