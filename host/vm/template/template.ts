// A template: a VM that was booted until its agent was loaded, warmed up and idle, then saved, with its memory in a
// file that VMs of the same kind map privately. Makes one and derives a VM's start state from it. It never contains a
// run, workspace or secret; its clock is set to a day long ago (see reseed.ts).

import { readFile, stat, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { parseJson } from '../../files/json.ts'
import { WORKSPACE_DRIVE_BYTES } from '../drives.ts'
import { intoFile, saveState } from '../hibernation/saved-state.ts'
import { hashFile, makeSparseFile, syncFile } from '../hibernation/sparse-file.ts'
import { runBlockJob } from '../qemu/block-job.ts'
import { canMapReadOnly } from '../qemu/qemu-process.ts'
import type { Qmp } from '../qemu/qmp.ts'
import { shareMemory } from '../qemu/vm-user.ts'
import { TEMPLATE_EPOCH_MS } from '../reseed.ts'
import { type SavedMachine, startVm, type Vm } from '../vm.ts'
import type { StartVmOptions } from '../vm-command.ts'
import { resolveSize } from '../vm-options.ts'

const SAVE_DEADLINE_MS = 60_000
const RESEED_DEADLINE_MS = 20_000
const JOB_DEADLINE_MS = 20_000
const RECORD = 'template.json'
/** Its modification time is the template's last use. */
const USED = 'used'

/** Whether VMs map the memory from a separate file, or load it with the state. */
export type TemplateKind = 'mapped' | 'plain'

const recordSchema = z.strictObject({
  version: z.literal(1),
  kind: z.enum(['mapped', 'plain']),
  qemuVersion: z.string().max(100),
  createdAtMs: z.int(),
  /** How long it took to make, in milliseconds. */
  tookMs: z.int(),
  memoryBytes: z.int(),
  stateSha256: z.string(),
  /** Identity and times of files that must not change. */
  stamps: z.record(z.string(), z.string()),
})
export type TemplateRecord = z.infer<typeof recordSchema>

export interface Template {
  readonly directory: string
  readonly record: TemplateRecord
}

/** The template is truncated, changed, or incomplete. */
export class TemplateError extends Error {
  override readonly name = 'TemplateError'
}

interface TemplateOptions {
  readonly start: StartVmOptions
  readonly kind: TemplateKind
  /** An empty folder on the file system of the VMs' folders. */
  readonly directory: string
  /** Brings the agent to the state in which every VM starts; the clock is {@link TEMPLATE_EPOCH_MS} meanwhile. */
  readonly warmUp: (vm: Vm) => Promise<void>
}

/** Boots a VM, warms it up, and saves it into the folder. @throws the error of the start, the warm-up or the save */
export async function takeTemplate({ start, kind, directory, warmUp }: TemplateOptions): Promise<Template> {
  const startedAt = performance.now()
  const files = filesOf(directory)
  const size = resolveSize(start)
  await makeSparseFile(files.workspace, WORKSPACE_DRIVE_BYTES)
  await makeSparseFile(files.overlay, 0)
  if (kind === 'mapped') await makeSparseFile(files.memory, size.memoryBytes)
  const vm = await startVm(
    { ...start, workspaceDisk: files.workspace },
    {
      scratch: { kind: 'blank', bytes: size.diskBytes, file: files.scratch },
      overlayFile: files.overlay,
      ...(kind === 'mapped' ? { memory: { path: files.memory, share: true, readOnly: false } } : {}),
    },
  )
  const stop = () => void vm.stop()
  start.signal?.addEventListener('abort', stop, { once: true })
  try {
    start.signal?.throwIfAborted()
    await Promise.race([prepare(vm, size.diskBytes, warmUp), failAtEnd(vm)])
    await saveState(vm.qmp, {
      socketFolder: vm.plan.folder.sockets,
      insidePath: vm.process.socketPath,
      receive: intoFile(files.state),
      withoutMemory: kind === 'mapped',
      deadlineMs: SAVE_DEADLINE_MS,
    })
  } finally {
    start.signal?.removeEventListener('abort', stop)
    await vm.stop()
  }
  if (kind === 'mapped') await shareMemory(files.memory, canMapReadOnly(vm.qmp.version))
  return await sealTemplate(directory, {
    kind,
    qemuVersion: vm.qmp.version,
    tookMs: Math.round(performance.now() - startedAt),
    memoryBytes: size.memoryBytes,
  })
}

async function prepare(vm: Vm, diskBytes: number, warmUp: TemplateOptions['warmUp']): Promise<void> {
  await makeOverlay(vm.qmp, diskBytes)
  // A benchmark's guest has no service on that port.
  if (vm.plan.refreshes) await vm.root.refresh({ epochMs: TEMPLATE_EPOCH_MS, deadlineMs: RESEED_DEADLINE_MS })
  await warmUp(vm)
}

/** Prevents waiting for an answer of a VM that is gone. */
async function failAtEnd(vm: Vm): Promise<never> {
  const { reason, signal, code } = await vm.exited
  throw new TemplateError(
    `the VM of the template ended before it was saved (${reason}, ${signal ?? `code ${code}`})`,
  )
}

/** Writes the record of the folder's files, which must not change afterwards. */
export async function sealTemplate(
  directory: string,
  facts: Pick<TemplateRecord, 'kind' | 'qemuVersion' | 'tookMs' | 'memoryBytes'>,
): Promise<Template> {
  // Stamps do not detect data lost in a power failure, and no later write may change the times.
  await Promise.all(Object.values(filesToStamp(directory, facts.kind)).map(syncFile))
  const record: TemplateRecord = {
    version: 1,
    ...facts,
    createdAtMs: Date.now(),
    stateSha256: await hashFile(filesOf(directory).state),
    stamps: await stampFiles(directory, facts.kind),
  }
  await writeFile(join(directory, RECORD), `${JSON.stringify(record, null, 2)}\n`, {
    mode: 0o600,
    flush: true,
  })
  await writeFile(join(directory, USED), '', { mode: 0o600 })
  return { directory, record }
}

/** Whether both are the same files. */
export function isSameTemplate(one: Template, other: Template): boolean {
  return isDeepStrictEqual(one.record, other.record)
}

/** The template in the folder; undefined if there is none. @throws {TemplateError} when it was changed */
export async function openTemplate(directory: string): Promise<Template | undefined> {
  const text = await readFile(join(directory, RECORD), 'utf8').catch(() => undefined)
  if (text === undefined) return undefined
  const parsed = recordSchema.safeParse(parseJson(text))
  if (!parsed.success) throw new TemplateError(`${directory}: its record is of another version or damaged`)
  const record = parsed.data
  const files = filesOf(directory)
  const seen = await stampFiles(directory, record.kind).catch((cause: unknown) => {
    throw new TemplateError(`${directory}: a file is missing`, { cause })
  })
  for (const [name, stamp] of Object.entries(record.stamps)) {
    if (seen[name] !== stamp) throw new TemplateError(`${directory}: ${name} was changed since it was taken`)
  }
  if (record.kind === 'mapped' && (await stat(files.memory)).size !== record.memoryBytes) {
    throw new TemplateError(`${directory}: the memory is not ${record.memoryBytes} bytes long`)
  }
  // QEMU trusts this half megabyte. A state that contains memory is too long to read twice at each start.
  if (record.kind === 'mapped' && (await hashFile(files.state)) !== record.stateSha256) {
    throw new TemplateError(`${directory}: the saved state is not the one that was written`)
  }
  return { directory, record }
}

/** Start state of a VM from the template. */
export function startFrom({ directory, record }: Template): SavedMachine {
  const files = filesOf(directory)
  const readOnly = canMapReadOnly(record.qemuVersion)
  const memory = { path: files.memory, share: false, readOnly, isTemplate: true }
  return {
    state: {
      stateFile: files.state,
      scratch: { kind: 'overlay', base: files.scratch, empty: files.overlay },
      ...(record.kind === 'mapped' ? { memory } : {}),
    },
    withoutMemory: record.kind === 'mapped',
  }
}

/** Drive of a VM without a workspace yet: full size and empty. */
export function blankWorkspace({ directory }: Template): string {
  return filesOf(directory).workspace
}

/** Records that the template was used now, for the removal of old ones. */
export async function markUsed({ directory }: Pick<Template, 'directory'>): Promise<void> {
  const now = new Date()
  await utimes(join(directory, USED), now, now).catch(() => undefined)
}

/** Time of last use, in milliseconds since 1970; 0 if unknown. */
export async function lastUse(directory: string): Promise<number> {
  const { mtimeMs } = await stat(join(directory, USED)).catch(() => ({ mtimeMs: 0 }))
  return mtimeMs
}

function filesOf(directory: string) {
  return {
    memory: join(directory, 'memory'),
    state: join(directory, 'state'),
    scratch: join(directory, 'scratch.raw'),
    overlay: join(directory, 'overlay.qcow2'),
    workspace: join(directory, 'workspace.blank'),
  }
}

/** Lets QEMU create the empty qcow2 file that each VM copies. */
async function makeOverlay(qmp: Qmp, bytes: number): Promise<void> {
  const options = { driver: 'qcow2', file: 'overlay', size: bytes }
  await runBlockJob(qmp, 'blockdev-create', { 'job-id': 'overlay', options }, JOB_DEADLINE_MS)
  await qmp.execute('blockdev-del', { 'node-name': 'overlay' })
}

/**
 * Device, inode, size and times: a process that can only write to the file cannot reset ctime. The disk gets hard links
 * in the folders of VMs, which changes its ctime; no VM can write to it.
 */
async function stampFiles(directory: string, kind: TemplateKind): Promise<Record<string, string>> {
  const stamps = Object.entries(filesToStamp(directory, kind)).map(async ([name, file]) => {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true })
    const times = name === 'scratch' ? [mtimeNs] : [mtimeNs, ctimeNs]
    return [name, [dev, ino, size, ...times].join(':')] as const
  })
  return Object.fromEntries(await Promise.all(stamps))
}

function filesToStamp(directory: string, kind: TemplateKind): Readonly<Record<string, string>> {
  const { memory, ...others } = filesOf(directory)
  return kind === 'mapped' ? { memory, ...others } : others
}
