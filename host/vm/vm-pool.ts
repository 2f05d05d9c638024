// Warm VMs that wait for work: resumed from a template, made fresh, then stopped, each with an empty file behind its
// workspace drive. One that is handed out runs and has the time of that moment; another takes its place. All are of one
// kind; what is asked for of another kind is started elsewhere.

import { link } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { ownWorkspace } from './drives.ts'
import { pauseCpus, resumeCpus } from './hibernation/saved-state.ts'
import { Pool, type PoolCounts, type PoolMember } from './pool.ts'
import {
  GuestUnresponsiveError,
  restoreFromTemplate,
  type WarmStartDeps,
  type WarmVm,
} from './template/warm-start.ts'
import type { StartVmOptions } from './vm-command.ts'
import { noteWaiting } from './vm-folder.ts'
import { resolveSize } from './vm-options.ts'

const DEFAULT_WAIT_MS = 120_000
/** For a guest that has nothing else to do; one that does not answer is not handed out. */
const WAKE_DEADLINE_MS = 5_000

export interface VmPoolOptions {
  /** How many VMs wait ready. */
  readonly size: number
  /** How many there may be at once, those handed out included; at least `size`. Default: as `maxMemoryBytes` allows. */
  readonly maxVms?: number
  /** What the VMs may have together, each counted with all the memory that its guest may come to use. Default: this machine's. */
  readonly maxMemoryBytes?: number
  /** How long a caller waits while there are as many as there may be; default two minutes. */
  readonly waitMs?: number
}

/** A VM out of a pool, the caller's to stop. */
export interface PooledVm extends WarmVm, PoolMember {}

export interface TakeOptions {
  /**
   * A file that does not exist, on the file system of the VMs' folders: it becomes the drive `workspace`, all zeros and
   * longer than any workspace. The guest has not read it yet.
   */
  readonly workspaceDisk: string
  /** Gives up waiting. */
  readonly signal?: AbortSignal
}

export class VmPool implements AsyncDisposable {
  readonly #start: StartVmOptions
  readonly #pool: Pool<PooledVm>

  /**
   * Begins to start VMs; call it from the main thread, as they end with the thread that started them.
   * @param start of each VM, without workspace and signal. @throws TypeError for a size beyond the bounds
   * @throws VmError `bad_option`
   */
  constructor(start: StartVmOptions, deps: WarmStartDeps, options: VmPoolOptions) {
    const { size, maxVms = Number.POSITIVE_INFINITY, maxMemoryBytes = totalmem(), waitMs } = options
    const { memoryBytes } = resolveSize(start)
    this.#start = start
    this.#pool = new Pool<PooledVm>({
      size,
      maxMembers: Math.min(maxVms, Math.floor(maxMemoryBytes / memoryBytes)),
      waitMs: waitMs ?? DEFAULT_WAIT_MS,
      start: (signal) => restoreFromTemplate({ ...start, hasOwnWorkspace: true, signal }, deps, rest),
      prepare: wake,
    })
  }

  get counts(): PoolCounts {
    return this.#pool.counts
  }

  /** Whether its VMs are what these options would start. */
  fits(options: StartVmOptions): boolean {
    return kindOf(options) === kindOf(this.#start)
  }

  /**
   * A warm VM that runs. Callers that wait are served in order.
   * @throws VmError `pool_full` when all were in use for too long, `cancelled`, or why no VM could be started
   */
  async take({ workspaceDisk, signal }: TakeOptions): Promise<PooledVm> {
    const startedAt = performance.now()
    const stopper = signal === undefined ? {} : { signal }
    const pooled = await this.#pool.take(stopper)
    const { vm } = pooled
    try {
      // Another name for the same file, which outlasts the VM's folder: a VM that is saved wakes with it.
      await link(ownWorkspace(vm.plan.folder), workspaceDisk)
      await noteWaiting(vm.plan.folder, false)
    } catch (error) {
      await vm.stop()
      throw error
    }
    const plan = { ...vm.plan, options: { ...this.#start, workspaceDisk, ...stopper } }
    const poolMs = performance.now() - startedAt
    const timings = { prepareMs: 0, spawnMs: 0, qmpMs: 0, poolMs, totalMs: poolMs, guestUptimeMs: null }
    return { ...pooled, vm: { ...vm, plan, timings } }
  }

  /** Resolves once as many VMs are ready as shall be. @throws VmError when one could not be started */
  whenFull(signal?: AbortSignal): Promise<void> {
    return this.#pool.whenFull(signal)
  }

  /** Ends all its VMs, also those that work, and rejects whoever waits. */
  close(): Promise<void> {
    return this.#pool.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/**
 * Hands a VM of a pool to `open` as {@link restoreFromTemplate} would a new one; without, or when its guest does not serve, one is
 * started. @throws as {@link restoreFromTemplate} does
 */
export async function acquireWarmVm<T>(
  pooled: PooledVm | undefined,
  options: StartVmOptions,
  deps: WarmStartDeps,
  open: (warm: WarmVm) => Promise<T>,
): Promise<T> {
  if (pooled === undefined) return await restoreFromTemplate(options, deps, open)
  try {
    return await open(pooled)
  } catch (error) {
    await pooled.stop()
    if (!(error instanceof GuestUnresponsiveError)) throw error
    return await restoreFromTemplate(options, deps, open)
  }
}

/** Lets the VM stand still: a guest that idles still takes processor time, and ever more memory of its own. */
async function rest(warm: WarmVm): Promise<PooledVm> {
  const { vm } = warm
  await vm.fresh
  await pauseCpus(vm.qmp)
  await noteWaiting(vm.plan.folder, true)
  return { ...warm, exited: vm.exited, stop: () => vm.stop() }
}

/**
 * Lets it go on, with the time of now. The random bytes that it got when it was resumed serve still: no other VM has had
 * its state since.
 */
async function wake({ vm }: PooledVm): Promise<void> {
  const told = vm.root.reseed({ entropy: false, deadlineMs: WAKE_DEADLINE_MS })
  await Promise.all([told, resumeCpus(vm.qmp)])
}

/** Everything that makes two VMs serve differently. */
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
