// Watches a booting guest's console until init is ready, init reports a failure, or QEMU exits. The guest's output is
// untrusted: it only decides when the host continues.

import type { QemuExit, QemuProcess } from './qemu/qemu-process.ts'
import type { VmPhase } from './vm-error.ts'

/** Printed by init when it is ready (followed by `uptime=<seconds>`). */
export const READY_MARKER = 'caisson: init ready'
const ANY_MARKER = 'caisson:'
const ERROR_MARKER = 'caisson: ERROR'

export type BootOutcome =
  | { readonly kind: 'ready'; readonly uptimeMs: number | null }
  /** `guestPhase` is the guest's name of the failed phase, reduced to a plain word; absent if none. */
  | { readonly kind: 'guest-error'; readonly guestPhase: string | undefined }
  | { readonly kind: 'exited'; readonly exit: QemuExit }

export interface BootWatch {
  readonly outcome: Promise<BootOutcome>
  /** `kernel` until the first output of the guest's user space, then `init`. */
  phase(): VmPhase
  /** Time of the first byte on the clock of performance.now(); undefined while there is no output. */
  firstOutputAt(): number | undefined
}

/** Starts watching; call it before the first console output. */
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
      // Init restarts a crashed agent; whether it answers is checked elsewhere.
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
