/**
 * Applies chosen changes to the host's workspace. Each change is a few single-path operations; each is logged with
 * what is needed to take it back before it is done, and is atomic by itself. The host is compared with the manifest
 * once more at the very path: what changed meanwhile is a conflict, not overwritten.
 */
import { closeSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { openContents, readSlices, type StoredChange } from '../change-set.ts'
import { ancestorsOf, stateAfter } from '../conflicts.ts'
import { INDEX_MAX_BYTES, isIndexPath, meaningOfIndex } from '../git-history/index-file.ts'
import {
  absent,
  type CapturedState,
  captureState,
  describeState,
  isSameState,
  manifestState,
  markOf,
  type PathState,
} from '../path-state.ts'
import type { Review, ReviewItem } from '../review/review.ts'
import { type HeldBack, type Selection, selectChanges } from '../review/selection.ts'
import { failureOf, type WorkspaceError, type WorkspaceResult, workspaceSuccess } from '../workspace-error.ts'
import { type Intent, isOwnState, type LoggedOperation, type Outcome, WriteAheadLog } from '../write-ahead.ts'
import { removeStaged, stagedName } from './staged-files.ts'
import { type Transition, TransitionQueue } from './transition.ts'

/** Operations that are logged together before they are done; one wait for the disk serves them all. */
const BATCH_OPERATIONS = 64
/** Content kept for undo in one batch, about. */
const BATCH_BYTES = 32 * 1024 * 1024

/** A moment of applying. What `onStep` throws ends it right there; undo and apply can go on from any of them. */
export type ApplyStep =
  | { readonly kind: 'prepared' | 'intended' | 'done'; readonly path: string }
  | { readonly kind: 'failed'; readonly path: string; readonly reason: string }

export interface ApplyOptions {
  readonly review: Review
  readonly selection: Selection
  /** Where the log and what undo needs are kept (mode 0600). */
  readonly runDirectory: string
  readonly signal?: AbortSignal
  onStep?(step: ApplyStep): void
}

export interface ApplySummary {
  readonly applied: readonly string[]
  /** Chosen, and already so. */
  readonly already: readonly string[]
  readonly conflicts: readonly HeldBack[]
  readonly failed: readonly HeldBack[]
  readonly leftOut: readonly HeldBack[]
  /** Why it ended before it reached every change; absent: it reached all. What it reached is in the other lists. */
  readonly stopped?: WorkspaceError
  /** Chosen, and not looked at, because it was stopped before. */
  readonly notReached: readonly string[]
  /** Paths of the run that are applied now, by this apply and earlier ones. */
  readonly total: number
}

/**
 * Applies. The caller holds the directory's lock. Failures, with nothing changed: `damaged`, `no_space`, `cancelled`,
 * `internal`. What ends it after the first change is no failure but {@link ApplySummary.stopped}.
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
      notReached: applier.notReached,
      already: choice.already,
      conflicts: [...choice.conflicts, ...applier.conflicts],
      failed: applier.failed,
      leftOut: choice.leftOut,
      total: log.applied,
    })
  } catch (thrown) {
    return failureOf('applying the changes', thrown)
  } finally {
    if (contents !== undefined) closeSync(contents)
  }
}

/** One step of one change, not yet looked at on the host. */
interface Operation {
  readonly item: ReviewItem
  readonly path: string
  /** What the manifest says is there. */
  readonly expected: PathState
  readonly after: PathState
}

interface Prepared {
  readonly operation: Operation
  readonly intent: Intent
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
  /** Paths at or below which nothing more is done. */
  readonly #stopped = new Set<string>()
  readonly #own: ReadonlyMap<string, readonly LoggedOperation[]>
  readonly #outcomes: ({ done: number } | { failed: number; reason: string })[] = []
  /** Operations of each change that are still to be done. */
  readonly #open = new Map<ReviewItem, number>()
  #next: number
  /** Why what undo needs could not be kept. */
  #unkept: unknown
  /** Whether anything on the host is other than before. */
  hasChanged = false

  constructor(options: ApplyOptions, log: WriteAheadLog, contents: number) {
    this.#options = options
    this.#root = options.review.root
    this.#log = log
    this.#contents = contents
    this.#next = log.nextOperation
    this.#own = Map.groupBy(log.operations, ({ path }) => path)
    // A crash between staging and renaming leaves a file of ours beside its path.
    removeStaged(this.#root, log.operations)
    for (const chain of this.#own.values()) log.record(judgeUnknown(chain, this.#root))
  }

  /** @returns what ended it before it reached all changes */
  async run(items: readonly ReviewItem[]): Promise<WorkspaceError | undefined> {
    const operations = items.flatMap((item) => this.#operationsOf(item))
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

  /** What was done until now. A log that takes no more lines is not called ended, and undo looks at each path anyway. */
  #recordStopped(): void {
    try {
      this.#log.record(this.#outcomes.splice(0))
      this.#log.end()
    } catch {
      // Said so above.
    }
  }

  /** A log that cannot be written is no matter of the path that is looked at. */
  #keep(piece: Buffer): void {
    try {
      this.#log.keep(piece)
    } catch (thrown) {
      this.#unkept = thrown
      throw thrown
    }
  }

  /** There is nothing more to do for the operation: it was done, or it is not needed. */
  #close({ item }: Operation): void {
    this.#open.set(item, (this.#open.get(item) ?? 0) - 1)
  }

  #operationsOf(item: ReviewItem): Operation[] {
    const { index, changes } = this.#options.review
    const change = changes.entries.get(item.path)
    if (change === undefined) return []
    const entry = index.get(item.path)
    const expected = manifestState(entry)
    const after = change.kind === 'mode' ? withMode(expected, change.mode) : stateAfter(change)
    if (after === undefined) return []
    const operations: Operation[] = []
    if (expected.kind === 'directory' && after.kind !== 'directory') {
      for (const path of index.below(item.path).reverse()) {
        operations.push({ item, path, expected: manifestState(index.get(path)), after: absent })
      }
    }
    const isSwap =
      expected.kind !== 'absent' && (expected.kind === 'directory') !== (after.kind === 'directory')
    if (isSwap && after.kind !== 'absent') {
      operations.push({ item, path: item.path, expected, after: absent })
      operations.push({ item, path: item.path, expected: absent, after })
    } else operations.push({ item, path: item.path, expected, after })
    return operations
  }

  /** Looks at the path once more and keeps what undo needs. */
  #prepare(operation: Operation, ahead: Ahead): Prepared | undefined {
    const { item, path, after } = operation
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
    const target = isModeOnly ? withMode(state, this.#modeOf(item)) : keepSpecialBits(state, after)
    if (isSameState(state, target)) return
    if (!isExpected(state, operation, isModeOnly) && !isOwnState(this.#own.get(path), state)) {
      return this.#stop(
        item,
        `"${path}" is ${describeState(state)} that changed on the host since the review`,
      )
    }
    ahead.add(path, state, target)
    const intent: Intent = {
      op: this.#next,
      path,
      before: state,
      after: target,
      ...(owner === undefined ? {} : { owner }),
      ...(state.kind === 'file' && !isModeOnly ? { offset } : {}),
      ...this.#indexMeaning(item, path),
      temporary: stagedName(this.#options.review.changes.sha256, this.#next),
    }
    this.#next++
    this.#options.onStep?.({ kind: 'prepared', path })
    // A directory's own mark changes with what is in it; one with something in it cannot be removed anyway.
    return { operation, intent, owner, mark: state.kind === 'directory' ? undefined : mark }
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
      content: () => this.#content(this.#changeOf(item)),
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

  /** Whether this change, or that of a directory above it, was given up. */
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

/** What became of the operations on one path whose outcomes a crash took, by what is there now. */
function judgeUnknown(chain: readonly LoggedOperation[], root: Root): Outcome[] {
  if (chain.at(-1)?.outcome !== 'unknown') return []
  const captured = captureState(root, chain.at(-1)?.path ?? '')
  if (!captured.ok) return []
  const outcomes: Outcome[] = []
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

/** The states that paths will be in once the operations of a batch before this one are done. */
class Ahead {
  readonly #states = new Map<string, PathState>()
  readonly #made = new Set<string>()

  add(path: string, from: PathState, to: PathState): void {
    this.#states.set(path, to)
    if (to.kind === 'directory' && from.kind !== 'directory') this.#made.add(path)
  }

  get(path: string): PathState | undefined {
    // Nothing is in a directory that is still to be made.
    return (
      this.#states.get(path) ??
      (ancestorsOf(path).some((above) => this.#made.has(above)) ? absent : undefined)
    )
  }
}

function isExpected(state: PathState, { expected }: Operation, isModeOnly: boolean): boolean {
  if (!isModeOnly) return isSameState(state, expected)
  // A new mode goes onto whatever content is there now.
  return state.kind === expected.kind && 'mode' in state && 'mode' in expected && state.mode === expected.mode
}

/** New permission bits; a directory keeps set-gid and sticky, which its files live by. */
function withMode(state: PathState, mode: number): PathState {
  if (state.kind === 'directory') return { ...state, mode: (state.mode & 0o7000) | mode }
  return state.kind === 'file' ? { ...state, mode } : state
}

function keepSpecialBits(state: PathState, after: PathState): PathState {
  return state.kind === 'directory' && after.kind === 'directory' ? withMode(state, after.mode) : after
}

/** Root working in another's directory makes files for that user, as the directory says. */
function ownerLike(root: Root, path: string): Owner | undefined {
  if (process.geteuid?.() !== 0) return
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return
  using place = located.value
  const stat = place.sibling('.').stat()
  return stat.ok ? { uid: stat.value.uid, gid: stat.value.gid } : undefined
}
