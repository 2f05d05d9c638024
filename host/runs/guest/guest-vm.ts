/**
 * The VM of one run over the processes that it lives in: it may be saved to disk and go on in another. Knows nothing of
 * its agent; an end that nobody asked for is told once.
 */
import { rm } from 'node:fs/promises'
import { hibernateVm, isMemoryMapped, type SavedVm, wakeVm } from '../../vm/hibernation/hibernate.ts'
import type { StartVmOptions, Vm, VmExit } from '../../vm/vm.ts'

/** The two ways in which a VM stops by itself. */
export interface VmStops {
  readonly onExit: (exit: VmExit) => void
  /** A write to its disk found no room on the host's: it stands still until it is told to go on. */
  readonly onDiskFull: () => void
}

/** Of the console of the processes before the present one. */
const EARLIER_CONSOLE_CHARS = 64 * 1024

export class GuestVm {
  readonly #stops: VmStops
  readonly #workspaceDisk: string
  #current: Vm
  /** Between the start of a save and the end of a wake: no process is expected to live. */
  #isAsleep = false
  #isStopped = false
  #earlierConsole = ''
  /** Came while it was being saved. */
  #lastExit: VmExit | undefined
  #saved: SavedVm | null = null
  #waking: Promise<unknown> = Promise.resolve()

  /** @param workspaceDisk the file behind the drive `workspace`, which outlives the processes */
  constructor(vm: Vm, workspaceDisk: string, stops: VmStops) {
    this.#current = vm
    this.#workspaceDisk = workspaceDisk
    this.#stops = stops
    this.#follow(vm)
  }

  /** The process of now; while it is saved, the last one. */
  get current(): Vm {
    return this.#current
  }

  /** The last of the guest's console over all its processes: guest text. */
  consoleText(): string {
    return this.#earlierConsole + this.#current.console.text()
  }

  /** Saves it into `directory` and ends its process. @throws {CaissonError} `vm_failed` when it goes on instead, or has ended */
  async sleep(directory: string): Promise<void> {
    this.#saved = await this.#save(directory)
  }

  /** Saves it for another run. @throws {CaissonError} `vm_failed` when it goes on instead, or has ended */
  async keep(directory: string): Promise<void> {
    await this.#save(directory)
  }

  async #save(directory: string): Promise<SavedVm> {
    this.#isAsleep = true
    try {
      await rm(directory, { recursive: true, force: true })
      return await hibernateVm(this.#current, directory, this.#current.plan.options.signal)
    } catch (error) {
      this.#isAsleep = false
      if (this.#lastExit !== undefined && !this.#isStopped) this.#stops.onExit(this.#lastExit)
      throw error
    }
  }

  /** Lets it go on, fresh; the ports are others. Undefined when it is not asleep, or ends meanwhile. @throws {VmError} */
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
    this.#isAsleep = false
    this.#follow(vm)
    // What stays is removed before the next sleep, or by a later run.
    await rm(saved.directory, { recursive: true, force: true }).catch(() => undefined)
    return { prepared: isMemoryMapped(saved.record) }
  }

  /** Ends it; what was saved to be woken by this object is removed. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#current.stop()
    await this.#waking
    if (this.#saved !== null) await rm(this.#saved.directory, { recursive: true, force: true })
  }

  #options(): StartVmOptions {
    const { hasOwnWorkspace: _, ...options } = this.#current.plan.options
    return { ...options, workspaceDisk: this.#workspaceDisk }
  }

  #follow(vm: Vm): void {
    void vm.exited.then((exit) => {
      if (this.#current !== vm || this.#isStopped) return
      if (this.#isAsleep) this.#lastExit = exit
      else this.#stops.onExit(exit)
    })
    vm.qmp.onEvent(({ name, data }) => {
      if (name === 'BLOCK_IO_ERROR' && data.action === 'stop' && this.#current === vm)
        this.#stops.onDiskFull()
    })
  }
}
