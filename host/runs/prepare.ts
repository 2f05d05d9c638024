/** The workspace before the VM starts: locked, scanned, written to a disk, its manifest kept with the run. */
import { rm } from 'node:fs/promises'
import path from 'node:path'
import type { PooledVm } from '../vm/vm-pool.ts'
import {
  buildDisk,
  checkDirectory,
  lockDirectory,
  type Manifest,
  scanWorkspace,
  type WorkspaceError,
  type WorkspaceResult,
  writeManifest,
} from '../workspace/index.ts'
import { RunFailure } from './ending.ts'
import type { RunRecord } from './record.ts'
import type { RunPlan } from './run-plan.ts'

/** Where a run's directory keeps its manifest. */
export const manifestFile = (runDirectory: string) => path.join(runDirectory, 'manifest.jsonl')

export interface PreparedWorkspace extends AsyncDisposable {
  readonly manifest: Manifest
  /** The erofs file for the drive `workspace`; removed with this object. */
  readonly disk: string
  /** A VM that waited for this run and has the disk already; ended with this object. Absent: one is to be started. */
  readonly vm?: PooledVm
}

/** @throws {RunFailure} `environment` when the directory cannot be used, in use, or does not fit */
export async function prepareWorkspace(
  plan: RunPlan,
  record: RunRecord,
  signal: AbortSignal,
): Promise<PreparedWorkspace> {
  const { folders, directory, include, runId } = plan
  await using undo = new AsyncDisposableStack()
  const places = { ownFolders: [folders.home, folders.cache, folders.config] }
  const root = requireValue(checkDirectory(directory, places))
  undo.use(requireValue(lockDirectory({ locks: folders.locks, root, runId })))
  const scan = requireValue(await scanWorkspace({ directory: root, include, signal, ...places }))
  const { disk } = record.paths
  undo.defer(() => rm(disk, { force: true }))
  const vm = await plan.pool?.take({ workspaceDisk: disk, signal })
  if (vm !== undefined) undo.defer(async () => void (await vm.stop()))
  const isInPlace = vm !== undefined
  const { manifest } = requireValue(await buildDisk({ scan, file: disk, isInPlace, signal }))
  const manifestSha256 = await writeManifest(manifestFile(record.paths.directory), manifest)
  const { leftOut } = manifest
  const files = [...manifest.entries.values()].filter(({ kind }) => kind === 'file').length
  const bytes = scan.bytes
  const examples = leftOut.slice(0, 50)
  await record.host({
    type: 'workspace-ready',
    files,
    bytes,
    leftOut: leftOut.length,
    examples,
    manifestSha256,
  })
  const held = undo.move()
  return {
    manifest,
    disk,
    ...(vm === undefined ? {} : { vm }),
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  }
}

/** @throws {RunFailure} */
export function requireValue<T>(result: WorkspaceResult<T>): T {
  if (result.ok) return result.value
  throw failureFrom(result.error)
}

function failureFrom({ code, message }: WorkspaceError): RunFailure {
  if (code === 'cancelled') return new RunFailure('cancelled', message)
  if (code === 'invalid_changes' || code === 'cut_short') return new RunFailure('protocol_violation', message)
  return new RunFailure(code === 'internal' ? 'internal' : 'environment', message)
}
