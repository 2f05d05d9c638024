/** Results of several runs that began with the same files, side by side: the change set of each, by content. */
import { CaissonError } from '#specs/errors.ts'
import { comparePaths } from '#specs/node/path-text.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { RunPaths, RunStore } from '../journal/run-store.ts'
import { manifestFile, requireValue } from '../runs/prepare.ts'
import {
  type ChangeSet,
  type Manifest,
  readChangeSet,
  readManifest,
  type StoredChange,
} from '../workspace/index.ts'

/** Runs that are compared or merged at once. */
export const resultsMaxCount = 16

type EventOf<T extends JournalEvent['event']['type']> = Extract<JournalEvent['event'], { type: T }>

export interface RunOutcomeFiles {
  readonly runId: string
  readonly paths: RunPaths
  readonly state: RunState
  readonly start: EventOf<'run-start'>
  readonly workspace: EventOf<'workspace-ready'>
  readonly manifest: Manifest
  readonly changes: ChangeSet
  /** Lines of changed paths, as the run's end counted them. */
  readonly lines: ReadonlyMap<
    string,
    { readonly added?: number | undefined; readonly removed?: number | undefined }
  >
}

/** @throws {CaissonError} `not_possible_now` when a run brought no changes, `invalid_options` when their files differ */
export async function openResults(store: RunStore, runIds: readonly string[]): Promise<RunOutcomeFiles[]> {
  const twice = runIds.find((runId, index) => runIds.indexOf(runId) !== index)
  if (twice !== undefined)
    throw new CaissonError('invalid_options', `${twice} is named twice; name each run once`)
  if (runIds.length < 2 || runIds.length > resultsMaxCount)
    throw new CaissonError('invalid_options', `expected 2 to ${resultsMaxCount} runs, not ${runIds.length}`)
  const results: RunOutcomeFiles[] = []
  for (const runId of runIds) results.push(await openResult(store, runId))
  const [first] = results
  const other = results.find(({ workspace }) => workspace.manifestSha256 !== first?.workspace.manifestSha256)
  if (first !== undefined && other !== undefined)
    throw new CaissonError(
      'invalid_options',
      `${first.runId} and ${other.runId} did not begin with the same files, so their changes cannot be compared`,
      { remedy: 'compare forks of one run: caisson runs fork RUN --at STEP -n 2' },
    )
  return results
}

/** @throws {CaissonError} `not_possible_now` when the run brought no changes */
export async function openResult(store: RunStore, runId: string): Promise<RunOutcomeFiles> {
  let state = initialRunState
  let start: EventOf<'run-start'> | undefined
  let workspace: EventOf<'workspace-ready'> | undefined
  let ready: EventOf<'changes-ready'> | undefined
  await store.visit(runId, (line) => {
    state = reduceRun(state, line)
    const { event } = line
    if (event.type === 'run-start') start ??= event
    if (event.type === 'workspace-ready') workspace ??= event
    if (event.type === 'changes-ready') ready = event
  })
  if (start === undefined || workspace === undefined || ready === undefined)
    throw new CaissonError('not_possible_now', `${runId} has no changes`, {
      remedy: `see: caisson runs show ${runId}`,
    })
  const paths = store.paths(runId)
  const manifest = requireValue(await readManifest(manifestFile(paths.directory), workspace.manifestSha256))
  const changes = requireValue(await readChangeSet(paths.directory, ready.sha256))
  const lines = new Map((ready.paths ?? []).map(({ path, added, removed }) => [path, { added, removed }]))
  return { runId, paths, state, start, workspace, manifest, changes, lines }
}

/** All paths that one of them changed, in order. */
export function changedPaths(results: readonly RunOutcomeFiles[]): string[] {
  return [...new Set(results.flatMap(({ changes }) => [...changes.entries.keys()]))].toSorted(comparePaths)
}

/** Two changes of one path with the same signature leave the same behind. */
export function signatureOf(change: StoredChange): string {
  switch (change.kind) {
    case 'file':
      return `file ${change.mode} ${change.sha256}`
    case 'link':
      return `link ${change.target}`
    case 'unsupported':
      return `unsupported ${change.reason}`
    case 'directory':
    case 'mode':
      return `${change.kind} ${change.mode}`
    case 'deleted':
      return 'deleted'
  }
}
