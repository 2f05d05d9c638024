/** Runs that ended with changes, as their folders and journals have them, without a VM. */
import { closeSync, openSync } from 'node:fs'
import { realpath, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { encodeChanges } from '#specs/node/change-encoder.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import type { RunRecord } from '../../journal/run-record.ts'
import { keepChanges } from '../../runs/guest/change-stream.ts'
import { manifestFile } from '../../runs/prepare.ts'
import {
  buildDisk,
  readFromDisk,
  receiveChanges,
  scanWorkspace,
  writeManifest,
} from '../../workspace/index.ts'
import { changesBetween, type Sketch, type Tree, treeOf, unwrap, writeTree } from '../workspace/support.ts'
import { beginRun } from './begun-run.ts'

export const changedRunId = 'run-0123456789abcdef4567'

type Metadata = Readonly<Record<string, string>>

/** A directory with a host of its own. Call it from within a test. */
export async function placeOfRuns(before: Sketch) {
  const home = await temporaryFolder('home')
  const directory = await realpath(await temporaryFolder('workspace'))
  writeTree(directory, treeOf(before))
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home }
  return { host: new Host({ env }), directory, env }
}

/** A run that has copied the directory as it is now. The caller disposes of its record. */
export async function runThatCopied(
  host: Host,
  directory: string,
  runId: string,
  metadata?: Metadata,
  contents: ReadonlyMap<string, Buffer> = new Map(),
) {
  const { paths, record } = await beginRun(host, runId, directory, metadata)
  const scan = unwrap(await scanWorkspace({ directory, contents, ownFolders: [] }))
  const { disk } = paths
  const { manifest, fileNids } = unwrap(await buildDisk({ scan, file: disk, diskBytes: 64 * 1024 * 1024 }))
  const manifestSha256 = await writeManifest(manifestFile(paths.directory), manifest)
  const counts = { files: scan.files, bytes: scan.bytes, leftOut: 0, examples: [] }
  await record.host({ type: 'workspace-ready', ...counts, manifestSha256 })
  await writeFile(paths.diskFiles, JSON.stringify([...fileNids]), { mode: 0o600 })
  return { paths, record, manifest, fileNids }
}

/**
 * A run that copies the directory as it is now.
 * @returns a function that ends the run; `before` is what went in, `after` is the result, `work` journals what was done
 */
export async function beginChanging(
  host: Host,
  directory: string,
  runId: string,
  metadata?: Metadata,
  contents: ReadonlyMap<string, Buffer> = new Map(),
) {
  const copied = await runThatCopied(host, directory, runId, metadata, contents)
  const { paths, record, manifest, fileNids } = copied
  const { disk } = paths
  return async (before: Tree, after: Tree, work: (record: RunRecord) => Promise<void> = async () => {}) => {
    await using _ = record
    await work(record)
    const source = encodeChanges(changesBetween(before, after))
    const changes = unwrap(
      await receiveChanges({ source, manifest, runDirectory: paths.directory, spareBytes: 0 }),
    )
    const fd = openSync(disk, 'r')
    const readBefore = readFromDisk(fd, fileNids)
    await record.host(await keepChanges(changes, { readBefore, manifest, runDirectory: paths.directory }))
    closeSync(fd)
    const end = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
    await record.host({ type: 'run-end', ...end, usage: record.state.usage, durationMs: 1 })
    return { state: record.state, head: record.head }
  }
}

/** Call it from within a test. @param before went in, @param after is the result */
export async function runThatChanged(before: Sketch, after: Sketch) {
  const place = await placeOfRuns(before)
  const end = await beginChanging(place.host, place.directory, changedRunId)
  return { ...place, ...(await end(treeOf(before), treeOf(after))) }
}
