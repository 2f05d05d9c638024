/**
 * Represents the VM of one run across the processes it runs in: it can be saved to disk and restored in another
 * process. Knows nothing of its agent; reports an unexpected exit once.
 */
import { rm } from 'node:fs/promises'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { Image } from '../../image/image.ts'
import { hibernateVm, isMemoryMapped, type SavedVm, wakeVm } from '../../vm/hibernation/hibernate.ts'
import type { StartedVm } from '../../vm/open-vm.ts'
import type { StartVmOptions, Vm, VmExit } from '../../vm/vm.ts'

/** The two ways in which a VM stops by itself. */
interface VmStops {
  readonly onExit: (exit: VmExit) => void
  /** The host's disk is full: QEMU paused the VM at a write, until it is resumed. */
  readonly onDiskFull: () => void
}

/** Characters kept of the console output of earlier processes. */
const EARLIER_CONSOLE_CHARS = 64 * 1024

export class GuestVm {
  readonly #stops: VmStops
  readonly #workspaceDisk: string
  #current: Vm
  /** True from the start of a save to the end of a wake: no process is expected to live. */
  #isHibernated = false
  #isStopped = false
  #earlierConsole = ''
  /** Exit that was reported during a save. */
  #lastExit: VmExit | undefined
  #saved: SavedVm | null = null
  #waking: Promise<unknown> = Promise.resolve()

  /** @param workspaceDisk file behind the drive `workspace`; it outlives the processes */
  constructor(vm: Vm, workspaceDisk: string, stops: VmStops) {
    this.#current = vm
    this.#workspaceDisk = workspaceDisk
    this.#stops = stops
    this.#follow(vm)
  }

  /** The current process; while the VM is saved, the last one. */
  get current(): Vm {
    return this.#current
  }

  /** The end of the guest's console output over all processes. Untrusted text. */
  consoleText(): string {
    return this.#earlierConsole + this.#current.console.text()
  }

  /**
   * Saves the VM into `directory` and ends its process.
   * @throws {CaissonError} `vm_failed` when the VM continues instead, or has ended
   */
  async sleep(directory: string): Promise<void> {
    this.#saved = await this.#save(directory)
  }

  /**
   * Saves the VM for another run.
   * @throws {CaissonError} `vm_failed` when the VM continues instead, or has ended
   */
  async keep(directory: string): Promise<void> {
    await this.#save(directory)
  }

  async #save(directory: string): Promise<SavedVm> {
    this.#isHibernated = true
    try {
      await rm(directory, { recursive: true, force: true })
      return await hibernateVm(this.#current, directory, this.#current.plan.options.signal)
    } catch (error) {
      this.#isHibernated = false
      if (this.#lastExit !== undefined && !this.#isStopped) this.#stops.onExit(this.#lastExit)
      throw error
    }
  }

  /**
   * Restores the VM with a new identity and new ports. Undefined when it is not saved, or ends meanwhile.
   * @throws {VmError}
   */
  async wake(): Promise<{ readonly prepared: boolean } | undefined> {
    const saved = this.#saved
    if (saved === null || this.#isStopped) return undefined
    const waking = this.#wake(saved)
    this.#waking = waking.catch(() => undefined)
    return await waking
  }

  async #wake(saved: SavedVm): Promise<{ readonly prepared: boolean } | undefined> {
    const vm = await wakeVm(this.#options(), saved)
    await vm.fresh
    if (this.#isStopped) {
      await vm.stop()
      return undefined
    }
    this.#saved = null
    this.#earlierConsole = this.consoleText().slice(-EARLIER_CONSOLE_CHARS)
    this.#current = vm
    this.#isHibernated = false
    this.#follow(vm)
    // Leftovers are removed before the next save, or by a later run.
    await rm(saved.directory, { recursive: true, force: true }).catch(() => undefined)
    return { prepared: isMemoryMapped(saved.record) }
  }

  /** Ends the VM, and removes the state that only this object could restore. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#current.stop()
    await this.#waking
    if (this.#saved !== null) await rm(this.#saved.directory, { recursive: true, force: true })
  }

  #options(): StartVmOptions {
    const { hasOwnWorkspace: _, hasOwnCheckpoints: __, ...options } = this.#current.plan.options
    return { ...options, workspaceDisk: this.#workspaceDisk }
  }

  #follow(vm: Vm): void {
    void vm.exited.then((exit) => {
      if (this.#current !== vm || this.#isStopped) return
      if (this.#isHibernated) this.#lastExit = exit
      else this.#stops.onExit(exit)
    })
    vm.qmp.onEvent(({ name, data }) => {
      if (name === 'BLOCK_IO_ERROR' && data.action === 'stop' && this.#current === vm)
        this.#stops.onDiskFull()
    })
  }
}

/**
 * Journal event about how the VM started, sent when its agent answers.
 * @param agentMs time until the agent answered
 */
export function describeReady(
  { vm, origin }: StartedVm,
  agentMs: number,
  image: Pick<Image, 'key' | 'agentDigest'>,
): HostEvent {
  const { totalMs: _, guestUptimeMs: __, ...timed } = vm.timings
  const phases = { ...timed, agentMs }
  const { from, coldReason } = origin
  return {
    type: 'vm-ready',
    start: from,
    ...(coldReason === undefined ? {} : { coldReason: coldReason.slice(0, 2_000) }),
    accelerator: vm.accelerator,
    confinement: vm.confinement,
    imageKey: image.key,
    agentDigest: image.agentDigest,
    phasesMs: Object.fromEntries(
      Object.entries(phases).map(([name, ms]) => [name.slice(0, -2), Math.round(ms)]),
    ),
  }
}
