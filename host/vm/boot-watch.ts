// Follows a booting guest by its console until init says that it is ready, says what failed, or QEMU ends.
// What it reads is the guest's claim: it decides when the host goes on, and nothing else.

import type { QemuExit, QemuProcess } from './qemu/qemu-process.ts'
import type { VmPhase } from './vm-error.ts'

/** What init prints when it is ready to serve (followed by `uptime=<seconds>`). */
export const READY_MARKER = 'caisson: init ready'
const ANY_MARKER = 'caisson:'
const ERROR_MARKER = 'caisson: ERROR'

export type BootOutcome =
  | { readonly kind: 'ready'; readonly uptimeMs: number | null }
  /** `guestPhase` is the guest's word for where it failed, cut to a plain word; absent when it gave none. */
  | { readonly kind: 'guest-error'; readonly guestPhase: string | undefined }
  | { readonly kind: 'exited'; readonly exit: QemuExit }

export interface BootWatch {
  readonly outcome: Promise<BootOutcome>
  /** `kernel` until the guest's user space said anything, then `init`. */
  phase(): VmPhase
  /** When the first byte came, as performance.now() tells it; undefined while the guest is silent. */
  firstOutputAt(): number | undefined
}

/** Starts watching; call it before the console can have said anything. */
export function watchBoot(qemu: Pick<QemuProcess, 'console' | 'exited'>, readyMarker: string): BootWatch {
  const { promise, resolve } = Promise.withResolvers<BootOutcome>()
  let phase: VmPhase = 'kernel'
  let firstOutputAt: number | undefined
  const endData = qemu.console.onData(() => {
    firstOutputAt ??= performance.now()
  })
  const endLine = qemu.console.onLine((line) => {
    const text = line.slice(Math.max(0, line.indexOf(ANY_MARKER)))
    if (text.startsWith(ANY_MARKER)) phase = 'init'
    if (text.startsWith(readyMarker)) {
      resolve({ kind: 'ready', uptimeMs: readUptime(text) })
    } else if (text.startsWith(ERROR_MARKER)) {
      const guestPhase = /\bphase=([a-z_-]{1,20})/.exec(text)?.[1]
      // Init starts an agent that crashed again; whether it ever answers is not decided here.
      if (guestPhase !== 'agent') resolve({ kind: 'guest-error', guestPhase })
    }
  })
  void qemu.exited.then((exit) => resolve({ kind: 'exited', exit }))
  void promise.then(() => {
    endData()
    endLine()
  })
  return { outcome: promise, phase: () => phase, firstOutputAt: () => firstOutputAt }
}

function readUptime(line: string): number | null {
  const seconds = /\buptime=(\d{1,6}(?:\.\d{1,6})?)(?:\s|$)/.exec(line)?.[1]
  return seconds === undefined ? null : Math.round(Number(seconds) * 1000)
}
