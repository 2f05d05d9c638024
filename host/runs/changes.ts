/**
 * Reviews, applies and undoes the changes of a finished run. Each action holds the directory's lock and is journaled
 * before and after its effect.
 */

import { closeSync, existsSync } from 'node:fs'
import * as z from 'zod'
import { CaissonError, hasCode, requireText, withCode } from '#specs/errors.ts'
import { Line } from '#specs/protocol/text.ts'
import { checkArguments, SignalOption } from '../files/check-arguments.ts'
import { readImported } from '../journal/imported.ts'
import { RunRecord } from '../journal/run-record.ts'
import type { RunStore } from '../journal/run-store.ts'
import { closeToPrograms } from '../processes/programs.ts'
import type { Folders } from '../state/folders.ts'
import {
  type ApplySummary,
  applyChanges,
  type ChangeSelection,
  type ChangeSet,
  chooseHunks,
  diffItem,
  type FileVersion,
  failureOf,
  type Hunk,
  hunksOf,
  isStillReplaced,
  type Manifest,
  namedPaths,
  openContents,
  type PathVersions,
  type Review,
  type ReviewItem,
  readAppliedCount,
  readBefore,
  readChangeSet,
  readManifest,
  readVersions,
  reviewChanges,
  ruleChangeOf,
  selectChanges,
  type UndoSummary,
  type WorkspaceError,
  WorkspaceFailure,
} from '../workspace/index.ts'
import { changesAsTar } from './changes-tar.ts'
import { KeptRules } from './ignore-rule-changes.ts'
import { nameOtherRuns } from './other-runs.ts'
import { manifestFile, requireValue } from './prepare.ts'
import { boundHeld, type ChangeOptions, firstPaths, undoRun } from './undo-run.ts'

export interface ReviewedChange extends ReviewItem {
  /** Unified diff, or null with the reason in `noDiff`. Untrusted text. */
  readonly diff: string | null
  readonly noDiff?: string
  /** Parts of the diff that can be applied by themselves, in its order. */
  readonly hunks: readonly Hunk[]
}

export type { FileVersion, PathVersions } from '../workspace/index.ts'

/** All changes, the effect on git repositories, and the branches that are kept under another name. */
export type InspectedChanges = Pick<Review, 'items' | 'history' | 'aside'>

/** Where the changes of a run of a fleet are applied. */
export interface ChangesPlace {
  /** On this machine. Absent: where the run had it. */
  readonly directory?: string
  /** Why nothing is applied here. */
  readonly refusal?: CaissonError
}

export class RunChanges {
  readonly runId: string
  readonly #store: RunStore
  readonly #folders: Folders
  readonly #manifest: Manifest
  readonly #changes: ChangeSet
  /** When the directory was copied, in ms since 1970. */
  readonly #copiedAt: number
  /** The run that it replays; undefined for a run that is no replay. */
  readonly #replays: string | undefined
  readonly #place: ChangesPlace

  private constructor(
    runId: string,
    store: RunStore,
    folders: Folders,
    manifest: Manifest,
    changes: ChangeSet,
    { copiedAt, replays }: Pick<Digests, 'copiedAt' | 'replays'>,
    place: ChangesPlace,
  ) {
    this.#place = place
    this.#copiedAt = copiedAt
    this.#replays = replays
    this.runId = runId
    this.#store = store
    this.#folders = folders
    this.#manifest = manifest
    this.#changes = changes
  }

  /** @throws {CaissonError} when the run produced no changes, or its stored files are damaged */
  static async open(
    runId: string,
    store: RunStore,
    folders: Folders,
    place: ChangesPlace = {},
  ): Promise<RunChanges> {
    try {
      const digests = await readDigests(runId, store)
      const { directory } = store.paths(runId)
      const kept = requireValue(await readManifest(manifestFile(directory), digests.manifest))
      const imported = await readImported(directory)
      // The directory of another machine means nothing here.
      const root = imported?.workspace ?? place.directory ?? kept.root
      const manifest = { ...kept, root }
      const changes = requireValue(await readChangeSet(directory, digests.changes))
      // No program that merges or shows the changes comes from where an agent's files are.
      closeToPrograms(manifest.root)
      return new RunChanges(runId, store, folders, manifest, changes, digests, place)
    } catch (error) {
      const isLost = hasCode(
        error,
        'state_corrupted',
        'state_unavailable',
        'permission_denied',
        'not_possible_now',
      )
      if (!isLost || readAppliedCount(store.paths(runId).directory) === 0) throw error
      const remedy = `the applied changes can still be undone: caisson workspace undo ${runId}`
      throw new CaissonError(error.code, error.message, { remedy, cause: error })
    }
  }

  /** The workspace on the host. */
  get directory(): string {
    return this.#manifest.root
  }

  /** All changes, compared with the current state of the host's files. */
  async review(): Promise<ReviewItem[]> {
    return [...(await this.inspect()).items]
  }

  /** Like {@link review}, with the effect on git repositories. */
  async inspect(): Promise<InspectedChanges> {
    using review = await this.#review()
    const { items, history, aside } = review
    return { items, history, aside }
  }

  /**
   * Like {@link review}, with diffs. Reads both sides of each file.
   * @param options `maxBytes` of the larger side of a file, beyond which it has no diff. Absent: 512 KiB
   */
  async *reviewWithDiffs(
    options: { readonly maxBytes?: number } = {},
  ): AsyncGenerator<ReviewedChange, void, undefined> {
    checkArguments('the options of the diffs cannot be used', DiffOptions, options)
    using review = await this.#review()
    for (const item of review.items) {
      const diff = diffItem(review, item, options)
      yield diff.kind === 'text'
        ? { ...item, diff: diff.text, hunks: hunksOf(diff.patch) }
        : { ...item, diff: null, noDiff: diff.why, hunks: [] }
    }
  }

  /**
   * The three versions of a path that the run changed: as it went into the VM, as the run made it, as the host has it.
   * @throws {CaissonError} `invalid_options` for a path without a change
   */
  async versions(path: string): Promise<PathVersions> {
    requireText('path', path)
    if (!this.#changes.entries.has(path))
      throw new CaissonError(
        'invalid_options',
        `no change of ${this.runId} has the path ${JSON.stringify(path)}`,
        {
          remedy: `list the paths: caisson workspace diff ${this.runId}`,
        },
      )
    const { directory } = this.#store.paths(this.runId)
    return requireValue(readVersions(this.#manifest, this.#changes, directory, path))
  }

  /**
   * Whether the run had a given content of a file (`files.contents`), and the host still has the file in whose place that was.
   */
  async hasReplaced(path: string): Promise<boolean> {
    requireText('path', path)
    return isStillReplaced(this.#manifest, path)
  }

  /** A file as it went into the VM, also where the run did not change it, or why it is not known. */
  async before(path: string): Promise<FileVersion> {
    requireText('path', path)
    const { directory } = this.#store.paths(this.runId)
    return requireValue(readBefore(this.#manifest, directory, path))
  }

  /**
   * The changes as a tar archive (GNU's form): `changes.json` with each path and what became of it, then below `files/`
   * what the run made of the new and changed ones. Untrusted names and contents.
   * @throws {CaissonError} `state_corrupted` when a stored content is damaged
   */
  async *archive(): AsyncGenerator<Buffer, void, undefined> {
    try {
      yield* changesAsTar(this.#changes)
    } catch (error) {
      if (error instanceof WorkspaceFailure)
        throw new CaissonError('state_corrupted', `the changes of ${this.runId} are damaged`, {
          cause: error,
        })
      throw error
    }
  }

  /** Whether the path went into the VM. */
  wentIn(path: string): boolean {
    requireText('path', path)
    return this.#manifest.entries.has(path)
  }

  /**
   * Applies a selection; `all` skips flagged and conflicting changes. Journals nothing when there is nothing to apply.
   * @throws {CaissonError} `invalid_options` before anything is applied, for a path without a change; `not_possible_now`
   *   for a replay, and for a hunk that the diff does not have now
   */
  async apply(selection: ChangeSelection, options: ChangeOptions = {}): Promise<ApplySummary> {
    requireSelection(selection)
    checkOptions(options)
    if (this.#place.refusal !== undefined) throw this.#place.refusal
    if (this.#replays !== undefined)
      throw new CaissonError('not_possible_now', `${this.runId} is a replay; nothing of it is applied`, {
        remedy: `apply the changes of the run that it replays: caisson workspace apply ${this.#replays}`,
      })
    const { signal, by } = options
    const { sha256 } = this.#changes
    return await this.#recorded(signal, async (record, runDirectory) => {
      using review = await this.#review()
      // Completes the journal entry of an interrupted apply.
      const { chosen, unknown } = selectChanges(review, selection)
      if (unknown.length > 0) throw new CaissonError('invalid_options', describeUnknown(this.runId, unknown))
      const parts = this.#requireHunks(review, selection)
      const isNothing = chosen.length === 0 && record.state.unfinished === null
      const count = selection === 'all' ? review.items.length : namedPaths(selection).length
      const who = by === undefined ? {} : { by }
      if (!isNothing) await record.host({ type: 'apply-start', paths: count, sha256, ...who })
      if (!isNothing) await this.#keepRules(review)
      const made = requireValue(
        await applyChanges({ review, selection, parts, runDirectory, ...(signal ? { signal } : {}) }),
      )
      const summary = { ...made, conflicts: await nameOtherRuns(made.conflicts, this.#around) }
      if (isNothing) return summary
      const { applied, leftOut, conflicts, failed, appliedNow } = summary
      const lists = { conflicts: boundHeld(conflicts), failed: boundHeld(failed), total: appliedNow }
      const paths = firstPaths(applied)
      const inPart = made.parts.slice(0, paths.length)
      const counts = { applied: applied.length, paths, leftOut: leftOut.length }
      const event = {
        type: 'apply-end' as const,
        ...{ ...counts, ...lists },
        ...(inPart.length === 0 ? {} : { parts: inPart }),
      }
      return { ...summary, ...(await attempt(record.host(event))) }
    })
  }

  /** Reverts everything that this run applied, and nothing else. See {@link undoRun}. */
  async undo(options: ChangeOptions = {}): Promise<UndoSummary> {
    checkOptions(options)
    return await undoRun(this.runId, this.#store, this.#folders, options)
  }

  #requireHunks(review: Review, selection: ChangeSelection) {
    const { parts, problems } = chooseHunks(review, selection === 'all' ? {} : (selection.hunks ?? {}))
    const [first] = problems
    if (first === undefined) return parts
    throw new CaissonError('not_possible_now', `${first}; nothing was applied`, {
      remedy: `list the hunks: caisson workspace diff ${this.runId}`,
    })
  }

  /**
   * Runs before an apply: records the changes to ignore rules even if they are not selected, since the run's commits
   * may contain them.
   */
  async #keepRules(review: Review): Promise<void> {
    const contents = openContents(review.changes.paths.contents)
    try {
      const change = ruleChangeOf(review, contents, this.runId)
      if (change !== undefined) await new KeptRules(this.#folders).add(this.#manifest.root, change)
    } finally {
      closeSync(contents)
    }
  }

  async #recorded<T>(
    signal: AbortSignal | undefined,
    work: (record: RunRecord, runDirectory: string) => Promise<T>,
  ): Promise<T> {
    const paths = this.#store.paths(this.runId)
    if (!existsSync(paths.journal))
      throw new CaissonError('run_not_found', `${this.runId} was removed, and its changes with it`)
    await using record = await RunRecord.open(paths)
    const wait = signal === undefined ? {} : { signal }
    await using _ = requireValue(await record.holdDirectory(this.#manifest.root, wait))
    return await withCode(() => work(record, record.paths.directory))
  }

  async #review(): Promise<Review> {
    using opened = new DisposableStack()
    const review = opened.use(requireValue<Review>(await reviewChanges(this.#manifest, this.#changes)))
    const conflicts = review.items.flatMap(({ path, state }) =>
      state.kind === 'conflict' ? [{ path, reason: state.reason }] : [],
    )
    const named = await nameOtherRuns(conflicts, this.#around)
    const reasons = new Map(named.map(({ path, reason }) => [path, reason]))
    opened.move()
    const items = review.items.map((item) => {
      const reason = reasons.get(item.path)
      return reason === undefined ? item : { ...item, state: { kind: 'conflict', reason } as const }
    })
    return { ...review, items }
  }

  get #around() {
    const { root } = this.#manifest
    return { store: this.#store, runId: this.runId, root, sinceMs: this.#copiedAt }
  }
}

function describeUnknown(runId: string, unknown: readonly string[]): string {
  const named = unknown.slice(0, 10).map((path) => JSON.stringify(path))
  const more = unknown.length > named.length ? ` and ${unknown.length - named.length} more` : ''
  return (
    `no change of ${runId} has the path ${named.join(', ')}${more}; nothing was applied. ` +
    `List the paths: caisson workspace diff ${runId}`
  )
}

/** The files have already changed. If the journal entry cannot be written, the summary says so. */
async function attempt(written: Promise<void>): Promise<{ readonly stopped?: WorkspaceError }> {
  try {
    await written
    return {}
  } catch (error) {
    return { stopped: failureOf('recording in the journal what was done', error).error }
  }
}

interface Digests {
  readonly manifest: string
  readonly changes: string
  readonly copiedAt: number
  readonly replays: string | undefined
}

/**
 * Digests of the manifest and the change set, and when the directory was copied, from the journal.
 * @throws {CaissonError} `not_possible_now` when the run has no changes
 */
async function readDigests(runId: string, store: RunStore): Promise<Digests> {
  let manifest: string | undefined
  let changes: string | undefined
  let copiedAt = 0
  let replays: string | undefined
  let hasEnded = false
  await store.visit(runId, ({ event, at }) => {
    if (event.type === 'run-end') hasEnded = true
    else if (event.type === 'run-start') replays = event.replays
    else if (event.type === 'workspace-ready') {
      // A run that was killed while its directory was copied copies it again.
      manifest = event.manifestSha256
      copiedAt = at
    } else if (event.type === 'changes-ready') changes = event.sha256
  })
  if (changes === undefined && !hasEnded)
    throw new CaissonError('not_possible_now', `${runId} has not ended, so it has no changes yet`, {
      remedy: `follow it to its end: caisson attach ${runId}`,
    })
  if (manifest === undefined || changes === undefined)
    throw new CaissonError('not_possible_now', `${runId} has no changes`, {
      remedy: `see: caisson runs show ${runId}`,
    })
  return { manifest, changes, copiedAt, replays }
}

const DiffOptions = z.strictObject({ maxBytes: z.int().positive().optional() })
const CallOptions = z.strictObject({ signal: SignalOption, by: Line.optional() })

function checkOptions(options: unknown): void {
  checkArguments('the options of the call cannot be used', CallOptions, options)
}

const Selection = z.union([
  z.literal('all'),
  z.strictObject({
    paths: z.array(z.string()).readonly(),
    exact: z.boolean().optional(),
    hunks: z.record(z.string(), z.array(z.union([z.int().positive(), z.string()])).min(1)).optional(),
  }),
])

function requireSelection(selection: unknown): asserts selection is ChangeSelection {
  const read = Selection.safeParse(selection)
  if (!read.success)
    throw new CaissonError(
      'invalid_options',
      "the selection: must be 'all' or { paths: [...], hunks: { PATH: [...] } } with texts, and numbers or IDs of hunks",
    )
  if (read.data === 'all') return
  const { paths, hunks = {} } = read.data
  const both = paths.find((path) => Object.hasOwn(hunks, path))
  if (both !== undefined)
    throw new CaissonError(
      'invalid_options',
      `the selection: ${JSON.stringify(both)} is in paths and in hunks; name it in one of them`,
    )
}
