/** A VM that stands still because the host's disk is full: it goes on, and repeats its write, when there is room. */
import { unpauseVm } from '../../vm/hibernation/pause.ts'
import type { Vm } from '../../vm/vm.ts'
import type { RoomKeeper } from '../disk-space-wait.ts'

/** Free on the host's disk before it goes on. */
const diskRoomBytes = 64 * 1024 * 1024

export interface DiskGuardOptions {
  readonly room: Pick<RoomKeeper, 'wait'>
  /** Whether a person has it stand still as well. */
  readonly isPaused: () => boolean
  /** While it stands still nothing is expected of it. */
  readonly onFrozen: (frozen: boolean) => void
  /** It cannot go on. */
  readonly onLost: (cause: unknown) => void
}

export class DiskGuard {
  readonly #options: DiskGuardOptions
  readonly #over = new AbortController()
  #isWaiting = false

  constructor(options: DiskGuardOptions) {
    this.#options = options
  }

  /** Whether the VM waits for room. */
  get isWaiting(): boolean {
    return this.#isWaiting
  }

  /** QEMU stopped this VM at a write. */
  async onFull(vm: Vm): Promise<void> {
    if (this.#isWaiting || this.#over.signal.aborted) return
    const { room, isPaused, onFrozen, onLost } = this.#options
    this.#isWaiting = true
    onFrozen(true)
    try {
      const need = { what: "the VM's disk", directory: vm.plan.folder.path, neededBytes: diskRoomBytes }
      await room.wait({ ...need, signal: this.#over.signal })
      this.#isWaiting = false
      if (isPaused()) return
      // Where there is too little again, QEMU stops it at the next write, and its time is set after that wait.
      await unpauseVm(vm).catch((cause: unknown) => this.#isWaiting || onLost(cause))
      if (!this.#isWaiting) onFrozen(false)
    } catch (cause) {
      onLost(cause)
    }
  }

  /** The VM is about to end: nothing is waited for any more. */
  end(): void {
    this.#over.abort('the run is over')
  }
}
