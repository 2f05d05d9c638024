// Saves a VM with its memory and disk as of one moment, ends its process, and lets it go on later in another. What was
// saved is good for one wake: the disk moves on with the VM. A save that fails leaves the VM running as it was, and a
// wake that fails before the guest ran leaves what was saved as it was.
// In the background the state can be laid out so that a wake maps it instead of reading it (`prepareWake`).

import { access, link, mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { parseJson } from '../state/json.ts'
import { canMapReadOnly } from './qemu-process.ts'
import { continueVm, saveState } from './saved-state.ts'
import { makeSparseFile, syncFile } from './sparse-file.ts'
import { resumeVm, type Vm } from './vm.ts'
import { VmError } from './vm-error.ts'
import { resolveSize } from './vm-options.ts'
import { prepareMachine, type StartVmOptions } from './vm-plan.ts'

const SAVE_DEADLINE_MS = 120_000
/** For a guest that runs on after a save that failed. */
const CLOCK_DEADLINE_MS = 20_000
/** A machine that is short of memory for a moment, or a QEMU that somebody killed, costs no work. */
const WAKE_TRIES = 3
const WAKE_PAUSE_MS = 500
const RECORD = 'saved.json'
/** The record while a wake is under way, or since the guest has run again: nobody finds it then. */
const TAKEN = 'taken.json'
const COPY_BYTES = 1024 * 1024

const recordSchema = z.strictObject({
  version: z.literal(1),
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
  /** Whether the memory lies in a file that can be mapped. */
  prepared: z.boolean(),
})
export type SavedVmRecord = z.infer<typeof recordSchema>

/** A VM on the disk. */
export interface SavedVm {
  readonly directory: string
  readonly record: SavedVmRecord
}

/** A VM cannot be saved, or what was saved cannot wake here. */
export class HibernationError extends Error {
  override readonly name = 'HibernationError'
}

/**
 * Saves the VM into `directory`, which must not exist and lies on the file system of the VM's folder, and ends it.
 * Its ports end with it. With `signal` the VM is ended at once and nothing is saved.
 * @throws {HibernationError} when it could not be saved; the VM then runs on as if nothing had been, or has ended
 */
export async function hibernateVm(vm: Vm, directory: string, signal?: AbortSignal): Promise<SavedVm> {
  const draft = `${directory}.draft`
  const files = filesOf(draft)
  const { scratch, folder } = vm.plan
  const record = recordOf(vm)
  let movedScratch = false
  const stop = () => void vm.stop()
  signal?.addEventListener('abort', stop, { once: true })
  if (signal?.aborted) stop()
  try {
    await rm(draft, { recursive: true, force: true })
    await mkdir(draft, { mode: 0o700 })
    await saveState(vm.qmp, {
      socketFolder: folder.sockets,
      insidePath: vm.process.socketPath,
      file: files.state,
      withoutMemory: false,
      deadlineMs: SAVE_DEADLINE_MS,
    })
    if (scratch.base !== undefined) await keepBase(scratch.base, files.base)
    await syncFile(scratch.file)
    await writeFile(join(draft, RECORD), `${JSON.stringify(record, null, 2)}\n`, { mode: 0o600, flush: true })
    await rename(scratch.file, files.scratch)
    movedScratch = true
    await rename(draft, directory)
  } catch (cause) {
    // Whatever else fails: the guest is to run. QEMU has its disk open, by whatever name.
    if (movedScratch) await rename(files.scratch, scratch.file).catch(() => undefined)
    await rm(draft, { recursive: true, force: true }).catch(() => undefined)
    const goesOn = await runOn(vm)
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new HibernationError(`the VM could not be saved and ${goesOn ? 'goes on' : 'has ended'}: ${why}`, {
      cause,
    })
  } finally {
    signal?.removeEventListener('abort', stop)
  }
  await vm.stop()
  return { directory, record }
}

/** What was saved there; undefined when nothing was, or not to the end. */
export async function findSavedVm(directory: string): Promise<SavedVm | undefined> {
  const text = await readFile(join(directory, RECORD), 'utf8').catch(() => undefined)
  if (text === undefined) return undefined
  const parsed = recordSchema.safeParse(parseJson(text))
  return parsed.success ? { directory, record: parsed.data } : undefined
}

/**
 * Lets the VM go on, with fresh random bytes and the time (see {@link Vm.fresh}). `options` name the same image and the
 * workspace's drive; sizes and accelerator are those of the saved VM. Once it runs the directory is to be removed.
 * @throws {HibernationError} when it cannot wake here; VmError when it fails to. As long as {@link findSavedVm} still
 * finds it there, its guest has not run and it can wake later
 */
export async function wakeVm(options: StartVmOptions, saved: SavedVm): Promise<Vm> {
  if (JSON.stringify(imageFiles(options)) !== JSON.stringify(saved.record.image)) {
    throw new HibernationError('the VM was saved with another image: it can wake with that one only')
  }
  const { qemuVersion } = await prepareMachine(options, false)
  if (qemuVersion !== saved.record.qemuVersion) {
    throw new HibernationError(
      `the VM was saved by QEMU ${saved.record.qemuVersion} and cannot wake with QEMU ${qemuVersion}`,
    )
  }
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

async function wakeOnce(options: StartVmOptions, { directory, record }: SavedVm): Promise<Vm> {
  const files = filesOf(directory)
  const { memoryBytes, cpus, diskBytes, accelerator, scratchFormat, hasBase, prepared } = record
  const memory = { path: files.memory, share: false, readOnly: canMapReadOnly(record.qemuVersion) }
  // From here nobody else finds it: its disk is about to move on.
  await rename(join(directory, RECORD), join(directory, TAKEN))
  try {
    const scratch = { kind: 'moved', file: await lend(files.scratch), format: scratchFormat } as const
    return await resumeVm(
      { ...options, memoryBytes, cpus, diskBytes, accelerator },
      {
        state: {
          stateFile: prepared ? files.devices : files.state,
          scratch: hasBase ? { ...scratch, base: await lend(files.base) } : scratch,
          ...(prepared ? { memory } : {}),
        },
        withoutMemory: prepared,
        entropy: true,
      },
    )
  } catch (error) {
    const hasRun = error instanceof VmError && error.phase === 'fresh'
    const isWhole = (await isThere(files.scratch)) && (!hasBase || (await isThere(files.base)))
    if (!hasRun && isWhole) await rename(join(directory, TAKEN), join(directory, RECORD))
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
  return error instanceof VmError && ['deadline_exceeded', 'cancelled'].includes(error.code)
}

/**
 * Lays the memory of a saved VM out in a file, so that it wakes several times sooner: a second process loads the state,
 * never runs, and saves the devices alone. Needs about as much memory and disk again as the VM has touched.
 * The signal in `options` gives it up. @throws what a start throws; the saved VM is as good as before then
 */
export async function prepareWake(options: StartVmOptions, saved: SavedVm): Promise<SavedVm> {
  const { directory, record } = saved
  if (record.prepared) return saved
  const files = filesOf(directory)
  const { memoryBytes, cpus, diskBytes, accelerator } = record
  const spare = join(directory, 'spare.raw')
  await rm(files.memory, { force: true })
  await makeSparseFile(files.memory, memoryBytes, 0o666)
  try {
    const sink = await resumeVm(
      { ...options, memoryBytes, cpus, diskBytes, accelerator },
      {
        state: {
          stateFile: files.state,
          // Only the devices' state counts here; the disk itself stays untouched.
          scratch: { kind: 'blank', bytes: diskBytes, file: spare },
          memory: { path: files.memory, share: true, readOnly: false },
        },
        withoutMemory: false,
        entropy: false,
        paused: true,
      },
    )
    const stop = () => void sink.stop()
    options.signal?.addEventListener('abort', stop, { once: true })
    try {
      options.signal?.throwIfAborted()
      await saveState(sink.qmp, {
        socketFolder: sink.plan.folder.sockets,
        insidePath: sink.process.socketPath,
        file: files.devices,
        withoutMemory: true,
        deadlineMs: SAVE_DEADLINE_MS,
      })
    } finally {
      options.signal?.removeEventListener('abort', stop)
      await sink.stop()
    }
    const prepared: SavedVmRecord = { ...record, prepared: true }
    const draft = join(directory, `${RECORD}.new`)
    await writeFile(draft, `${JSON.stringify(prepared, null, 2)}\n`, { mode: 0o600, flush: true })
    await rename(draft, join(directory, RECORD))
    // From here the others count, whether or not it goes.
    await rm(files.state, { force: true }).catch(() => undefined)
    return { directory, record: prepared }
  } catch (error) {
    await Promise.all([files.memory, files.devices].map((file) => rm(file, { force: true })))
    throw error
  } finally {
    await rm(spare, { force: true })
  }
}

/** A preparation under way. */
export interface Preparation {
  /** Gives it up if it still runs; the saved VM as it then is, ready to wake. */
  stop(): Promise<SavedVm>
}

/** {@link prepareWake} while nobody waits; what it cannot do only costs time at the wake. */
export function prepareInBackground(options: StartVmOptions, saved: SavedVm): Preparation {
  const stopper = new AbortController()
  const prepared = prepareWake({ ...options, signal: stopper.signal }, saved).catch(() => saved)
  return {
    stop: async () => {
      stopper.abort()
      return await prepared
    },
  }
}

function filesOf(directory: string) {
  return {
    state: join(directory, 'state'),
    devices: join(directory, 'devices'),
    memory: join(directory, 'memory'),
    scratch: join(directory, 'scratch'),
    base: join(directory, 'base.raw'),
  }
}

function recordOf(vm: Vm): SavedVmRecord {
  const { plan, accelerator, memoryBytes, cpus, qmp } = vm
  return {
    version: 1,
    savedAtMs: Date.now(),
    qemuVersion: qmp.version,
    accelerator,
    memoryBytes,
    cpus,
    diskBytes: resolveSize(plan.options).diskBytes,
    scratchFormat: plan.scratch.format,
    hasBase: plan.scratch.base !== undefined,
    image: imageFiles(plan.options),
    prepared: false,
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
      await continueVm(vm.qmp)
    } catch {
      continue
    }
    // Its clock stood still meanwhile; a guest that does not take the time has a late one.
    if (vm.plan.refreshes)
      vm.root.freshen({ entropy: false, deadlineMs: CLOCK_DEADLINE_MS }).catch(() => undefined)
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
