/**
 * Resumes a VM that QEMU paused because the host's disk is full. The VM repeats its write when disk space is available.
 */
import { unpauseVm } from '../../vm/hibernation/pause.ts'
import type { Vm } from '../../vm/vm.ts'
import type { DiskSpaceWait } from '../disk-space-wait.ts'

/** Bytes that must be free on the host's disk before the VM resumes. */
const minFreeBytes = 64 * 1024 * 1024

export interface DiskGuardOptions {
  readonly diskSpace: Pick<DiskSpaceWait, 'wait'>
  /** Whether a person has paused the VM as well. */
  readonly isPaused: () => boolean
  /** Called with true while the VM is paused: heartbeats are not expected. */
  readonly onFrozen: (frozen: boolean) => void
  /** Called when the VM cannot resume. */
  readonly onLost: (cause: unknown) => void
}

export class DiskGuard {
  readonly #options: DiskGuardOptions
  readonly #over = new AbortController()
  #isWaiting = false

  constructor(options: DiskGuardOptions) {
    this.#options = options
  }

  /** Whether the VM waits for disk space. */
  get isWaiting(): boolean {
    return this.#isWaiting
  }

  /** Called when QEMU paused this VM at a write. */
  async onFull(vm: Vm): Promise<void> {
    if (this.#isWaiting || this.#over.signal.aborted) return
    const { diskSpace, isPaused, onFrozen, onLost } = this.#options
    this.#isWaiting = true
    onFrozen(true)
    try {
      const need = { what: "the VM's disk", directory: vm.plan.folder.path, neededBytes: minFreeBytes }
      await diskSpace.wait({ ...need, signal: this.#over.signal })
      this.#isWaiting = false
      if (isPaused()) return
      // If space runs out again, QEMU pauses the VM at the next write, and its clock is set after that wait.
      await unpauseVm(vm).catch((cause: unknown) => this.#isWaiting || onLost(cause))
      if (!this.#isWaiting) onFrozen(false)
    } catch (cause) {
      onLost(cause)
    }
  }

  /** Cancels the wait, before the VM ends. */
  end(): void {
    this.#over.abort('the run is over')
  }
}
