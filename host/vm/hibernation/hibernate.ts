// Saves a VM's memory and disk at one moment, ends its process, and restores it later in another. A saved VM can be
// restored once, since its disk changes afterwards. A failed save leaves the VM running; a restore that fails before
// the guest ran keeps the saved state. The memory becomes a file that is mapped on restore, if QEMU's format is known.

import { access, link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { renameDurably, syncDirectory } from '../../files/durable.ts'
import { parseJson } from '../../files/json.ts'
import { SealedLayers } from '../checkpoints/checkpoint-disk.ts'
import { canMapReadOnly } from '../qemu/qemu-process.ts'
import { resumeVm, type Vm } from '../vm.ts'
import { prepareMachine, type StartVmOptions } from '../vm-command.ts'
import { VmError } from '../vm-error.ts'
import { resolveSize } from '../vm-options.ts'
import { MachineStreamError } from './machine-stream.ts'
import { intoFile, intoMemoryAndRest, resumeCpus, type StateReceiver, saveState } from './saved-state.ts'
import { claimSavedVm, giveBackOfDead, SAVED_RECORD } from './saved-vm-lock.ts'
import { type FileSample, hashFile, linkOrCopy, makeSparseFile, sampleFile, syncFile } from './sparse-file.ts'

const SAVE_DEADLINE_MS = 120_000
/** For a guest that continues after a failed save. */
const CLOCK_DEADLINE_MS = 20_000
/** Retries cover a temporary memory shortage or a killed QEMU. */
const WAKE_TRIES = 3
const WAKE_PAUSE_MS = 500

const Sample = z.strictObject({ bytes: z.int(), sha256: z.string() })

const recordSchema = z.strictObject({
  version: z.literal(3),
  savedAtMs: z.int(),
  qemuVersion: z.string().max(100),
  accelerator: z.enum(['kvm', 'hvf', 'tcg']),
  memoryBytes: z.int(),
  cpus: z.int(),
  diskBytes: z.int(),
  scratchFormat: z.enum(['raw', 'qcow2']),
  /** Whether the disk is an overlay on a base. */
  hasBase: z.boolean(),
  /** Files of the image; a restore with other files is refused. */
  image: z.array(z.string()).max(8),
  /** Layers between base and disk, with the checkpoint that each completes. Absent: none. */
  sealed: SealedLayers.optional(),
  /** Digest of the state if the memory is in a separate, mapped file. Absent: the state contains the memory. */
  stateSha256: z.string().optional(),
  /** Samples of files that are too long to hash on each restore; see `sampleFile`. */
  samples: z.strictObject({ scratch: Sample, memory: Sample.optional() }),
})
type SavedVmRecord = z.infer<typeof recordSchema>

/** A saved VM on disk. */
export interface SavedVm {
  readonly directory: string
  readonly record: SavedVmRecord
}

/**
 * Saves the VM into `directory`, which must not exist and must be on the file system of the VM's folder. Ends the VM
 * and its ports. If `signal` aborts, ends the VM without saving.
 * @throws {CaissonError} `vm_failed` when the save failed; the VM then continues as before, or has ended
 */
export async function hibernateVm(vm: Vm, directory: string, signal?: AbortSignal): Promise<SavedVm> {
  const draft = `${directory}.draft`
  const files = filesOf(draft)
  const { base } = vm.plan.scratch
  const scratch = vm.checkpoints?.top ?? vm.plan.scratch.file
  const sealed = vm.checkpoints?.sealed ?? []
  let movedScratch = false
  let saved: SavedVm
  const stop = () => void vm.stop()
  signal?.addEventListener('abort', stop, { once: true })
  if (signal?.aborted) stop()
  try {
    await rm(draft, { recursive: true, force: true })
    await mkdir(draft, { mode: 0o700 })
    const machine = await saveMachine(vm, files)
    if (base !== undefined) await linkOrCopy(base, files.base)
    for (const { file } of sealed) await linkOrCopy(join(dirname(scratch), file), join(draft, file))
    await syncFile(scratch)
    const samples = {
      scratch: await sampleFile(scratch),
      ...(machine.stateSha256 === undefined ? {} : { memory: await sampleFile(files.memory) }),
    }
    const record = { ...machine, ...(sealed.length === 0 ? {} : { sealed: [...sealed] }), samples }
    await writeFile(join(draft, SAVED_RECORD), `${JSON.stringify(record, null, 2)}\n`, {
      mode: 0o600,
      flush: true,
    })
    await rename(scratch, files.scratch)
    movedScratch = true
    await syncDirectory(draft)
    await renameDurably(draft, directory)
    saved = { directory, record }
  } catch (cause) {
    // The guest must continue in any case; QEMU holds its disk open under any name.
    if (movedScratch) await rename(files.scratch, scratch).catch(() => undefined)
    await rm(draft, { recursive: true, force: true }).catch(() => undefined)
    const continues = await runOn(vm)
    const why = errorMessage(cause)
    throw new CaissonError(
      'vm_failed',
      `the VM could not be saved and ${continues ? 'continues' : 'has ended'}: ${why}`,
      {
        cause,
      },
    )
  } finally {
    signal?.removeEventListener('abort', stop)
  }
  await vm.stop()
  return saved
}

/** Writes the state to its files, the memory to a mappable one if possible. */
async function saveMachine(vm: Vm, files: SavedFiles): Promise<Omit<SavedVmRecord, 'samples' | 'sealed'>> {
  const save = async (receive: StateReceiver) =>
    await saveState(vm.qmp, {
      socketFolder: vm.plan.folder.sockets,
      insidePath: vm.process.socketPath,
      receive,
      withoutMemory: false,
      deadlineMs: SAVE_DEADLINE_MS,
    })
  const { memory, state } = files
  const { memoryBytes } = vm
  try {
    await makeSparseFile(state, 0)
    await makeSparseFile(memory, memoryBytes)
    await save(intoMemoryAndRest({ memory, memoryBytes, rest: state }))
    return { ...recordOf(vm), stateSha256: await hashFile(state) }
  } catch (error) {
    if (!(error instanceof Error && error.cause instanceof MachineStreamError)) throw error
    // A QEMU with an unknown format.
    await rm(memory, { force: true })
    await save(intoFile(state))
    return recordOf(vm)
  }
}

/** The saved VM in the directory; undefined if there is none, it is incomplete, or it is being or was restored. */
export async function findSavedVm(directory: string): Promise<SavedVm | undefined> {
  await giveBackOfDead(directory)
  const text = await readFile(join(directory, SAVED_RECORD), 'utf8').catch(() => undefined)
  if (text === undefined) return undefined
  const parsed = recordSchema.safeParse(parseJson(text))
  return parsed.success ? { directory, record: parsed.data } : undefined
}

/**
 * Restores the VM with fresh random bytes and the current time (see {@link Vm.fresh}). `options` names the same image
 * and the workspace's drive; sizes and accelerator come from the saved VM. Once it runs, the caller must remove the
 * directory.
 * @throws {CaissonError} `vm_failed` when it cannot be restored on this machine; VmError when the restore fails. As
 * long as {@link findSavedVm} finds it, its guest has not run and the restore can be repeated
 */
export async function wakeVm(options: StartVmOptions, saved: SavedVm): Promise<Vm> {
  if (JSON.stringify(imageFiles(options)) !== JSON.stringify(saved.record.image)) {
    throw new CaissonError('vm_failed', 'the VM was saved with another image and only wakes with that one')
  }
  const { qemuVersion } = await prepareMachine(options, false)
  if (qemuVersion !== saved.record.qemuVersion) {
    throw new CaissonError(
      'vm_failed',
      `the VM was saved by QEMU ${saved.record.qemuVersion} and cannot wake with QEMU ${qemuVersion}`,
    )
  }
  await checkFiles(saved)
  for (let tries = 1; ; tries += 1) {
    try {
      return await wakeOnce(options, saved)
    } catch (error) {
      const isFinal = tries === WAKE_TRIES || options.signal?.aborted === true || isLate(error)
      if (isFinal || (await findSavedVm(saved.directory)) === undefined) throw error
      await sleep(WAKE_PAUSE_MS)
    }
  }
}

/** Whether the memory is in a separate file. */
export function isMemoryMapped(record: SavedVmRecord): boolean {
  return record.stateSha256 !== undefined
}

/** QEMU itself detects a truncated state that contains the memory. */
async function checkFiles({ directory, record }: SavedVm): Promise<void> {
  const { memory, state, scratch } = filesOf(directory)
  await checkSample(scratch, record.samples.scratch)
  if (record.samples.memory !== undefined) await checkSample(memory, record.samples.memory)
  if (record.stateSha256 === undefined) return
  if ((await hashFile(state).catch(() => undefined)) !== record.stateSha256) {
    throw new CaissonError('vm_failed', `${state}: the saved state is not the one that was written`)
  }
}

async function checkSample(file: string, saved: FileSample): Promise<void> {
  const found = await sampleFile(file).catch(() => ({ bytes: 0, sha256: '' }))
  if (found.bytes !== saved.bytes)
    throw new CaissonError('vm_failed', `${file}: ${saved.bytes} bytes were saved, ${found.bytes} are there`)
  if (found.sha256 !== saved.sha256)
    throw new CaissonError('vm_failed', `${file} is not the file that was saved: it was changed or damaged`)
}

async function wakeOnce(options: StartVmOptions, { directory, record }: SavedVm): Promise<Vm> {
  const files = filesOf(directory)
  const { memoryBytes, cpus, diskBytes, accelerator, scratchFormat, hasBase } = record
  const isMapped = isMemoryMapped(record)
  const memory = { path: files.memory, share: false, readOnly: canMapReadOnly(record.qemuVersion) }
  const claim = await claimSavedVm(directory)
  try {
    const layers = record.sealed === undefined ? {} : { layers: { sealed: record.sealed, directory } }
    const scratch = {
      kind: 'moved',
      file: await lend(files.scratch),
      format: scratchFormat,
      ...layers,
    } as const
    return await resumeVm(
      { ...options, memoryBytes, cpus, diskBytes, accelerator },
      {
        state: {
          stateFile: files.state,
          scratch: hasBase ? { ...scratch, base: await lend(files.base) } : scratch,
          ...(isMapped ? { memory } : {}),
        },
        // Mapped memory is not in the state; QEMU must load everything else.
        withoutMemory: false,
        beforeRun: () => claim.consumeSavedVm(),
      },
    )
  } catch (error) {
    const isWhole = (await isThere(files.scratch)) && (!hasBase || (await isThere(files.base)))
    // If this fails, the record stays claimed without an owner; the next process releases it.
    await (isWhole ? claim.giveBack() : claim.consumeSavedVm()).catch(() => undefined)
    throw error
  }
}

/** Adds a hard link that can be moved away, if the file system supports it; the file itself stays. */
async function lend(file: string): Promise<string> {
  const name = `${file}.lent`
  await rm(name, { force: true })
  return await link(file, name).then(
    () => name,
    () => file,
  )
}

/** Do not repeat an attempt that timed out. */
function isLate(error: unknown): boolean {
  return error instanceof VmError && ['deadline_exceeded', 'cancelled'].includes(error.kind)
}

type SavedFiles = ReturnType<typeof filesOf>

function filesOf(directory: string) {
  return {
    state: join(directory, 'state'),
    memory: join(directory, 'memory'),
    scratch: join(directory, 'scratch'),
    base: join(directory, 'base.raw'),
  }
}

function recordOf(vm: Vm): Omit<SavedVmRecord, 'samples' | 'sealed'> {
  const { plan, accelerator, memoryBytes, cpus, qmp } = vm
  return {
    version: 3,
    savedAtMs: Date.now(),
    qemuVersion: qmp.version,
    accelerator,
    memoryBytes,
    cpus,
    diskBytes: resolveSize(plan.options).diskBytes,
    scratchFormat: plan.scratch.format,
    hasBase: plan.scratch.base !== undefined,
    image: imageFiles(plan.options),
  }
}

function imageFiles({ image }: StartVmOptions): string[] {
  return 'disk' in image ? [image.disk] : [image.kernel, image.initramfs, image.root, image.agentDisk]
}

/** After a failed save; QEMU may still be finishing it. False when the VM has ended, or had to be ended. */
async function runOn(vm: Vm): Promise<boolean> {
  let hasEnded = false
  void vm.exited.then(() => {
    hasEnded = true
  })
  for (const deadline = performance.now() + 5_000; performance.now() < deadline; await sleep(10)) {
    if (hasEnded) return false
    try {
      await resumeCpus(vm.qmp)
    } catch {
      continue
    }
    // Its clock stopped meanwhile; a guest that does not accept the time stays behind.
    if (vm.plan.refreshes)
      vm.root.reseed({ entropy: false, deadlineMs: CLOCK_DEADLINE_MS }).catch(() => undefined)
    return true
  }
  // A VM that cannot resume would never end.
  await vm.stop()
  return false
}

async function isThere(file: string): Promise<boolean> {
  return await access(file).then(
    () => true,
    () => false,
  )
}
