// One VM from its monitor's first answer to the end of its folder.

import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Confinement } from './qemu/launcher.ts'
import type { Accelerator } from './qemu/qemu-args.ts'
import type { QemuProcess } from './qemu/qemu-process.ts'
import type { Qmp } from './qemu/qmp.ts'
import type { VmConsole } from './qemu/vm-console.ts'
import { PrivilegedPort } from './reseed.ts'
import { tails } from './start-failure.ts'
import type { VmCommand } from './vm-command.ts'

/** After QEMU's end, for what it had already written to monitor, console and stderr. */
export const LAST_WORDS_MS = 20

/** How long each phase of a start took, in milliseconds; those that it did not have are absent. */
export interface VmTimings {
  /** Options, image, machine and folder checked, files open. */
  readonly prepareMs: number
  /** Until the process was spawned. */
  readonly spawnMs: number
  /** Until QEMU's monitor answered. */
  readonly qmpMs: number
  /** A boot: until the guest's first output. */
  readonly kernelMs?: number
  /** A boot: until init said that it is ready. */
  readonly initMs?: number
  /** A resume: until the saved state was loaded and the guest's CPUs ran. */
  readonly loadMs?: number
  /** A boot: until the guest had random bytes and the time of the host. */
  readonly freshMs?: number
  /** Out of a pool, where the other phases were over before: until it was handed out. */
  readonly poolMs?: number
  /** Sum of all. */
  readonly totalMs: number
  /** The guest's own clock since its kernel started, as it claims; null when it did not say. */
  readonly guestUptimeMs: number | null
}

export interface VmExit {
  /**
   * `stopped` by {@link Vm.stop} or over the monitor; `guest-ended` when the guest powered off, rebooted or panicked; `killed` by a
   * signal of somebody else; `failed` for everything else.
   */
  readonly reason: 'stopped' | 'guest-ended' | 'killed' | 'failed'
  readonly code: number | null
  readonly signal: string | null
  /** QEMU's word for an orderly end, such as `guest-reset`; absent when it gave none. */
  readonly detail?: string
  readonly stderrTail: string
  /** Guest text. */
  readonly consoleTail: string
}

export interface Vm extends AsyncDisposable {
  readonly id: string
  /** QEMU's process id. */
  readonly pid: number
  /** The host's ends of the two ports; they end when QEMU does. */
  readonly rpc: Duplex
  readonly http: Duplex
  /** The port of the guest's root side, for entropy and time. */
  readonly root: PrivilegedPort
  /**
   * Resolves once the guest has random bytes and the time of this host. A resumed VM is returned before that, so that
   * its agent can wake up meanwhile: nothing may be asked of the guest before that draws at random or looks at a clock.
   * Rejects with a VmError; the VM is then ended.
   */
  readonly fresh: Promise<void>
  readonly qmp: Qmp
  /** What it was started from, and its process: for what saves it. */
  readonly plan: VmCommand
  readonly process: QemuProcess
  readonly console: VmConsole
  readonly accelerator: Accelerator
  readonly confinement: Confinement
  readonly memoryBytes: number
  readonly cpus: number
  readonly timings: VmTimings
  /** Resolves once QEMU is gone and its folder is cleared; never rejects. */
  readonly exited: Promise<VmExit>
  /** The last of QEMU's stderr. */
  stderrTail(): string
  /** Ends the VM at once (its disk has no name and nothing to save) and destroys both ports. Harmless twice. */
  stop(): Promise<VmExit>
}

export class VmLife {
  readonly #plan: VmCommand
  readonly #qemu: QemuProcess
  readonly qmp: Qmp
  readonly #pid: number
  readonly root: PrivilegedPort
  readonly exited: Promise<VmExit>
  #stopping = false
  #shutdown: string | undefined

  constructor(plan: VmCommand, qemu: QemuProcess, qmp: Qmp, pid: number) {
    this.#plan = plan
    this.#qemu = qemu
    this.qmp = qmp
    this.#pid = pid
    const [root] = qemu.ports
    if (!root) throw new TypeError('a VM has three ports')
    this.root = new PrivilegedPort(root)
    qmp.onEvent(({ name, data }) => {
      if (name === 'SHUTDOWN' && typeof data.reason === 'string') this.#shutdown = data.reason
    })
    this.exited = this.#watchEnd()
  }

  toVm(timings: VmTimings, fresh: Promise<void>): Vm {
    const [, rpc, http] = this.#qemu.ports
    if (!rpc || !http) throw new TypeError('a VM has three ports')
    const stop = () => this.#stop()
    return {
      id: this.#plan.folder.id,
      pid: this.#pid,
      plan: this.#plan,
      process: this.#qemu,
      rpc,
      http,
      root: this.root,
      fresh,
      qmp: this.qmp,
      console: this.#qemu.console,
      accelerator: this.#plan.qemu.accelerator,
      confinement: this.#plan.confinement,
      memoryBytes: this.#plan.qemu.memoryBytes,
      cpus: this.#plan.qemu.cpus,
      timings,
      exited: this.exited,
      stderrTail: this.#qemu.stderrTail,
      stop,
      [Symbol.asyncDispose]: async () => {
        await stop()
      },
    }
  }

  async #stop(): Promise<VmExit> {
    this.#stopping = true
    this.#qemu.kill()
    const exit = await this.exited
    this.#qemu.destroyStreams()
    return exit
  }

  async #watchEnd(): Promise<VmExit> {
    const { code, signal } = await this.#qemu.exited
    // The last words of monitor, console and stderr may still be in their pipes.
    await sleep(LAST_WORDS_MS)
    this.qmp.close()
    await this.#plan.folder.remove().catch(() => {})
    const detail = this.#shutdown
    return {
      reason: this.#stopping ? 'stopped' : endReason(detail, code, signal),
      code,
      signal,
      ...(detail === undefined ? {} : { detail }),
      ...tails(this.#qemu),
    }
  }
}

function endReason(detail: string | undefined, code: number | null, signal: string | null): VmExit['reason'] {
  if (detail?.startsWith('guest-')) return 'guest-ended'
  if (detail === 'host-signal' || signal === 'SIGKILL' || signal === 'SIGTERM') return 'killed'
  return detail !== undefined && code === 0 ? 'stopped' : 'failed'
}
