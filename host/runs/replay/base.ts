/**
 * The workspace as a run got it: its kept disk, else a disk built from the directory where that has the same files. The
 * manifest decides what is the same; times of files do not count.
 */
import { copyFile, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { replaceFile } from '../../files/durable.ts'
import { readImported } from '../../journal/imported.ts'
import type { RunPaths } from '../../journal/run-store.ts'
import type { Folders } from '../../state/folders.ts'
import { linkOrCopy } from '../../vm/hibernation/sparse-file.ts'
import {
  buildDisk,
  checkDirectory,
  type Manifest,
  readManifest,
  scanWorkspace,
} from '../../workspace/index.ts'
import { scanFolders } from '../added-folders.ts'
import { KeptRules } from '../ignore-rule-changes.ts'
import { manifestFile, requireValue } from '../prepare.ts'
import type { ReplaySetup } from './setup.ts'

export interface BaseParts {
  readonly setup: Pick<ReplaySetup, 'include' | 'folders'>
  readonly workspaceReady: Extract<HostEvent, { type: 'workspace-ready' }>
  readonly folders: Folders
  readonly signal: AbortSignal
}

/** Where the parts of a workspace go. */
export type BasePlace = Pick<RunPaths, 'directory' | 'disk' | 'diskFiles'>

/**
 * Puts disk, positions of files and manifest of a run's workspace into another folder.
 * @throws {CaissonError} `not_possible_now` when the disk is not kept, and the run was imported or
 * the directory has other files
 */
export async function placeBase(from: RunPaths, to: BasePlace, parts: BaseParts): Promise<void> {
  const kept = manifestFile(from.directory)
  const manifest = requireValue(await readManifest(kept, parts.workspaceReady.manifestSha256))
  await copyFile(kept, manifestFile(to.directory))
  const base = await findKeptBase(from)
  if (base === undefined) {
    // An archive may name any directory of this machine, and which of its files to copy.
    if ((await readImported(from.directory)) !== undefined)
      throw new CaissonError(
        'not_possible_now',
        `the workspace of ${from.runId} is not kept: it was imported without it`,
        { remedy: 'export the run again where it was made, while its directory has the same files' },
      )
    await rebuild(from.runId, manifest, to, parts)
  } else {
    await linkOrCopy(base.disk, to.disk)
    await copyFile(base.diskFiles, to.diskFiles)
  }
}

/** The disk of the workspace that a run's folder keeps. Undefined: it keeps none. */
export async function findKeptBase(paths: BasePlace): Promise<Omit<BasePlace, 'directory'> | undefined> {
  const folders = [paths.directory, path.join(paths.directory, 'moments')]
  for (const folder of folders) {
    const [disk, diskFiles] = [paths.disk, paths.diskFiles].map((file) =>
      path.join(folder, path.basename(file)),
    ) as [string, string]
    if ((await isThere(disk)) && (await isThere(diskFiles))) return { disk, diskFiles }
  }
  return undefined
}

async function rebuild(runId: string, manifest: Manifest, to: BasePlace, parts: BaseParts): Promise<void> {
  const { setup, folders, signal } = parts
  const places = { ownFolders: [folders.home, folders.cache, folders.config] }
  const directory = checkDirectory(manifest.root, places)
  if (!directory.ok) throw noBase(runId, directory.error.message)
  const ruleChanges = await new KeptRules(folders).of(directory.value)
  const scan = requireValue(
    await scanWorkspace({
      directory: directory.value,
      include: setup.include,
      ruleChanges,
      signal,
      ...places,
    }),
  )
  const added = requireValue(await scanFolders(setup.folders, folders, signal))
  const built = requireValue(await buildDisk({ scan, folders: added, file: to.disk, signal }))
  const other = findOther(manifest, built.manifest)
  if (other !== undefined) {
    await rm(to.disk, { force: true })
    throw noBase(runId, `${manifest.root} has changed since: ${JSON.stringify(other)} is another`)
  }
  await replaceFile(to.diskFiles, JSON.stringify([...built.fileNids]))
}

/** The first path that differs. */
function findOther(manifest: Manifest, now: Manifest): string | undefined {
  for (const [name, entry] of manifest.entries) {
    const other = now.entries.get(name)
    if (other === undefined || contentOf(other) !== contentOf(entry)) return name
  }
  for (const name of now.entries.keys()) if (!manifest.entries.has(name)) return name
  return undefined
}

function contentOf(entry: Manifest['entries'] extends ReadonlyMap<string, infer E> ? E : never): string {
  const { kind, mode } = entry
  return JSON.stringify([kind, mode, kind === 'file' ? entry.sha256 : kind === 'link' ? entry.target : null])
}

function noBase(runId: string, why: string): CaissonError {
  return new CaissonError('not_possible_now', `the workspace of ${runId} is not kept, and ${why}`, {
    remedy: `bring the directory back to what it was (changes that were applied: caisson workspace undo ${runId})`,
  })
}

async function isThere(file: string): Promise<boolean> {
  return await stat(file).then(
    () => true,
    () => false,
  )
}
