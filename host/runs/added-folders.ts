/**
 * Folders that a run gets besides its workspace, read-only: checks them, gives each a name in the VM, and scans them.
 * Refuses what cannot be a workspace, and what is given twice.
 */
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { quotePath } from '#specs/node/path-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Folders } from '../state/folders.ts'
import {
  type CopiedFolder,
  checkFolder,
  type Scan,
  scanWorkspace,
  type WorkspaceResult,
  workspaceMaxBytes,
  workspaceSuccess,
} from '../workspace/index.ts'
import { KeptRules } from './ignore-rule-changes.ts'

export interface AddedFolder {
  /** The folder on the host. */
  readonly path: string
  /**
   * Its name in the VM: up to 64 letters, digits, `.`, `_` and `-`; the first is no `.` or `-`. Default: the base name of
   * the path, with a number where another folder has it.
   */
  readonly name?: string
}

/** A folder of the run. */
export interface NamedFolder {
  /** Name below {@link guestFolders}; unique. */
  readonly name: string
  /** Real path on the host. */
  readonly root: string
}

/** Where the folders are in the VM. */
export const guestFolders = '/mnt/folders'
export const addedFoldersMax = 16

/** A name that an application gives. */
export const folderName = /^[\p{L}\p{N}_][\p{L}\p{N}._-]{0,63}$/u

/** @throws {CaissonError} `workspace_refused` or `invalid_options`, naming the folder */
export function nameFolders(
  given: readonly AddedFolder[],
  directory: string,
  { home, cache, config }: Folders,
): NamedFolder[] {
  const named: NamedFolder[] = []
  const taken = new Set(given.flatMap(({ name }) => (name === undefined ? [] : [name])))
  for (const folder of given) {
    const shown = quotePath(folder.path)
    const checked = checkFolder(folder.path, { ownFolders: [home, cache, config] })
    if (!checked.ok)
      throw new CaissonError(
        'workspace_refused',
        `the folder ${shown} cannot be added: ${checked.error.message}`,
      )
    const root = checked.value
    if (root === directory) throw unusable(`${shown} is the workspace itself; leave it out`)
    const same = named.find((other) => other.root === root)
    if (same !== undefined) throw unusable(`${shown} is already added as ${same.name}; leave one of them out`)
    if (folder.name !== undefined && named.some(({ name }) => name === folder.name))
      throw unusable(`two of them are named ${folder.name}; give each a name of its own`)
    const name = folder.name ?? freeName(path.basename(path.resolve(folder.path)), taken)
    taken.add(name)
    named.push({ name, root })
  }
  return named
}

function unusable(why: string): CaissonError {
  return new CaissonError('invalid_options', `the folders cannot be added: ${why}`)
}

/** The base name in characters that need no quoting anywhere, with a number where another folder has it. */
function freeName(base: string, taken: ReadonlySet<string>): string {
  const plain =
    base
      .toWellFormed()
      .normalize('NFC')
      .replaceAll(/[^\p{L}\p{N}._-]+/gu, '-')
      .replace(/^[.-]+/, '')
      .slice(0, 48)
      .toWellFormed()
      .replaceAll('\uFFFD', '') || 'folder'
  let name = plain
  for (let number = 2; taken.has(name); number++) name = `${plain}-${number}`
  return name
}

/** Scans the folders; together they keep the limits of one workspace. */
export async function scanFolders(
  named: readonly NamedFolder[],
  folders: Folders,
  signal: AbortSignal,
): Promise<WorkspaceResult<{ name: string; scan: Scan }[]>> {
  const scans: { name: string; scan: Scan }[] = []
  let entries = limits.workspaceMaxEntries
  let bytes = workspaceMaxBytes
  for (const { name, root } of named) {
    const scan = await scanWorkspace({
      directory: root,
      isFolder: true,
      isReal: true,
      ownFolders: [folders.home, folders.cache, folders.config],
      ruleChanges: await new KeptRules(folders).of(root),
      maxEntries: entries,
      maxBytes: bytes,
      signal,
    })
    if (!scan.ok) return scan
    entries -= scan.value.entries.length
    bytes -= scan.value.bytes
    scans.push({ name, scan: scan.value })
  }
  return workspaceSuccess(scans)
}

/** Folders as the journal records them. */
export function describeFolders(copied: readonly CopiedFolder[]) {
  return copied.map(({ name, root, files, bytes, leftOut }) => ({
    name,
    path: root,
    files,
    bytes,
    leftOut: leftOut.length,
    // Likely secrets come before ordinarily ignored paths.
    examples: leftOut
      .toSorted((a, b) => Number(a.reason === 'ignored') - Number(b.reason === 'ignored'))
      .slice(0, 10),
  }))
}

/** What the model reads of them; none without folders. */
export function foldersContext(named: readonly NamedFolder[]): Readonly<Record<string, string>> {
  if (named.length === 0) return {}
  const lines = named.map(({ name }) => `${guestFolders}/${name}/`)
  const intro =
    "Besides the workspace, these folders of the user are there. They are read-only: what must change is copied into the workspace first. read_file, list_files, search_files and programs take their absolute paths; the workspace's listing does not show them."
  return { folders: [intro, ...lines].join('\n') }
}
