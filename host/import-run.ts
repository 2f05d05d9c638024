/**
 * Makes a run of an archive: whole or not at all. What a run was permitted elsewhere is not permitted here: answers and
 * rules of approvals and of network access, paths of this machine, and keys stay out.
 */
import { existsSync } from 'node:fs'
import { mkdir, readFile, rename } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { CaissonError } from '#specs/errors.ts'
import { ArchiveStage } from './archive/archive-stage.ts'
import { checkFolder } from './archive/check-folder.ts'
import { type ArchiveManifest, invalidArchive } from './archive/format.ts'
import { unpackArchive } from './archive/read-archive.ts'
import { replaceFile } from './files/durable.ts'
import { clearLeftStages } from './journal/archive-stages.ts'
import { writeImported } from './journal/imported.ts'
import { scanJournal } from './journal/journal-lines.ts'
import { writeSummary } from './journal/journal-summary.ts'
import type { RunFold } from './journal/run-outline.ts'
import type { RunPaths } from './journal/run-store.ts'
import { type HostState, requireDirectory } from './resolve-run.ts'
import { type KeptBounds, requireRoomForRun } from './runs/storage-bounds.ts'
import { prepareFolders } from './state/folders.ts'
import { importedStore } from './stored-run.ts'
import { RunLock } from './workspace/run-lock.ts'

/** By which clocks of two machines may differ. */
const clockDifferenceMs = 24 * 60 * 60 * 1000

export interface ImportOptions {
  /** The directory that the run's changes are for, and that it continues on. Default: the current one. */
  readonly workspace?: string
  readonly signal?: AbortSignal
}

export interface ImportResult {
  readonly runId: string
  /** False: the same run was there. */
  readonly isNew: boolean
  /** Whether `host.resume` can continue it. */
  readonly canContinue: boolean
  /** Names of environment variables and headers of MCP servers whose values it needs to continue. */
  readonly withheld: Readonly<
    Record<string, { readonly env: readonly string[]; readonly headers: readonly string[] }>
  >
}

/** @throws {CaissonError} `invalid_archive`, `not_possible_now` when another run has its id, `no_space`, `limit_reached` */
export async function importRun(
  from: Readable,
  host: HostState,
  bounds: KeptBounds,
  { workspace, signal }: ImportOptions,
): Promise<ImportResult> {
  // A stream that fails before it is read must not end the process.
  from.on('error', () => undefined)
  const { folders, runs } = host
  const directory = requireDirectory(workspace ?? process.cwd(), folders)
  await prepareFolders(folders)
  await clearLeftStages(folders)
  await requireRoomForRun(folders.runs, bounds)
  await using stage = await ArchiveStage.open(folders, 'import')
  const { maxBytes } = bounds
  const manifest = await unpackArchive(from, stage.directory, {
    maxBytes,
    ...(signal === undefined ? {} : { signal }),
  })
  const fold = await checkFolder(stage.directory, manifest)
  requirePast(fold)
  const { runId, canContinue, withheld } = manifest
  const paths = runs.paths(runId)
  const result = { runId, canContinue, withheld }
  await using _ = await RunLock.take(folders.locks, runId)
  if (existsSync(paths.directory)) {
    await requireSame(paths, manifest)
    return { ...result, isNew: false }
  }
  signal?.throwIfAborted()
  await complete(stage.directory, manifest, fold, directory)
  await stage.become(paths.directory)
  return { ...result, isNew: true }
}

/** A run of the future would be the last one of its directory for as long. */
function requirePast({ outline: { startedAt, forkedAt = 0, lastAt = 0 } }: RunFold): void {
  const at = Math.max(startedAt ?? 0, forkedAt, lastAt)
  if (at <= Date.now() + clockDifferenceMs) return
  throw invalidArchive(`its journal is of ${new Date(at).toISOString()}, which is in the future`)
}

async function requireSame({ runId, journal }: RunPaths, manifest: ArchiveManifest): Promise<void> {
  const found = await scanJournal(journal, runId, () => undefined).catch(() => undefined)
  if (found?.end.hash === manifest.journal.head && found.tornBytes === 0) return
  throw new CaissonError('not_possible_now', `another run with the ID ${runId} is here already`, {
    remedy: `to replace it, remove it first: caisson runs rm ${runId}`,
  })
}

/** Adds what this host writes itself. */
async function complete(
  folder: string,
  { runId, image, journal, canContinue, withheld }: ArchiveManifest,
  fold: RunFold,
  workspace: string,
): Promise<void> {
  const file = path.join(folder, 'run.json')
  if (existsSync(file)) {
    const stored = importedStore(await readFile(file, 'utf8'), { runId, workspace })
    if (!stored.ok) throw invalidArchive(stored.error)
    await replaceFile(file, stored.value)
  }
  if (!canContinue) await keepEnded(folder)
  const { events: seq, bytes, head: hash } = journal
  await writeImported(folder, { version: 1, at: Date.now(), workspace, image, withheld, lines: seq })
  const closed = fold.state.end !== null
  const summary = { seq, bytes, hash, closed, outline: fold.outline }
  await writeSummary(path.join(folder, 'journal.jsonl'), summary, true)
}

/** An ended run is forked from its disk and replayed, not continued. */
async function keepEnded(folder: string): Promise<void> {
  const kept = ['workspace.erofs', 'workspace-files.json', 'scratch', 'run.json']
  const names = kept.filter((name) => existsSync(path.join(folder, name)))
  if (names.length === 0) return
  await mkdir(path.join(folder, 'moments'), { mode: 0o700 })
  for (const name of names) await rename(path.join(folder, name), path.join(folder, 'moments', name))
}
