// One VM from its monitor's first answer to the removal of its folder.

import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { Checkpoints } from './checkpoints/checkpoints.ts'
import type { Confinement } from './qemu/launcher.ts'
import type { Accelerator } from './qemu/qemu-args.ts'
import type { QemuProcess } from './qemu/qemu-process.ts'
import type { Qmp } from './qemu/qmp.ts'
import type { VmConsole } from './qemu/vm-console.ts'
import { PrivilegedPort } from './reseed.ts'
import { tails } from './start-failure.ts'
import type { VmCommand } from './vm-command.ts'

/** Time after QEMU's end to read what it wrote to monitor, console and stderr. */
export const LAST_WORDS_MS = 20

/** Duration of each phase of a start in milliseconds; phases that did not occur are absent. */
export interface VmTimings {
  /** Check of options, image, machine and folder; opening of files. */
  readonly prepareMs: number
  /** Spawn of the process. */
  readonly spawnMs: number
  /** Until QEMU's monitor answered. */
  readonly qmpMs: number
  /** Boot: until the guest's first output. */
  readonly kernelMs?: number
  /** Boot: until init was ready. */
  readonly initMs?: number
  /** Restore: until the saved state was loaded and the guest's CPUs ran. */
  readonly loadMs?: number
  /** Boot: until the guest had random bytes and the host's time. */
  readonly freshMs?: number
  /** From a pool, where the other phases were already over: until it was handed out. */
  readonly poolMs?: number
  /** Sum of all phases. */
  readonly totalMs: number
  /** Uptime reported by the guest in milliseconds; null if it reported none. */
  readonly guestUptimeMs: number | null
}

export interface VmExit {
  /**
   * `stopped` by {@link Vm.stop} or over the monitor; `guest-ended` when the guest powered off, rebooted or panicked;
   * `killed` by another process's signal; `failed` otherwise.
   */
  readonly reason: 'stopped' | 'guest-ended' | 'killed' | 'failed'
  readonly code: number | null
  readonly signal: string | null
  /** QEMU's reason of an orderly end, such as `guest-reset`; absent if none. */
  readonly detail?: string
  readonly stderrTail: string
  /** Untrusted guest text. */
  readonly consoleTail: string
}

export interface Vm extends AsyncDisposable {
  readonly id: string
  /** QEMU's process id. */
  readonly pid: number
  /** The host's ends of the two ports; they end with QEMU. */
  readonly rpc: Duplex
  readonly http: Duplex
  /** Port of the guest's privileged service, for entropy and time. */
  readonly root: PrivilegedPort
  /**
   * Resolves once the guest has random bytes and the host's time. A restored VM is returned earlier, so that its agent
   * can wake up meanwhile; until then, send no request that uses randomness or a clock. Rejects with a VmError; the VM
   * is then ended.
   */
  readonly fresh: Promise<void>
  readonly qmp: Qmp
  /** Of its scratch disk; absent without {@link DriveOptions.checkpointDisk}. */
  readonly checkpoints?: Checkpoints
  /** Its start command and process, for saving it. */
  readonly plan: VmCommand
  readonly process: QemuProcess
  readonly console: VmConsole
  readonly accelerator: Accelerator
  readonly confinement: Confinement
  readonly memoryBytes: number
  readonly cpus: number
  readonly timings: VmTimings
  /** Resolves once QEMU is gone and its folder is removed; never rejects. */
  readonly exited: Promise<VmExit>
  /** Last output of QEMU on stderr. */
  stderrTail(): string
  /** Ends the VM immediately (its disk is unlinked and needs no sync) and destroys both ports. Idempotent. */
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
    const { checkpoints } = this.#plan
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
      ...(checkpoints === undefined
        ? {}
        : { checkpoints: new Checkpoints(this.qmp, this.root, checkpoints.disk, checkpoints.prepared) }),
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
    // The last output of monitor, console and stderr may still be in the pipes.
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
