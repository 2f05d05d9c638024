// One VM from its monitor's first answer to the end of its folder.

import { setTimeout as sleep } from 'node:timers/promises'
import { RootPort } from './fresh.ts'
import type { QemuProcess } from './qemu-process.ts'
import type { Qmp } from './qmp.ts'
import { tails } from './start-failure.ts'
import type { Vm, VmExit, VmTimings } from './vm.ts'
import type { VmPlan } from './vm-plan.ts'

/** After QEMU's end, for what it had already written to monitor, console and stderr. */
export const LAST_WORDS_MS = 20

export class VmLife {
  readonly #plan: VmPlan
  readonly #qemu: QemuProcess
  readonly qmp: Qmp
  readonly #pid: number
  readonly root: RootPort
  readonly exited: Promise<VmExit>
  #stopping = false
  #shutdown: string | undefined

  constructor(plan: VmPlan, qemu: QemuProcess, qmp: Qmp, pid: number) {
    this.#plan = plan
    this.#qemu = qemu
    this.qmp = qmp
    this.#pid = pid
    const [root] = qemu.ports
    if (!root) throw new TypeError('a VM has three ports')
    this.root = new RootPort(root)
    qmp.onEvent(({ name, data }) => {
      if (name === 'SHUTDOWN' && typeof data.reason === 'string') this.#shutdown = data.reason
    })
    this.exited = this.#watchEnd()
  }

  toVm(timings: VmTimings): Vm {
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
