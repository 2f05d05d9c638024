/** Makes the folder of a run that no agent made: the merged changes of others, to review, apply and undo as any run's. */
import { hash } from 'node:crypto'
import { copyFile, open, rm, writeFile } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { type ImportedRun, readImported, writeImported } from '../journal/imported.ts'
import { RunRecord } from '../journal/run-record.ts'
import { newRunId, type RunPaths, type RunStore } from '../journal/run-store.ts'
import { keepChanges } from '../runs/guest/change-stream.ts'
import { manifestFile, requireValue } from '../runs/prepare.ts'
import { changeSetPaths, readBase, readChangeSet } from '../workspace/index.ts'
import { contentOf, type MergeConflict, type MergedChange, planMerge, type Take } from './merge-runs.ts'
import { openResults, type RunOutcomeFiles } from './results.ts'

export interface MergedRuns {
  /** The new run, whose changes are the merged ones; absent where there are conflicts. */
  readonly runId?: string
  readonly entries: number
  /** Paths with lines of more than one run. */
  readonly merged: readonly string[]
  /** What a person must decide, with `takes`, before anything is merged. */
  readonly conflicts: readonly MergeConflict[]
}

export interface MergeOptions {
  /** Of the new run. Default: what the runs have in common. */
  readonly metadata?: Readonly<Record<string, string>>
}

/** @throws {CaissonError} `invalid_options`, `not_possible_now`, `state_corrupted` */
export async function mergeRuns(
  store: RunStore,
  runIds: readonly string[],
  takes: readonly Take[],
  { metadata }: MergeOptions = {},
): Promise<MergedRuns> {
  const results = await openResults(store, runIds)
  const { changes, conflicts, merged } = planMerge(results, takes)
  if (conflicts.length > 0) return { entries: changes.length, merged, conflicts }
  const [first] = results
  if (first === undefined) throw new CaissonError('internal', 'there is nothing to merge')
  const imported = await requireOneDirectory(results)
  const paths = await store.create(newRunId())
  try {
    if (imported !== undefined) await writeImported(paths.directory, imported)
    await writeRun(paths, first, { results, changes, metadata: metadata ?? commonMetadata(results) })
    await store.adopt([paths.runId], runIds)
  } catch (error) {
    await rm(paths.directory, { recursive: true, force: true })
    throw error
  }
  return { runId: paths.runId, entries: changes.length, merged, conflicts }
}

/**
 * The changes of an imported run are for the directory that was named at its import, not for that of its journal.
 * @returns what the merged run is to keep of that
 */
async function requireOneDirectory(results: readonly RunOutcomeFiles[]): Promise<ImportedRun | undefined> {
  const imported = await Promise.all(results.map(({ paths }) => readImported(paths.directory)))
  if (imported.every((one) => one === undefined)) return undefined
  const directories = new Set(imported.map((one, at) => one?.workspace ?? results[at]?.start.directory))
  if (directories.size === 1) return imported.find((one) => one !== undefined)
  throw new CaissonError(
    'invalid_options',
    `the runs are for several directories: ${[...directories].join(', ')}`,
    { remedy: 'import them for one directory: caisson runs import -w DIR' },
  )
}

interface MergeParts {
  readonly results: readonly RunOutcomeFiles[]
  readonly changes: readonly MergedChange[]
  readonly metadata: Readonly<Record<string, string>>
}

/** Facts of one run alone, such as who owns it, do not hold for all of the changes. */
function commonMetadata([first, ...others]: readonly RunOutcomeFiles[]): Readonly<Record<string, string>> {
  const facts = Object.entries(first?.start.metadata ?? {})
  return Object.fromEntries(
    facts.filter(([key, value]) =>
      others.every(({ start: { metadata = {} } }) => Object.hasOwn(metadata, key) && metadata[key] === value),
    ),
  )
}

async function writeRun(
  paths: RunPaths,
  { start, workspace, manifest, paths: from }: RunOutcomeFiles,
  { results, changes, metadata }: MergeParts,
): Promise<void> {
  const runIds = results.map(({ runId }) => runId)
  await using record = await RunRecord.open(paths)
  const { forkedFrom: _, continues: __, planFrom: ___, metadata: ____, ...own } = start
  await record.host({
    ...own,
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
    prompt: `Merge of ${runIds.join(', ')}: ${start.prompt}`.slice(0, limits.documentMaxChars),
    mergedFrom: runIds,
  })
  await copyFile(manifestFile(from.directory), manifestFile(paths.directory))
  await record.host(workspace)
  await writeChanges(paths.directory, changes)
  const received = requireValue(await readChangeSet(paths.directory))
  const runDirectory = paths.directory
  const readBefore = (_path: string, sha256: string) => {
    for (const result of results) {
      const base = readBase(result.paths.directory, sha256)
      if (base !== undefined) return base
    }
    return undefined
  }
  await record.host(await keepChanges(received, { manifest, readBefore, runDirectory }))
  const message = `merged from ${runIds.join(', ')}`
  const end = { outcome: 'completed', reason: 'completed', message, summary: '' } as const
  await record.host({ type: 'run-end', ...end, usage: noUsage, durationMs: 0 })
}

/** As a run receives them: see host/workspace/change-set.ts. */
async function writeChanges(runDirectory: string, changes: readonly MergedChange[]): Promise<void> {
  const { entries, contents } = changeSetPaths(runDirectory)
  const lines: string[] = []
  let offset = 0
  await using file = await open(contents, 'wx', 0o600)
  for (const one of changes) {
    const content = contentOf(one)
    if (content === undefined) {
      if ('change' in one) lines.push(JSON.stringify(one.change))
      continue
    }
    const { bytes, sha256 } = content
    if (hash('sha256', bytes) !== sha256)
      throw new CaissonError(
        'state_corrupted',
        'the stored content of a change is damaged; nothing was merged',
      )
    const { path, mode } = 'change' in one && one.change.kind === 'file' ? one.change : asFile(one)
    lines.push(JSON.stringify({ kind: 'file', path, mode, size: bytes.length, sha256, offset }))
    await file.writeFile(bytes)
    offset += bytes.length
  }
  await file.datasync()
  lines.push(JSON.stringify({ end: true, entries: changes.length, contentBytes: offset }))
  await writeFile(entries, `${lines.join('\n')}\n`, { mode: 0o600, flag: 'wx' })
}

function asFile(one: MergedChange): { readonly path: string; readonly mode: number } {
  if ('content' in one) return one
  throw new TypeError('a change without content')
}
