/** A run that ended with changes, as its folder and its journal have it, without a VM. */
import { realpath } from 'node:fs/promises'
import path from 'node:path'
import { encodeChanges } from '#specs/node/change-encoder.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { manifestFile } from '../../runs/prepare.ts'
import { buildDisk, receiveChanges, scanWorkspace, writeManifest } from '../../workspace/index.ts'
import { changesBetween, type Sketch, treeOf, unwrap, writeTree } from '../workspace/support.ts'
import { beginRun } from './begun-run.ts'

export const changedRunId = 'run-0123456789abcdef4567'

/** Call it from within a test. @param before went in, @param after is the result */
export async function runThatChanged(before: Sketch, after: Sketch) {
  const home = await temporaryFolder('home')
  const directory = await realpath(await temporaryFolder('workspace'))
  writeTree(directory, treeOf(before))
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home }
  const host = new Host({ env })
  const begun = await beginRun(host, changedRunId, directory)
  await using record = begun.record
  const { paths } = begun
  const scan = unwrap(await scanWorkspace({ directory, ownFolders: [] }))
  const { manifest } = unwrap(await buildDisk({ scan, file: paths.disk, diskBytes: 64 * 1024 * 1024 }))
  const manifestSha256 = await writeManifest(manifestFile(paths.directory), manifest)
  const counts = { files: scan.files, bytes: scan.bytes, leftOut: 0, examples: [] }
  await record.host({ type: 'workspace-ready', ...counts, manifestSha256 })
  const source = encodeChanges(changesBetween(treeOf(before), treeOf(after)))
  const changes = unwrap(
    await receiveChanges({ source, manifest, runDirectory: paths.directory, spareBytes: 0 }),
  )
  const { sha256, contentBytes } = changes
  await record.host({ type: 'changes-ready', entries: 1, contentBytes, flagged: [], sha256 })
  const end = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
  await record.host({ type: 'run-end', ...end, usage: record.state.usage, durationMs: 1 })
  return { host, directory, env, state: record.state, head: record.head }
}
