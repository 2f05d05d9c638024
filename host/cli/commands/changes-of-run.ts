/**
 * The changes of a run for `caisson workspace`, whether the run is one of this host or of its fleet. Of a fleet's run the
 * service of this user brings the files, and applies and undoes: the hosts share its journal.
 */
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { Host } from '../../host.ts'
import { RunChanges } from '../../runs/changes.ts'
import type { ChangeOptions } from '../../runs/undo-run.ts'
import type { ApplySummary, ChangeSelection, UndoSummary } from '../../workspace/index.ts'
import { findAnyRun, requireOwn } from '../any-run.ts'
import { hostOf, type Io } from '../io.ts'

export interface OpenedChanges {
  /** To look at; `apply` below applies them. */
  readonly changes: RunChanges
  apply(selection: ChangeSelection, options: ChangeOptions): Promise<ApplySummary>
}

/** @throws {CaissonError} `run_not_found`, `not_possible_now`, `connection_lost`, and what the service says */
export async function openChanges(io: Io, name: string): Promise<OpenedChanges> {
  const host = hostOf(io)
  const { runId: run, shared } = await findAnyRun(io, name, { mayBeCopy: true })
  const client = shared?.fleet.client
  if (client === undefined) {
    const { changes, apply } = await ownChanges(host, run)
    return {
      changes,
      apply: async (selection, options) => {
        await requireOwn(io, run)
        return await apply(selection, options)
      },
    }
  }
  // From now on the files of its end are in the state folder.
  const { directory } = await client.call('listChanges', { params: { run } })
  const changes = await RunChanges.open(run, host.runs, host.folders, { directory })
  return {
    changes,
    apply: async (selection, options) => {
      const select = await selectOf(selection, changes)
      return await untilSignal(run, 'applies the changes', options, async (until) => {
        const params = { run }
        return (await client.call('applyChanges', { params, body: { select }, ...until })) as ApplySummary
      })
    },
  }
}

/** Of a run of this host. @throws {CaissonError} as `host.changes` */
export async function ownChanges(host: Host, runId: string): Promise<OpenedChanges> {
  const changes = await host.changes(runId)
  return { changes, apply: async (selection, options) => await changes.apply(selection, options) }
}

/** @throws {CaissonError} as {@link openChanges} */
export async function undoChangesOf(
  io: Io,
  name: string,
  options: ChangeOptions,
): Promise<{ readonly runId: string; readonly summary: UndoSummary }> {
  const { runId, shared } = await findAnyRun(io, name, { mayBeCopy: true })
  const client = shared?.fleet.client
  if (client === undefined) {
    await requireOwn(io, runId)
    return { runId, summary: await hostOf(io).undo(runId, options) }
  }
  const summary = await untilSignal(
    runId,
    'restores the files',
    options,
    async (until) => (await client.call('undoChanges', { params: { run: runId }, ...until })) as UndoSummary,
  )
  return { runId, summary }
}

/** Waits no longer after a signal. The service ends what it has begun. @throws {CaissonError} `cancelled` */
async function untilSignal<T>(
  runId: string,
  does: string,
  { signal }: ChangeOptions,
  ask: (until: { readonly signal?: AbortSignal }) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted()
  try {
    return await ask(signal === undefined ? {} : { signal })
  } catch (cause) {
    if (signal?.aborted !== true) throw cause
    const message = `${errorMessage(signal.reason)}; the service still ${does}`
    throw new CaissonError('cancelled', message, {
      cause,
      remedy: `see what it has done: caisson runs show ${runId}`,
    })
  }
}

/** As the HTTP API takes it, where a path includes all below it. */
async function selectOf(selection: ChangeSelection, changes: RunChanges) {
  if (selection === 'all') return 'all'
  const { exact = false, hunks = {} } = selection
  const paths = exact ? await wholePaths(selection.paths, Object.keys(hunks), changes) : [...selection.paths]
  const parts = Object.fromEntries(Object.entries(hunks).map(([path, names]) => [path, [...names]]))
  if (paths.length === 0) return { hunks: parts }
  return Object.keys(parts).length === 0 ? { paths } : { paths, hunks: parts }
}

/** Without folders whose files are not all chosen: what was chosen below them brings them along. */
async function wholePaths(paths: readonly string[], parts: readonly string[], changes: RunChanges) {
  const chosen = new Set(paths)
  const left = (await changes.review()).flatMap(({ path }) => (chosen.has(path) ? [] : [path]))
  const out = [...left, ...parts]
  return paths.filter((path) => !out.some((other) => other.startsWith(`${path}/`)))
}
