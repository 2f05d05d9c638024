// Saves a VM with its memory and disk as of one moment, ends its process, and lets it go on later in another. What was
// saved is good for one wake: the disk moves on with the VM. A save that fails leaves the VM running as it was, and a
// wake that fails before the guest ran leaves what was saved as it was.
// The memory is saved as a file that a wake maps instead of reading it, as far as QEMU's form of a state is known here.

import { access, link, mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { renameDurably, syncDirectory } from '../../files/durable.ts'
import { parseJson } from '../../files/json.ts'
import { canMapReadOnly } from '../qemu/qemu-process.ts'
import { resumeVm, type Vm } from '../vm.ts'
import { prepareMachine, type StartVmOptions } from '../vm-command.ts'
import { VmError } from '../vm-error.ts'
import { resolveSize } from '../vm-options.ts'
import { MachineStreamError } from './machine-stream.ts'
import { intoFile, intoMemoryAndRest, resumeCpus, type StateReceiver, saveState } from './saved-state.ts'
import { claimSavedVm, giveBackOfDead, SAVED_RECORD } from './saved-vm-lock.ts'
import { type FileSample, hashFile, makeSparseFile, sampleFile, syncFile } from './sparse-file.ts'

const SAVE_DEADLINE_MS = 120_000
/** For a guest that runs on after a save that failed. */
const CLOCK_DEADLINE_MS = 20_000
/** A machine that is short of memory for a moment, or a QEMU that somebody killed, costs no work. */
const WAKE_TRIES = 3
const WAKE_PAUSE_MS = 500
const COPY_BYTES = 1024 * 1024

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
  /** Whether the disk lies over a base. */
  hasBase: z.boolean(),
  /** Files of the image; a wake with others is refused. */
  image: z.array(z.string()).max(8),
  /** Of the state, where the memory lies in a file of its own, to be mapped; absent: it is part of the state. */
  stateSha256: z.string().optional(),
  /** Of the files that are too long to be hashed at each wake; see `sampleFile`. */
  samples: z.strictObject({ scratch: Sample, memory: Sample.optional() }),
})
export type SavedVmRecord = z.infer<typeof recordSchema>

/** A VM on the disk. */
export interface SavedVm {
  readonly directory: string
  readonly record: SavedVmRecord
}

/**
 * Saves the VM into `directory`, which must not exist and lies on the file system of the VM's folder, and ends it.
 * Its ports end with it. With `signal` the VM is ended at once and nothing is saved.
 * @throws {CaissonError} `vm_failed` when it could not be saved; the VM then runs on as if nothing had been, or has ended
 */
export async function hibernateVm(vm: Vm, directory: string, signal?: AbortSignal): Promise<SavedVm> {
  const draft = `${directory}.draft`
  const files = filesOf(draft)
  const { scratch } = vm.plan
  let movedScratch = false
  let saved: SavedVm
  const stop = () => void vm.stop()
  signal?.addEventListener('abort', stop, { once: true })
  if (signal?.aborted) stop()
  try {
    await rm(draft, { recursive: true, force: true })
    await mkdir(draft, { mode: 0o700 })
    const machine = await saveMachine(vm, files)
    if (scratch.base !== undefined) await keepBase(scratch.base, files.base)
    await syncFile(scratch.file)
    const samples = {
      scratch: await sampleFile(scratch.file),
      ...(machine.stateSha256 === undefined ? {} : { memory: await sampleFile(files.memory) }),
    }
    const record = { ...machine, samples }
    await writeFile(join(draft, SAVED_RECORD), `${JSON.stringify(record, null, 2)}\n`, {
      mode: 0o600,
      flush: true,
    })
    await rename(scratch.file, files.scratch)
    movedScratch = true
    await syncDirectory(draft)
    await renameDurably(draft, directory)
    saved = { directory, record }
  } catch (cause) {
    // Whatever else fails: the guest is to run. QEMU has its disk open, by whatever name.
    if (movedScratch) await rename(files.scratch, scratch.file).catch(() => undefined)
    await rm(draft, { recursive: true, force: true }).catch(() => undefined)
    const goesOn = await runOn(vm)
    const why = errorMessage(cause)
    throw new CaissonError(
      'vm_failed',
      `the VM could not be saved and ${goesOn ? 'goes on' : 'has ended'}: ${why}`,
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

/** The state into its files, the memory as one to be mapped where that can be. */
async function saveMachine(vm: Vm, files: SavedFiles): Promise<Omit<SavedVmRecord, 'samples'>> {
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
    // Another QEMU than those whose form is known.
    await rm(memory, { force: true })
    await save(intoFile(state))
    return recordOf(vm)
  }
}

/** What was saved there; undefined when nothing was, or not to the end, or when it is waking or has run again. */
export async function findSavedVm(directory: string): Promise<SavedVm | undefined> {
  await giveBackOfDead(directory)
  const text = await readFile(join(directory, SAVED_RECORD), 'utf8').catch(() => undefined)
  if (text === undefined) return undefined
  const parsed = recordSchema.safeParse(parseJson(text))
  return parsed.success ? { directory, record: parsed.data } : undefined
}

/**
 * Lets the VM go on, with fresh random bytes and the time (see {@link Vm.fresh}). `options` name the same image and the
 * workspace's drive; sizes and accelerator are those of the saved VM. Once it runs the directory is to be removed.
 * @throws {CaissonError} `vm_failed` when it cannot wake here; VmError when it fails to. As long as {@link findSavedVm} still
 * finds it there, its guest has not run and it can wake later
 */
export async function wakeVm(options: StartVmOptions, saved: SavedVm): Promise<Vm> {
  if (JSON.stringify(imageFiles(options)) !== JSON.stringify(saved.record.image)) {
    throw new CaissonError('vm_failed', 'the VM was saved with another image: it can wake with that one only')
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

/** Whether its memory lies in a file of its own. */
export function isMemoryMapped(record: SavedVmRecord): boolean {
  return record.stateSha256 !== undefined
}

/** Of a state that holds the memory QEMU itself notices that it is cut short. */
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
    const scratch = { kind: 'moved', file: await lend(files.scratch), format: scratchFormat } as const
    return await resumeVm(
      { ...options, memoryBytes, cpus, diskBytes, accelerator },
      {
        state: {
          stateFile: files.state,
          scratch: hasBase ? { ...scratch, base: await lend(files.base) } : scratch,
          ...(isMapped ? { memory } : {}),
        },
        // What is mapped is not in the state; QEMU is to load whatever is.
        withoutMemory: false,
        beforeRun: () => claim.consumeSavedVm(),
      },
    )
  } catch (error) {
    const isWhole = (await isThere(files.scratch)) && (!hasBase || (await isThere(files.base)))
    // Where this fails the record is still taken, by nobody: whoever looks next gives it back.
    await (isWhole ? claim.giveBack() : claim.consumeSavedVm()).catch(() => undefined)
    throw error
  }
}

/** Another name to be moved away, where the file system has such; the file itself stays. */
async function lend(file: string): Promise<string> {
  const name = `${file}.lent`
  await rm(name, { force: true })
  return await link(file, name).then(
    () => name,
    () => file,
  )
}

/** What was waited for in vain is not waited for again. */
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

function recordOf(vm: Vm): Omit<SavedVmRecord, 'samples'> {
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

/** Another name for the same bytes, so that the template may go; a copy where that cannot be. */
async function keepBase(base: string, target: string): Promise<void> {
  await link(base, target).catch(() => copySparse(base, target))
}

/** What is zero in the source takes no space in the copy. */
async function copySparse(source: string, target: string): Promise<void> {
  await using from = await open(source, 'r')
  await using to = await open(target, 'wx', 0o600)
  const { size } = await from.stat()
  await to.truncate(size)
  const piece = Buffer.alloc(COPY_BYTES)
  const zeros = Buffer.alloc(COPY_BYTES)
  for (let at = 0; at < size; at += COPY_BYTES) {
    const { bytesRead } = await from.read(piece, 0, COPY_BYTES, at)
    const read = piece.subarray(0, bytesRead)
    if (!read.equals(zeros.subarray(0, bytesRead))) await to.write(read, 0, bytesRead, at)
  }
}

/** After a save that failed; QEMU may still be finishing with it. False when the VM has ended, or had to be. */
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
    // Its clock stood still meanwhile; a guest that does not take the time has a late one.
    if (vm.plan.refreshes)
      vm.root.reseed({ entropy: false, deadlineMs: CLOCK_DEADLINE_MS }).catch(() => undefined)
    return true
  }
  // One that stands still for ever would be waited for in vain.
  await vm.stop()
  return false
}

async function isThere(file: string): Promise<boolean> {
  return await access(file).then(
    () => true,
    () => false,
  )
}
