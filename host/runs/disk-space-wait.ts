/**
 * What a run does when the host's disk is full: it waits, says how much is needed, and goes on when there is room. It
 * waits no longer than the run's own time limit, and not at all once somebody cancelled.
 */

import { statfs } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import type { HostDelta, HostEvent } from '#specs/protocol/event.ts'
import type { RoomNeed } from '../files/disk-space.ts'

const pollMs = 1_000
/** Who begins to watch later hears of it as well. */
const repeatNoticeMs = 15_000

export interface RoomKeeperOptions {
  /** Shown at once; nothing can be journaled now. */
  readonly onNotice: (notice: HostDelta) => void
  /** For the journal. */
  readonly onWaited: (event: Extract<HostEvent, { type: 'disk-wait' }>) => void
  /** One wait more (+1) or less (-1). */
  readonly onHold: (change: number) => void
  /** Of all waits of the run together. */
  readonly maxWaitMs: number
  /** Free bytes of the disk that `directory` is on. Absent: as the system says. */
  readonly readFree?: (directory: string) => Promise<number>
}

export class RoomKeeper {
  readonly #options: RoomKeeperOptions
  readonly #giveUp = new AbortController()
  #leftMs: number

  constructor(options: RoomKeeperOptions) {
    this.#options = options
    this.#leftMs = options.maxWaitMs
  }

  /** Ends all waits, and those to come, with this reason. */
  giveUp(reason: string): void {
    this.#giveUp.abort(reason)
  }

  /** @throws {CaissonError} `no_space` when it waits no longer */
  readonly wait = async (need: RoomNeed): Promise<void> => {
    const signals = [this.#giveUp.signal, ...(need.signal === undefined ? [] : [need.signal])]
    const signal = AbortSignal.any(signals)
    this.#options.onHold(1)
    const startedAt = performance.now()
    try {
      await this.#untilFree(need, signal)
    } finally {
      const durationMs = Math.round(performance.now() - startedAt)
      this.#leftMs -= durationMs
      this.#options.onHold(-1)
      const { what, directory, neededBytes } = need
      this.#options.onWaited({ type: 'disk-wait', what, directory, neededBytes, durationMs })
    }
  }

  async #untilFree({ what, directory, neededBytes }: RoomNeed, signal: AbortSignal): Promise<void> {
    const { readFree = readFreeBytes, onNotice } = this.#options
    const endAt = performance.now() + this.#leftMs
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
      // At least once also where there seems to be room: a share of the disk can be used up before the disk is.
      await pause(pollMs, signal)
      if (!signal.aborted && (await readFree(directory)) >= neededBytes) return
    }
  }
}

function diskFull({ what, directory, neededBytes }: RoomNeed, freeBytes: number, why: string): CaissonError {
  return new CaissonError(
    'no_space',
    `the disk is full: ${what} needs ${neededBytes} free bytes in ${directory}, there are ${freeBytes} (${why}); ` +
      'free some disk space and start again',
  )
}

/** Bytes that a plain user may still write. */
async function readFreeBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory)
  return bavail * bsize
}

/** Resolves after this time, or with the signal. Keeps the process alive. */
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
