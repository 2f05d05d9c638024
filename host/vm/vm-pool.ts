// A pool of warm VMs: restored from a template, reseeded, then paused, each with an empty file for its workspace drive.
// A VM that is handed out runs with the current time, and another replaces it. All VMs are of one kind; other kinds are
// started without the pool.

import { link, rm } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { Checkpoints } from './checkpoints/checkpoints.ts'
import { ownWorkspace } from './drives.ts'
import { pauseCpus, resumeCpus } from './hibernation/saved-state.ts'
import { openVm, type StartedVm } from './open-vm.ts'
import { Pool, type PoolCounts, type PoolMember, type TakeOptions } from './pool.ts'
import type { TemplateDeps } from './template/template-store.ts'
import type { Vm } from './vm.ts'
import type { StartVmOptions } from './vm-command.ts'
import { noteWaiting } from './vm-folder.ts'
import { resolveSize } from './vm-options.ts'

const DEFAULT_WAIT_MS = 120_000
/** Deadline for an idle guest; one that does not answer is not handed out. */
const WAKE_DEADLINE_MS = 5_000

export interface VmPoolOptions {
  /** Number of ready VMs. */
  readonly size: number
  /** Maximum VMs at once, including those handed out; at least `size`. Default: as `maxMemoryBytes` allows. */
  readonly maxVms?: number
  /** Memory limit of all VMs, each counted with its guest's full memory. Default: this machine's memory. */
  readonly maxMemoryBytes?: number
  /** How long a caller waits while the pool is at its limit; default two minutes. */
  readonly waitMs?: number
}

/** A VM of a pool, which the caller must stop. */
export interface PooledVm extends StartedVm, PoolMember {}

interface PoolTakeOptions extends TakeOptions {
  /**
   * Path of a new file on the file system of the VMs' folders. It becomes the drive `workspace`: all zeros and larger
   * than any workspace. The guest has not read it yet.
   */
  readonly workspaceDisk: string
  /**
   * Folder on that file system which becomes the VM's scratch disk, so that it outlives the VM. What is there is removed.
   * Absent: the VM has no checkpoints.
   */
  readonly scratch?: string
}

export class VmPool implements AsyncDisposable {
  readonly #start: StartVmOptions
  readonly #pool: Pool<PooledVm>

  /**
   * Starts VMs immediately. Call it from the main thread, since VMs end with the thread that started them.
   * @param start options of each VM, without workspace and signal
   * @throws TypeError for a size outside the limits
   * @throws VmError `bad_option`
   */
  constructor(start: StartVmOptions, deps: TemplateDeps, options: VmPoolOptions) {
    const { size, maxVms = Number.POSITIVE_INFINITY, maxMemoryBytes = totalmem(), waitMs } = options
    const { memoryBytes } = resolveSize(start)
    this.#start = start
    this.#pool = new Pool<PooledVm>({
      size,
      maxMembers: Math.min(maxVms, Math.floor(maxMemoryBytes / memoryBytes)),
      waitMs: waitMs ?? DEFAULT_WAIT_MS,
      start: (signal) =>
        openVm({ ...start, hasOwnWorkspace: true, hasOwnCheckpoints: true, signal }, deps, rest),
      prepare: wake,
    })
  }

  get counts(): PoolCounts {
    return this.#pool.counts
  }

  /** Whether its VMs match these options. */
  fits(options: StartVmOptions): boolean {
    return kindOf(options) === kindOf(this.#start)
  }

  /**
   * A running warm VM. Callers are served in order.
   * @throws VmError `pool_full` when all were in use for too long, `cancelled`, or why no VM could be started
   */
  async take({ workspaceDisk, scratch, signal, onPlace }: PoolTakeOptions): Promise<PooledVm> {
    const startedAt = performance.now()
    const stopper = signal === undefined ? {} : { signal }
    const pooled = await this.#pool.take({ signal, onPlace })
    const { vm } = pooled
    let given: Vm
    try {
      // A hard link that outlives the VM's folder: a saved VM is restored with it.
      await link(ownWorkspace(vm.plan.folder), workspaceDisk)
      await noteWaiting(vm.plan.folder, false)
      given = await giveScratch(vm, { ...this.#start, workspaceDisk, ...stopper }, scratch)
    } catch (error) {
      await vm.stop()
      throw error
    }
    const poolMs = performance.now() - startedAt
    const timings = { prepareMs: 0, spawnMs: 0, qmpMs: 0, poolMs, totalMs: poolMs, guestUptimeMs: null }
    return { ...pooled, vm: { ...given, timings } }
  }

  /** Resolves once all VMs are ready. @throws VmError when one could not be started */
  whenFull(signal?: AbortSignal): Promise<void> {
    return this.#pool.whenFull(signal)
  }

  /** Ends all its VMs, including those in use, and rejects waiting callers. */
  close(): Promise<void> {
    return this.#pool.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** Pauses the VM: an idle guest still uses CPU time and more and more memory. */
async function rest(started: StartedVm): Promise<PooledVm> {
  const { vm } = started
  await vm.fresh
  await pauseCpus(vm.qmp)
  await noteWaiting(vm.plan.folder, true)
  return { ...started, exited: vm.exited, stop: () => vm.stop() }
}

/** Resumes it with the current time. Its random bytes from the restore are still unique to it. */
async function wake({ vm }: PooledVm): Promise<void> {
  const reseeded = vm.root.reseed({ entropy: false, deadlineMs: WAKE_DEADLINE_MS })
  await Promise.all([reseeded, resumeCpus(vm.qmp)])
}

/** The VM with its scratch disk in this folder. Absent: without checkpoints. */
async function giveScratch(vm: Vm, options: StartVmOptions, folder: string | undefined): Promise<Vm> {
  const { checkpoints: _, ...plain } = vm
  const { checkpoints: own, ...plan } = vm.plan
  if (folder === undefined || own === undefined) return { ...plain, plan: { ...plan, options } }
  await rm(folder, { recursive: true, force: true })
  const moved = await own.disk.moveTo(folder, own.prepared)
  const { base, top } = moved.prepared
  return {
    ...plain,
    checkpoints: new Checkpoints(vm.qmp, vm.root, moved.disk, moved.prepared),
    plan: {
      ...plan,
      options: { ...options, checkpointDisk: moved.disk },
      checkpoints: moved,
      scratch: { ...plan.scratch, file: top, base },
    },
  }
}

/** Everything that makes two VMs differ in use. */
function kindOf(options: StartVmOptions): string {
  const { image, folders, accelerator = 'auto', confine = 'auto', guestOptions = {}, readyMarker } = options
  const files =
    'disk' in image
      ? [image.disk, image.format]
      : [image.kernel, image.initramfs, image.root, image.agentDisk]
  return JSON.stringify([
    files,
    [folders.vms, folders.cache],
    resolveSize(options),
    [accelerator, confine, Object.entries(guestOptions).sort(), readyMarker],
  ])
}
