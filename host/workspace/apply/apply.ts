/**
 * Applies selected changes to the host's workspace. Each change is split into atomic single-path operations, and each
 * operation is logged with its undo data before it is executed. Compares the host with the manifest again just before:
 * a path that changed meanwhile is a conflict and is not overwritten.
 */
import { closeSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { openContents, readSlices, type StoredChange } from '../change-set.ts'
import { ancestorsOf, isAsCopied } from '../conflicts.ts'
import { INDEX_MAX_BYTES, isIndexPath, meaningOfIndex } from '../git-history/index-file.ts'
import {
  type CapturedState,
  captureState,
  describeState,
  isSameState,
  manifestState,
  markOf,
  type PathState,
} from '../path-state.ts'
import type { PartialChange } from '../review/hunks.ts'
import type { Review, ReviewItem } from '../review/review.ts'
import { type ChangeSelection, type HeldBack, selectChanges } from '../review/selection.ts'
import { failureOf, type WorkspaceError, type WorkspaceResult, workspaceSuccess } from '../workspace-error.ts'
import {
  isOwnState,
  type LoggedOperation,
  type OperationIntent,
  type OperationOutcome,
  WriteAheadLog,
} from '../write-ahead.ts'
import { Ahead, isExpected, keepSpecialBits, type Operation, operationsOf, withMode } from './operations.ts'
import { removeStaged, stagedName } from './staged-files.ts'
import { type Transition, TransitionQueue } from './transition.ts'

/** Operations logged together before they are executed; one disk sync covers them all. */
const BATCH_OPERATIONS = 64
/** Approximate bytes of undo content in one batch. */
const BATCH_BYTES = 32 * 1024 * 1024

/** A step of an apply. If `onStep` throws, the apply stops there; undo and apply can continue from any step. */
export type ApplyStep =
  | { readonly kind: 'prepared' | 'intended' | 'done'; readonly path: string }
  | { readonly kind: 'failed'; readonly path: string; readonly reason: string }

interface ApplyOptions {
  readonly review: Review
  readonly selection: ChangeSelection
  /** Files that get only some hunks, by path; all of them are selected. */
  readonly parts?: ReadonlyMap<string, PartialChange>
  /** Folder of the log and the undo data (mode 0600). */
  readonly runDirectory: string
  readonly signal?: AbortSignal
  onStep?(step: ApplyStep): void
}

/** A file that got only some hunks. */
export interface AppliedPart {
  readonly path: string
  /** Hunks applied. */
  readonly hunks: number
  /** Hunks that the diff had before. */
  readonly of: number
}

export interface ApplySummary {
  readonly applied: readonly string[]
  /** Those of `applied` that are applied in part. */
  readonly parts: readonly AppliedPart[]
  /** Selected, but already in the target state. */
  readonly already: readonly string[]
  readonly conflicts: readonly HeldBack[]
  readonly failed: readonly HeldBack[]
  readonly leftOut: readonly HeldBack[]
  /** Why the apply stopped early; absent if it processed every change. The other lists show what it processed. */
  readonly stopped?: WorkspaceError
  /** Selected, but not processed because the apply stopped. */
  readonly notReached: readonly string[]
  /** Number of paths of the run that are applied now, by this apply and earlier ones. */
  readonly appliedNow: number
}

/**
 * Applies the selection. The caller holds the directory's lock. Failures before any change: `damaged`, `no_space`,
 * `cancelled`, `internal`. A later stop is not a failure but {@link ApplySummary.stopped}.
 */
export async function applyChanges(options: ApplyOptions): Promise<WorkspaceResult<ApplySummary>> {
  const choice = selectChanges(options.review, options.selection)
  let contents: number | undefined
  try {
    const { changes, index } = options.review
    const about = { root: index.manifest.root, changes: changes.sha256 }
    using log = new WriteAheadLog(options.runDirectory, about)
    contents = openContents(options.review.changes.paths.contents)
    const applier = new Applier(options, log, contents)
    const stopped = await applier.run(choice.chosen)
    if (stopped !== undefined && !applier.hasChanged) return { ok: false, error: stopped }
    return workspaceSuccess({
      ...(stopped === undefined ? {} : { stopped }),
      applied: applier.applied,
      parts: applier.applied.flatMap((path) => {
        const part = options.parts?.get(path)
        return part === undefined ? [] : [{ path, hunks: part.hunks, of: part.of }]
      }),
      notReached: applier.notReached,
      already: choice.already,
      conflicts: [...choice.conflicts, ...applier.conflicts],
      failed: applier.failed,
      leftOut: choice.leftOut,
      appliedNow: log.applied,
    })
  } catch (thrown) {
    return failureOf('applying the changes', thrown)
  } finally {
    if (contents !== undefined) closeSync(contents)
  }
}

interface Prepared {
  readonly operation: Operation
  readonly intent: OperationIntent
  readonly owner: Owner | undefined
  readonly mark: string | undefined
}

class Applier {
  readonly applied: string[] = []
  readonly notReached: string[] = []
  readonly conflicts: HeldBack[] = []
  readonly failed: HeldBack[] = []
  readonly #options: ApplyOptions
  readonly #root: Root
  readonly #log: WriteAheadLog
  readonly #contents: number
  /** Paths at or below which no further operation is executed. */
  readonly #stopped = new Set<string>()
  readonly #own: ReadonlyMap<string, readonly LoggedOperation[]>
  readonly #outcomes: ({ done: number } | { failed: number; reason: string })[] = []
  /** Number of remaining operations of each change. */
  readonly #open = new Map<ReviewItem, number>()
  #next: number
  /** Why undo data could not be stored. */
  #unkept: unknown
  /** Whether anything on the host has changed. */
  hasChanged = false

  constructor(options: ApplyOptions, log: WriteAheadLog, contents: number) {
    this.#options = options
    this.#root = options.review.root
    this.#log = log
    this.#contents = contents
    this.#next = log.nextOperation
    this.#own = Map.groupBy(log.operations, ({ path }) => path)
    // A crash between staging and renaming leaves a staged file beside its path.
    removeStaged(this.#root, log.operations)
    for (const chain of this.#own.values()) log.record(judgeUnknown(chain, this.#root))
  }

  /** @returns why it stopped before it processed all changes */
  async run(items: readonly ReviewItem[]): Promise<WorkspaceError | undefined> {
    const { review, parts } = this.#options
    const operations = items.flatMap((item) => operationsOf(item, review, parts?.get(item.path)))
    for (const { item } of operations) this.#open.set(item, (this.#open.get(item) ?? 0) + 1)
    let stopped: WorkspaceError | undefined
    try {
      await this.#runAll(operations)
      this.#log.end()
    } catch (thrown) {
      stopped = failureOf('applying the changes', thrown).error
      this.#recordStopped()
    }
    for (const item of items) {
      if (this.#stopped.has(item.path)) continue
      const isWhole = (this.#open.get(item) ?? 0) === 0
      if (isWhole) this.applied.push(item.path)
      else this.notReached.push(item.path)
    }
    return stopped
  }

  async #runAll(operations: readonly Operation[]): Promise<void> {
    using queue = new TransitionQueue(this.#root)
    for (let at = 0; at < operations.length; ) {
      this.#options.signal?.throwIfAborted()
      const batch: Prepared[] = []
      const ahead = new Ahead()
      const before = this.#log.undoOffset
      while (
        at < operations.length &&
        batch.length < BATCH_OPERATIONS &&
        this.#log.undoOffset - before < BATCH_BYTES
      ) {
        const operation = operations[at++]
        const prepared = operation === undefined ? undefined : this.#prepare(operation, ahead)
        if (prepared !== undefined) batch.push(prepared)
        else if (operation !== undefined) this.#close(operation)
      }
      this.#log.intend(batch.map(({ intent }) => intent))
      for (const { intent } of batch) this.#options.onStep?.({ kind: 'intended', path: intent.path })
      for (const prepared of batch) await this.#perform(prepared, queue)
      await queue.flush()
      this.#log.record(this.#outcomes.splice(0))
      await nextTurn()
    }
  }

  /**
   * Records the operations so far. A log that accepts no more lines is not marked as ended; undo checks each path
   * anyway.
   */
  #recordStopped(): void {
    try {
      this.#log.record(this.#outcomes.splice(0))
      this.#log.end()
    } catch {
      // Reported above.
    }
  }

  /** A failed log write is not a failure of the current path. */
  #keep(piece: Buffer): void {
    try {
      this.#log.keep(piece)
    } catch (thrown) {
      this.#unkept = thrown
      throw thrown
    }
  }

  /** The operation needs no further work: it was executed, or is unnecessary. */
  #close({ item }: Operation): void {
    this.#open.set(item, (this.#open.get(item) ?? 0) - 1)
  }

  /** Checks the path again and stores the undo data. */
  #prepare(operation: Operation, ahead: Ahead): Prepared | undefined {
    const { item, path, after, part } = operation
    if (this.#isStopped(item, path)) return
    const known = ahead.get(path)
    const offset = this.#log.undoOffset
    const isModeOnly = this.#changeOf(item).kind === 'mode'
    const keep = isModeOnly ? undefined : (piece: Buffer) => this.#keep(piece)
    const captured =
      known === undefined
        ? captureState(this.#root, path, keep)
        : { ok: true as const, value: { state: known } }
    if (this.#unkept !== undefined) throw this.#unkept
    if (!captured.ok) return this.#stop(item, captured.error.message)
    const { state, owner, mark } = captured.value as CapturedState
    const target = isModeOnly
      ? withMode(state, this.#modeOf(item))
      : part !== undefined && state.kind === 'file' && after.kind === 'file'
        ? { ...after, mode: state.mode }
        : keepSpecialBits(state, after)
    if (isSameState(state, target)) return
    const isAsReviewed =
      isExpected(state, operation, isModeOnly) ||
      isOwnState(this.#own.get(path), state) ||
      this.#isRefreshed(operation, state)
    const isAsDiffed = part === undefined || (state.kind === 'file' && state.sha256 === part.beforeSha256)
    if (!isAsReviewed || !isAsDiffed) {
      return this.#stop(
        item,
        `"${path}" is ${describeState(state)} that changed on the host since the review`,
      )
    }
    ahead.add(path, state, target)
    const intent: OperationIntent = {
      op: this.#next,
      path,
      before: state,
      after: target,
      at: Date.now(),
      ...(owner === undefined ? {} : { owner }),
      ...(state.kind === 'file' && !isModeOnly ? { offset } : {}),
      ...(part === undefined ? this.#indexMeaning(item, path) : {}),
      temporary: stagedName(this.#options.review.changes.sha256, this.#next),
    }
    this.#next++
    this.#options.onStep?.({ kind: 'prepared', path })
    // A directory's mark changes with its contents, and a directory that is not empty cannot be removed anyway.
    return { operation, intent, owner, mark: state.kind === 'directory' ? undefined : mark }
  }

  /** git's index as it was copied, but for what `git status` refreshes. */
  #isRefreshed({ path, expected }: Operation, now: PathState): boolean {
    const entry = this.#options.review.index.get(path)
    return isSameState(manifestState(entry), expected) && isAsCopied(this.#root, path, entry, now)
  }

  #indexMeaning(item: ReviewItem, path: string): { indexMeaning?: string } {
    const change = this.#changeOf(item)
    if (change.kind !== 'file' || change.path !== path || !isIndexPath(path) || change.size > INDEX_MAX_BYTES)
      return {}
    const bytes = Buffer.concat([...this.#content(change)].map((piece) => Buffer.from(piece)))
    const indexMeaning = meaningOfIndex(bytes)
    return indexMeaning === undefined ? {} : { indexMeaning }
  }

  async #perform({ operation, intent, owner, mark }: Prepared, queue: TransitionQueue): Promise<void> {
    const { item, path } = operation
    if (this.#isStopped(item, path)) {
      this.#outcomes.push({ failed: intent.op, reason: 'an earlier step failed' })
      return
    }
    const transition: Transition = {
      path,
      from: intent.before,
      to: intent.after,
      temporary: intent.temporary,
      content: () => (operation.part ? [operation.part.content] : this.#content(this.#changeOf(item))),
      isUnchanged: mark === undefined ? undefined : () => markOf(this.#root, path) === mark,
      owner: owner ?? ownerLike(this.#root, path),
    }
    await queue.add(transition, (made) => {
      if (made.ok) {
        this.#outcomes.push({ done: intent.op })
        this.hasChanged = true
        this.#close(operation)
      } else this.#fail(item, intent.op, made.error.message.slice(0, 500))
      this.#options.onStep?.(
        made.ok ? { kind: 'done', path } : { kind: 'failed', path, reason: made.error.message },
      )
    })
  }

  #fail(item: ReviewItem, op: number, reason: string): void {
    this.#stopped.add(item.path)
    this.failed.push({ path: item.path, reason })
    this.#outcomes.push({ failed: op, reason })
  }

  #stop(item: ReviewItem, reason: string): undefined {
    this.#stopped.add(item.path)
    this.conflicts.push({ path: item.path, reason: reason.slice(0, 500) })
  }

  /** Whether this change, or one of a parent directory, was abandoned. */
  #isStopped(item: ReviewItem, path: string): boolean {
    if (this.#stopped.size === 0) return false
    if (this.#stopped.has(item.path)) return true
    const above = ancestorsOf(path).find((at) => this.#stopped.has(at))
    if (above === undefined) return false
    this.#stopped.add(item.path)
    this.failed.push({ path: item.path, reason: `"${above}" above it was not applied`.slice(0, 500) })
    return true
  }

  #changeOf(item: ReviewItem): StoredChange {
    const change = this.#options.review.changes.entries.get(item.path)
    if (change === undefined) throw new TypeError('a review item belongs to a change')
    return change
  }

  #modeOf(item: ReviewItem): number {
    const change = this.#changeOf(item)
    return change.kind === 'mode' ? change.mode : 0
  }

  #content(change: StoredChange): Iterable<Buffer> {
    return change.kind === 'file' ? readSlices(this.#contents, change.offset, change.size) : []
  }
}

/** Determines the outcome of operations on one path after a crash, from its current state. */
function judgeUnknown(chain: readonly LoggedOperation[], root: Root): OperationOutcome[] {
  if (chain.at(-1)?.outcome !== 'unknown') return []
  const captured = captureState(root, chain.at(-1)?.path ?? '')
  if (!captured.ok) return []
  const outcomes: OperationOutcome[] = []
  let isDone = false
  for (const { op, before, after, outcome } of chain.toReversed()) {
    if (outcome !== 'unknown') break
    isDone ||= isSameState(captured.value.state, after)
    if (isDone) outcomes.push({ done: op })
    else if (isSameState(captured.value.state, before))
      outcomes.push({ failed: op, reason: 'a crash came first' })
    else break
  }
  return outcomes
}

/** Root creates files in another user's directory for that user. */
function ownerLike(root: Root, path: string): Owner | undefined {
  if (process.geteuid?.() !== 0) return
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return
  using place = located.value
  const stat = place.sibling('.').stat()
  return stat.ok ? { uid: stat.value.uid, gid: stat.value.gid } : undefined
}
