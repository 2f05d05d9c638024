/**
 * Prepares the workspace before the VM starts: scans the directory, writes it to a disk image, and keeps its manifest
 * with the run. Holds the directory's lock only meanwhile, so that several runs can work on copies of one directory.
 */

import { closeSync, existsSync, openSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError, type ErrorCode } from '#specs/errors.ts'
import type { HostDelta, LeftOut } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { replaceFile } from '../files/durable.ts'
import { formatBytes, formatCount } from '../files/format.ts'
import { parseJson } from '../files/json.ts'
import { readImported } from '../journal/imported.ts'
import type { RunRecord } from '../journal/run-record.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { type Folders, ownPlaces } from '../state/folders.ts'
import type { PooledVm } from '../vm/vm-pool.ts'
import {
  buildDisk,
  checkDirectory,
  type Manifest,
  manifestName,
  type ReadBefore,
  readFromDisk,
  readManifest,
  scanWorkspace,
  type WorkspaceError,
  type WorkspaceErrorCode,
  type WorkspaceResult,
  writeManifest,
} from '../workspace/index.ts'
import { describeFolders, scanFolders } from './added-folders.ts'
import { KeptRules } from './ignore-rule-changes.ts'
import type { PlannedRun, ReplayedRun, ResolvedRun } from './resolved-run.ts'

/** Path of the manifest in a run's directory. */
export const manifestFile = (runDirectory: string) => path.join(runDirectory, manifestName)

export interface PreparedWorkspace extends AsyncDisposable {
  readonly manifest: Manifest
  /** Reads a file of the disk; until this object is disposed. */
  readonly readBefore: ReadBefore
  /** Path of the erofs file for the drive `workspace`. */
  readonly disk: string
  /** VM of the pool that already has the disk; ended with this object. Absent: a VM must be started. */
  readonly vm?: PooledVm
}

/** @throws {CaissonError} when the directory is unusable, in use, or too large */
export async function prepareWorkspace(
  plan: Pick<
    ResolvedRun,
    | 'folders'
    | 'directory'
    | 'include'
    | 'contents'
    | 'acceptIgnoreRules'
    | 'runId'
    | 'pool'
    | 'addedFolders'
    | 'replays'
  > &
    Partial<Pick<ResolvedRun, 'vm'>>,
  record: RunRecord,
  signal: AbortSignal,
): Promise<PreparedWorkspace> {
  const { folders, directory, include, contents, addedFolders = [], replays } = plan
  const given = contents === undefined ? {} : { contents }
  if (replays !== undefined) return await openPlaced(replays, record)
  await using undo = new AsyncDisposableStack()
  const places = ownPlaces(folders)
  const root = requireValue(checkDirectory(directory, places))
  const tell = (what: Preparation['what'], text: string, place?: number) =>
    record.delta('root', { type: 'prepare', what, text, ...(place === undefined ? {} : { place }) })
  const onWait = () => tell('directory', 'waiting for another run that copies or changes the directory')
  await using _ = requireValue(await record.holdDirectory(root, { signal, onWait }))
  tell('workspace', 'looking through the directory')
  const kept = new KeptRules(folders)
  if (plan.acceptIgnoreRules === true) await kept.accept(root)
  const ruleChanges = await kept.of(root)
  const scan = requireValue(
    await scanWorkspace({ directory, isReal: true, include, ...given, ruleChanges, signal, ...places }),
  )
  if (addedFolders.length > 0) tell('workspace', 'looking through the added folders')
  const added = requireValue(await scanFolders(addedFolders, folders, signal))
  const { disk } = record.paths
  let isReady = false
  undo.defer(async () => {
    // Afterwards it belongs to the run, which can be continued from it.
    if (!isReady) await rm(disk, { force: true })
  })
  if (plan.pool !== undefined) tell('vm', 'taking a VM of the pool')
  const onPlace = (place: number) => tell('queue', describePlace(place), place)
  const scratch = plan.vm?.recoveries === 0 ? {} : { scratch: record.paths.scratch }
  const vm = await plan.pool?.take({ workspaceDisk: disk, ...scratch, signal, onPlace })
  if (vm !== undefined) undo.defer(async () => void (await vm.stop()))
  const isInPlace = vm !== undefined
  const files = added.reduce((sum, folder) => sum + folder.scan.files, scan.files)
  tell('workspace', `copying ${formatCount(files, 'file')} for the VM`)
  const built = requireValue(await buildDisk({ scan, folders: added, file: disk, isInPlace, signal }))
  const { manifest, fileNids } = built
  const unmatched = scan.unmatched.slice(0, 50).map((pattern) => pattern.slice(0, 500))
  const ready = await keepManifest(manifest, record.paths.directory)
  await record.host({
    ...ready,
    ...(unmatched.length === 0 ? {} : { unmatched }),
    ...(built.folders.length === 0 ? {} : { folders: describeFolders(built.folders) }),
  })
  tell('vm', vm === undefined ? 'starting a VM' : 'handing the files to the VM')
  await replaceFile(record.paths.diskFiles, JSON.stringify([...fileNids]))
  const fd = openSync(disk, 'r')
  undo.defer(() => closeSync(fd))
  isReady = true
  const held = undo.move()
  return {
    manifest,
    readBefore: readFromDisk(fd, fileNids),
    disk,
    ...(vm === undefined ? {} : { vm }),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  }
}

/** The workspace that was put into the folder of a replay. @throws {CaissonError} `state_corrupted` */
async function openPlaced({ workspaceReady }: ReplayedRun, record: RunRecord): Promise<PreparedWorkspace> {
  const placed = await reopenWorkspace(record.paths, true)
  if (placed === undefined) throw new CaissonError('internal', 'the replay has no workspace')
  await record.host(workspaceReady)
  return placed
}

const DiskFiles = z.array(z.tuple([z.string(), z.int().min(0)]))

/**
 * The workspace of an interrupted run as it was copied then, from the run's folder. Undefined when the host process
 * ended before it was all there. The file of the disk stays.
 * @param isNeeded whether a checkpoint of the run builds on it
 * @throws {CaissonError} `state_corrupted`
 */
export async function reopenWorkspace(
  { directory, disk, diskFiles }: RunPaths,
  isNeeded: boolean,
): Promise<PreparedWorkspace | undefined> {
  const text = await readFile(diskFiles, 'utf8').catch(() => undefined)
  if (!isNeeded && (text === undefined || !existsSync(disk))) {
    await rm(disk, { force: true })
    return undefined
  }
  const files = DiskFiles.safeParse(parseJson(text ?? ''))
  if (!files.success || !existsSync(disk))
    throw new CaissonError('state_corrupted', `${files.success ? disk : diskFiles} is damaged or missing`)
  const kept = requireValue(await readManifest(manifestFile(directory)))
  const imported = await readImported(directory)
  // The directory of another machine means nothing here.
  const manifest = imported === undefined ? kept : { ...kept, root: imported.workspace }
  await using undo = new AsyncDisposableStack()
  const fd = openSync(disk, 'r')
  undo.defer(() => closeSync(fd))
  const held = undo.move()
  return {
    manifest,
    readBefore: readFromDisk(fd, new Map(files.data)),
    disk,
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  }
}

/** Tells watchers and the application each step of what is built for the VM. */
export function tellBuild(
  what: 'image' | 'template',
  { onProgress }: Pick<PlannedRun, 'onProgress'>,
  record: Pick<RunRecord, 'delta'>,
): (text: string) => void {
  return (text) => {
    record.delta('root', { type: 'prepare', what, text: text.slice(0, limits.lineMaxChars) })
    onProgress?.(text)
  }
}

/** Tells watchers how much of the change set has arrived, at most once per second. */
export function tellChanges(record: RunRecord): (entries: number, contentBytes: number) => void {
  const tell = (text: string) => record.delta('root', { type: 'prepare', what: 'changes', text })
  let last = Date.now()
  tell('reading the changes')
  return (entries, contentBytes) => {
    if (Date.now() - last < 1_000) return
    last = Date.now()
    tell(`reading the changes: ${formatCount(entries, 'path')}, ${formatBytes(contentBytes)}`)
  }
}

type Preparation = Extract<HostDelta, { type: 'prepare' }>

function describePlace(place: number): string {
  return place === 1
    ? 'waiting for a VM of the pool: next in the queue'
    : `waiting for a VM of the pool: number ${place} in the queue`
}

/** Stores the manifest with a run; returns the event that says what went into the VM. */
export async function keepManifest(manifest: Manifest, runDirectory: string) {
  const { leftOut, bytes } = manifest
  const files = [...manifest.entries.values()].filter(({ kind }) => kind === 'file')
  return {
    type: 'workspace-ready',
    files: files.length,
    bytes,
    leftOut: leftOut.length,
    // Paths that may need a person's decision come before ordinarily ignored ones.
    examples: leftOut.toSorted((left, right) => Number(isHeld(right)) - Number(isHeld(left))).slice(0, 50),
    manifestSha256: await writeManifest(manifestFile(runDirectory), manifest),
  } as const
}

export interface HeldPaths {
  /** Ids of the runs that changed the rules. */
  readonly runs: readonly string[]
  /** A directory's path ends with `/` and includes everything below it. */
  readonly paths: readonly string[]
}

/** Paths of a directory that stay out because runs changed its ignore rules. @throws {CaissonError} */
export async function findHeld(folders: Folders, root: string): Promise<HeldPaths> {
  const ruleChanges = await new KeptRules(folders).of(root)
  if (ruleChanges.length === 0) return { runs: [], paths: [] }
  const { leftOut } = requireValue(
    await scanWorkspace({ directory: root, ruleChanges, ...ownPlaces(folders) }),
  )
  return {
    runs: ruleChanges.map(({ runId }) => runId),
    paths: leftOut.filter(isHeld).map(({ path }) => path),
  }
}

/** `copied`: it goes into a VM; `missing`: it is not there; else why it stays out. */
export type PathFate = 'copied' | 'missing' | LeftOut['reason']

/**
 * What becomes of these paths when the directory is copied for a run.
 * @param root real path @param contents as the run gets them
 * @throws {CaissonError}
 */
export async function inspectPaths(
  folders: Folders,
  root: string,
  only: readonly string[],
  contents: ReadonlyMap<string, Buffer>,
): Promise<Record<string, PathFate>> {
  const ruleChanges = await new KeptRules(folders).of(root)
  const scan = requireValue(
    await scanWorkspace({ directory: root, ruleChanges, only, contents, ...ownPlaces(folders) }),
  )
  const copied = new Set(scan.entries.map((entry) => entry.path))
  const reasons = new Map(scan.leftOut.map(({ path: name, reason }) => [name.replace(/\/$/, ''), reason]))
  return Object.fromEntries(
    only.map((file) => {
      const above = file.split('/').map((_, at, names) => names.slice(0, at + 1).join('/'))
      const reason = above.map((name) => reasons.get(name)).find((found) => found !== undefined)
      return [file, reason ?? (copied.has(file) ? 'copied' : 'missing')]
    }),
  )
}

function isHeld({ reason }: LeftOut): boolean {
  return reason === 'rules_changed'
}

/** @throws {CaissonError} */
export function requireValue<T>(result: WorkspaceResult<T>): T {
  if (result.ok) return result.value
  throw errorOf(result.error)
}

const codesOfWorkspace: Readonly<Record<WorkspaceErrorCode, ErrorCode>> = {
  refused_directory: 'workspace_refused',
  too_large: 'limit_reached',
  no_space: 'no_space',
  in_use: 'run_busy',
  damaged: 'state_corrupted',
  invalid_changes: 'protocol_violation',
  cut_short: 'protocol_violation',
  unreadable: 'permission_denied',
  cancelled: 'cancelled',
  internal: 'internal',
}

/** The coded error of a failure of the workspace. */
export function errorOf({ code, message }: WorkspaceError): CaissonError {
  return new CaissonError(codesOfWorkspace[code], message)
}
