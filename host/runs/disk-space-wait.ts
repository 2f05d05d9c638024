/**
 * Waits for disk space on the host: reports how many bytes are missing and continues when they are free. The wait ends
 * at the run's time limit or when the run is cancelled.
 */
import { statfs } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import type { HostDelta, HostEvent } from '#specs/protocol/event.ts'
import type { DiskSpaceNeed } from '../files/disk-space.ts'
import { unpauseVm } from '../vm/hibernation/pause.ts'
import type { Vm } from '../vm/vm.ts'

const pollMs = 1_000
/** Repeats the notice for watchers that connect later. */
const repeatNoticeMs = 15_000

interface DiskSpaceWaitOptions {
  /** Shown immediately; the journal cannot be written while the disk is full. */
  readonly onNotice: (notice: HostDelta) => void
  /** Receives the journal event after a wait. */
  readonly onWaited: (event: Extract<HostEvent, { type: 'disk-wait' }>) => void
  /** One wait more (+1) or fewer (-1). */
  readonly onHold: (change: number) => void
  /** Total for all waits of the run. */
  readonly maxWaitMs: number
  /** Reads the free bytes of the disk that holds `directory`. Absent: uses statfs. */
  readonly readFree?: (directory: string) => Promise<number>
}

export class DiskSpaceWait {
  readonly #options: DiskSpaceWaitOptions
  readonly #giveUp = new AbortController()
  /** For the waits from now on, which may overlap: time with any of them counts once. */
  #leftMs: number
  #count = 0
  #since = 0

  constructor(options: DiskSpaceWaitOptions) {
    this.#options = options
    this.#leftMs = options.maxWaitMs
  }

  /** Ends current and future waits with this reason. */
  giveUp(reason: string): void {
    this.#giveUp.abort(reason)
  }

  /** @throws {CaissonError} `no_space` when the wait ends without disk space */
  readonly wait = async (need: DiskSpaceNeed): Promise<void> => {
    const signals = [this.#giveUp.signal, ...(need.signal === undefined ? [] : [need.signal])]
    const signal = AbortSignal.any(signals)
    this.#options.onHold(1)
    const startedAt = performance.now()
    if (this.#count === 0) this.#since = startedAt
    this.#count += 1
    try {
      await this.#untilFree(need, signal)
    } finally {
      const now = performance.now()
      const durationMs = Math.round(now - startedAt)
      this.#count -= 1
      if (this.#count === 0) this.#leftMs -= now - this.#since
      this.#options.onHold(-1)
      const { what, directory, neededBytes } = need
      // Those that were given up at once would fill the journal.
      if (durationMs >= pollMs / 2)
        this.#options.onWaited({ type: 'disk-wait', what, directory, neededBytes, durationMs })
    }
  }

  async #untilFree({ what, directory, neededBytes }: DiskSpaceNeed, signal: AbortSignal): Promise<void> {
    const { readFree = readFreeBytes, onNotice } = this.#options
    const endAt = this.#since + this.#leftMs
    for (let noticeAt = 0; ; ) {
      const freeBytes = await readFree(directory)
      const now = performance.now()
      const why = signal.aborted ? String(signal.reason) : now >= endAt ? 'the run waited long enough' : null
      if (why !== null) throw diskFull({ what, directory, neededBytes }, freeBytes, why)
      if (now >= noticeAt) {
        const text = `The disk is full: ${what} waits for ${neededBytes} free bytes in ${directory}; ${freeBytes} are free. Free some disk space, or cancel the run.`
        onNotice({ type: 'disk-full', text, directory, freeBytes, neededBytes })
        noticeAt = now + repeatNoticeMs
      }
      // Waits at least once even if the disk reports free space: a quota can be exceeded before the disk is full.
      await pause(pollMs, signal)
      if (!signal.aborted && (await readFree(directory)) >= neededBytes) return
    }
  }
}

function diskFull(
  { what, directory, neededBytes }: DiskSpaceNeed,
  freeBytes: number,
  why: string,
): CaissonError {
  return new CaissonError(
    'no_space',
    `the disk is full: ${what} needs ${neededBytes} free bytes in ${directory}, there are ${freeBytes} (${why}); ` +
      'free some disk space',
  )
}

/** Bytes available to an unprivileged user. */
async function readFreeBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory)
  return bavail * bsize
}

/** Resolves after `ms`, or when the signal aborts. Keeps the process alive. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms)
    function done(): void {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    if (signal.aborted) done()
    else signal.addEventListener('abort', done)
  })
}

/** Bytes that must be free on the host's disk before the VM resumes. */
const minFreeBytes = 64 * 1024 * 1024

interface DiskGuardOptions {
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
