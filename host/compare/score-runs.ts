/**
 * Runs a command over the result of a run: what went into its VM with its changes, in a folder that is removed
 * afterwards. The command itself runs in a VM of its own; nothing of the run is executed on the host.
 */
import { closeSync, openSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { comparePaths } from '#specs/node/path-text.ts'
import { parseJson } from '../files/json.ts'
import { momentPaths } from '../journal/kept-moments.ts'
import { openContents, readFromDisk, readWhole, type StoredChange } from '../workspace/index.ts'
import type { RunOutcomeFiles } from './results.ts'

type Entry =
  | { readonly kind: 'file'; readonly mode: number; readonly read: () => Buffer }
  | { readonly kind: 'directory'; readonly mode: number }
  | { readonly kind: 'link'; readonly target: string }

const DiskFiles = z.array(z.tuple([z.string(), z.int().min(0)]))

/**
 * Writes the result of a run into a new folder and removes it with the returned object.
 * @throws {CaissonError} `not_possible_now` when the run does not keep the files that it began with
 */
export async function writeResult(
  result: RunOutcomeFiles,
): Promise<AsyncDisposable & { readonly directory: string }> {
  const { disk, diskFiles } = momentPaths(result.paths, result.state.end !== null)
  const files = DiskFiles.safeParse(parseJson(await readFile(diskFiles, 'utf8').catch(() => '')))
  if (!files.success)
    throw new CaissonError('not_possible_now', `${result.runId} does not keep the files that it began with`, {
      remedy: 'the newest ended runs keep them for a week, see kept.moments of the configuration',
    })
  await using opened = new AsyncDisposableStack()
  const before = openSync(disk, 'r')
  opened.defer(() => closeSync(before))
  const contents = openContents(result.changes.paths.contents)
  opened.defer(() => closeSync(contents))
  const tree = treeOf(result, readFromDisk(before, new Map(files.data)), contents)
  const directory = await mkdtemp(path.join(tmpdir(), 'caisson-result-'))
  const remove = async (): Promise<void> => await rm(directory, { recursive: true, force: true })
  try {
    await writeTree(directory, tree)
  } catch (error) {
    await remove()
    throw error
  }
  return { directory, [Symbol.asyncDispose]: remove }
}

function treeOf(
  { manifest, changes }: RunOutcomeFiles,
  readBefore: ReturnType<typeof readFromDisk>,
  contents: number,
): Map<string, Entry> {
  const tree = new Map<string, Entry>()
  for (const entry of manifest.entries.values()) {
    const { path: name } = entry
    if (entry.kind === 'link') tree.set(name, { kind: 'link', target: entry.target })
    else if (entry.kind === 'directory') tree.set(name, { kind: 'directory', mode: entry.mode & 0o777 })
    else {
      const read = () => readBefore(name, entry.sha256) ?? Buffer.alloc(0)
      tree.set(name, { kind: 'file', mode: entry.mode & 0o777, read })
    }
  }
  for (const change of changes.entries.values()) applyChange(tree, change, contents)
  return tree
}

function applyChange(tree: Map<string, Entry>, change: StoredChange, contents: number): void {
  const { path: name } = change
  const was = tree.get(name)
  if (change.kind === 'unsupported') return
  if (change.kind === 'mode') {
    if (was !== undefined && was.kind !== 'link') tree.set(name, { ...was, mode: change.mode })
    return
  }
  // What was below a directory that is none any more went with it; its own changes follow.
  if (was?.kind === 'directory' && change.kind !== 'directory')
    for (const below of [...tree.keys()]) if (below.startsWith(`${name}/`)) tree.delete(below)
  if (change.kind === 'deleted') tree.delete(name)
  else if (change.kind === 'link') tree.set(name, { kind: 'link', target: change.target })
  else if (change.kind === 'directory') tree.set(name, { kind: 'directory', mode: change.mode })
  else
    tree.set(name, {
      kind: 'file',
      mode: change.mode,
      read: () => readWhole(contents, change.offset, change.size),
    })
}

/** Links last: while files are written there is none that could lead elsewhere. */
async function writeTree(directory: string, tree: ReadonlyMap<string, Entry>): Promise<void> {
  const entries = [...tree].toSorted(([a], [b]) => comparePaths(a, b))
  for (const [name, entry] of entries) {
    const place = path.join(directory, name)
    if (entry.kind === 'directory') await mkdir(place, { recursive: true, mode: 0o700 })
    if (entry.kind !== 'file') continue
    await mkdir(path.dirname(place), { recursive: true, mode: 0o700 })
    await writeFile(place, entry.read(), { mode: entry.mode | 0o600, flag: 'wx' })
  }
  for (const [name, entry] of entries) {
    if (entry.kind !== 'link') continue
    const place = path.join(directory, name)
    await mkdir(path.dirname(place), { recursive: true, mode: 0o700 })
    await symlink(entry.target, place)
  }
}
