/**
 * Takes back what apply did, and nothing else: the operations of the log in reverse, each only where the host still
 * is as that operation left it. Can be run again after a crash, and again after conflicts were cleared.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Root } from '#specs/node/descriptor-walk.ts'
import { readSlices } from '../change-set.ts'
import { ancestorsOf } from '../conflicts.ts'
import { INDEX_MAX_BYTES, meaningOfIndex } from '../git-history/index-file.ts'
import { readHostBytes } from '../git-history/references.ts'
import { type CapturedState, captureState, isSameState, markOf, type PathState } from '../path-state.ts'
import type { HeldBack } from '../review/selection.ts'
import {
  failureOf,
  type WorkspaceError,
  type WorkspaceResult,
  workspaceFailure,
  workspaceSuccess,
} from '../workspace-error.ts'
import { type LoggedOperation, type Outcome, readApplyLog, WriteAheadLog } from '../write-ahead.ts'
import { removeStaged } from './staged-files.ts'
import { TransitionQueue } from './transition.ts'

export interface UndoOptions {
  readonly runDirectory: string
  readonly signal?: AbortSignal
  /** Called after each path that was restored; what it throws ends the undo there, and it can be run again. */
  onRestored?(path: string): void
}

export interface UndoSummary {
  /** Paths that are again as they were. */
  readonly restored: readonly string[]
  /** Paths that were changed since, or could not be restored. */
  readonly conflicts: readonly HeldBack[]
  /** Why it ended before it reached every path; absent: it reached all. It can be run again. */
  readonly stopped?: WorkspaceError
  /** Paths of the run that are still applied. */
  readonly total: number
}

/**
 * Undoes all of a run's applies, from its apply log alone. The caller holds the directory's lock. Failures, with nothing restored: `damaged`,
 * `unreadable`, `cancelled`. What ends it later is no failure but {@link UndoSummary.stopped}.
 */
export async function undoChanges(options: UndoOptions): Promise<WorkspaceResult<UndoSummary>> {
  let place: string | undefined
  try {
    place = readApplyLog(options.runDirectory)?.root
  } catch (thrown) {
    return failureOf('undoing the changes', thrown)
  }
  if (place === undefined) return workspaceSuccess({ restored: [], conflicts: [], total: 0 })
  const opened = Root.open(place)
  if (!opened.ok) return workspaceFailure('unreadable', `undoing the changes: ${opened.error.message}`)
  using root = opened.value
  try {
    using log = new WriteAheadLog(options.runDirectory)
    using queue = new TransitionQueue(root)
    // Of an apply or undo that was killed.
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
      total: log.applied,
    })
  } catch (thrown) {
    return failureOf('undoing the changes', thrown)
  }
}

/** @returns what ended it before it reached all */
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
  /** The operations of each path in order: the states it went through. */
  readonly #chains: Map<string, LoggedOperation[]>

  readonly #queue: TransitionQueue
  readonly #onRestored: ((path: string) => void) | undefined
  readonly #outcomes: Outcome[] = []

  constructor(root: Root, log: WriteAheadLog, queue: TransitionQueue, onRestored?: (path: string) => void) {
    this.#root = root
    this.#log = log
    this.#queue = queue
    this.#onRestored = onRestored
    this.#chains = Map.groupBy(log.operations, ({ path }) => path)
  }

  /** After an undo that is killed the log tells about how much is applied. */
  recordSome(): void {
    if (this.#outcomes.length >= 64) this.recordAll()
  }

  recordAll(): void {
    this.#try(() => this.#log.record(this.#outcomes.splice(0)))
  }

  recordEnd(): void {
    this.#try(() => this.#log.end())
  }

  /** A disk that takes no more lines keeps nothing from being restored: undo looks at each path, not at these lines. */
  #try(write: () => void): void {
    try {
      write()
    } catch {
      // Said so above.
    }
  }

  async undo(operation: LoggedOperation): Promise<void> {
    const { path, before, after, outcome } = operation
    // A failed operation left the path as it was.
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
      isSameState(now, after) || isDirectoryOfOurs(now, after, before) || this.#isRefreshed(operation, now)
    // An earlier undo that was cut short got further with this path already, or apply never got here.
    if (!isLeftAsMade && this.#wasEarlier(operation, now)) return
    if (!isLeftAsMade) {
      return this.#refuse(path, 'it was changed since it was applied; move your version away and undo again')
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

  /** git's index as apply left it, but for the times and sizes of files that any `git status` writes anew. */
  #isRefreshed({ path, indexMeaning, after }: LoggedOperation, now: PathState): boolean {
    if (indexMeaning === undefined || now.kind !== 'file' || after.kind !== 'file') return false
    if (now.size > INDEX_MAX_BYTES) return false
    const bytes = readHostBytes(this.#root, path, INDEX_MAX_BYTES)
    return bytes !== undefined && meaningOfIndex(bytes) === indexMeaning
  }

  #noteRestored({ op, outcome }: LoggedOperation): void {
    if (outcome !== 'restored') this.#outcomes.push({ restored: op })
  }

  #wasEarlier(operation: LoggedOperation, now: PathState): boolean {
    const chain = this.#chains.get(operation.path) ?? []
    return chain.some(({ op, before }) => op < operation.op && isSameState(before, now))
  }

  /** Whether a directory above was a file or link before, and an earlier undo made it that again. */
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
 * A directory is made, then given its mode: a crash between the two leaves one with another mode. Removing it is
 * safe all the same, since only an empty one can be removed; so is giving a restored one its mode.
 */
function isDirectoryOfOurs(now: PathState, after: PathState, before: PathState): boolean {
  if (now.kind !== 'directory') return false
  return (
    (after.kind === 'directory' && before.kind !== 'directory') ||
    (after.kind === 'absent' && before.kind === 'directory')
  )
}
