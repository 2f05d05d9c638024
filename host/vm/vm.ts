// One running VM: starts it, says how it went, ends it, and leaves nothing behind whichever way it ends.
// It knows pipes and processes; what is spoken on the ports, and whether the agent answers, is for the layer above.

import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { watchBoot } from './boot-watch.ts'
import type { Confinement } from './launcher.ts'
import type { Accelerator } from './qemu-args.ts'
import { type QemuProcess, spawnQemu } from './qemu-process.ts'
import { Qmp, QmpError } from './qmp.ts'
import {
  describeCancelled,
  describeFailure,
  describeOutcome,
  describeSpawnFailure,
  isLaunchFailure,
  StartLimits,
  tails,
} from './start-failure.ts'
import type { VmConsole } from './vm-console.ts'
import type { VmPhase } from './vm-error.ts'
import { planVm, prepareMachine, type StartVmOptions, type VmPlan } from './vm-plan.ts'

export type { StartVmOptions, VmDiskImage, VmImage } from './vm-plan.ts'

const DEFAULT_DEADLINE_MS = 90_000
/** After QEMU's end, for what it had already written to monitor, console and stderr. */
const LAST_WORDS_MS = 20

/** How long each phase of a start took, in milliseconds. */
export interface VmTimings {
  /** Options, image, machine and folder checked, drives open. */
  readonly prepareMs: number
  /** Until the process was spawned. */
  readonly spawnMs: number
  /** Until QEMU's monitor answered. */
  readonly qmpMs: number
  /** Until the guest's first output. */
  readonly kernelMs: number
  /** Until init said that it is ready. */
  readonly initMs: number
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
  readonly qmp: Qmp
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

/**
 * Boots a VM and returns when its init is ready; the agent may still be starting.
 * Call it from the main thread: on Linux QEMU ends with the thread that started it.
 * @throws VmError with the phase that failed; nothing is left running or lying about then
 */
export async function startVm(options: StartVmOptions): Promise<Vm> {
  const startedAt = performance.now()
  const machine = await cancellable(options, () => prepareMachine(options, false))
  try {
    return await boot(await planVm(options, machine), options, startedAt)
  } catch (error) {
    if (!isLaunchFailure(error)) throw error
    // What was remembered of this machine may be outdated (a kernel setting forbids namespaces now): look again.
    const again = await cancellable(options, () => prepareMachine(options, true))
    if (JSON.stringify(again) === JSON.stringify(machine)) throw error
    return await boot(await planVm(options, again), options, startedAt)
  }
}

async function boot(plan: VmPlan, options: StartVmOptions, startedAt: number): Promise<Vm> {
  const deadlineMs = options.deadlineMs ?? DEFAULT_DEADLINE_MS
  const preparedAt = performance.now()
  const qemu = await launch(plan)
  const watch = watchBoot(qemu, plan.readyMarker)
  const limits = new StartLimits(deadlineMs, options.signal)
  const spawnedAt = performance.now()
  let phase: VmPhase = 'qmp'
  try {
    const qmp = await limits.race(Promise.race([Qmp.connect(qemu.qmp, deadlineMs), failAtExit(qemu)]))
    const life = new VmLife(plan, qemu, qmp, await qemu.findPid())
    const qmpAt = performance.now()
    phase = 'kernel'
    const outcome = await limits.race(watch.outcome)
    phase = watch.phase()
    if (outcome.kind !== 'ready') throw describeOutcome(outcome, phase, qemu)
    const readyAt = performance.now()
    const firstOutputAt = Math.max(qmpAt, watch.firstOutputAt() ?? readyAt)
    return life.toVm({
      prepareMs: preparedAt - startedAt,
      spawnMs: spawnedAt - preparedAt,
      qmpMs: qmpAt - spawnedAt,
      kernelMs: firstOutputAt - qmpAt,
      initMs: readyAt - firstOutputAt,
      totalMs: readyAt - startedAt,
      guestUptimeMs: outcome.uptimeMs,
    })
  } catch (error) {
    qemu.kill()
    const exit = await qemu.exited
    // What QEMU last said may still be in the pipe.
    await sleep(LAST_WORDS_MS)
    qemu.destroyStreams()
    await plan.folder.remove()
    throw describeFailure(error, { phase, watch, qemu, exit, deadlineMs })
  } finally {
    limits.end()
  }
}

async function launch(plan: VmPlan): Promise<QemuProcess> {
  try {
    return spawnQemu(plan.qemu)
  } catch (cause) {
    // Out of descriptors or processes: Node throws then, where other failures come as an event.
    await plan.folder.remove()
    throw describeSpawnFailure(cause)
  } finally {
    await plan.closeDrives()
  }
}

/** Rejects when QEMU, or what stands in front of it, ends; a stream may stay open then. */
async function failAtExit(qemu: QemuProcess): Promise<never> {
  await qemu.exited
  throw new QmpError('closed', 'QMP: QEMU ended')
}

/** The VM from the monitor's first answer to the end of its folder. */
class VmLife {
  readonly #plan: VmPlan
  readonly #qemu: QemuProcess
  readonly #qmp: Qmp
  readonly #pid: number
  readonly exited: Promise<VmExit>
  #stopping = false
  #shutdown: string | undefined

  constructor(plan: VmPlan, qemu: QemuProcess, qmp: Qmp, pid: number) {
    this.#plan = plan
    this.#qemu = qemu
    this.#qmp = qmp
    this.#pid = pid
    qmp.onEvent(({ name, data }) => {
      if (name === 'SHUTDOWN' && typeof data.reason === 'string') this.#shutdown = data.reason
    })
    this.exited = this.#watchEnd()
  }

  toVm(timings: VmTimings): Vm {
    const [rpc, http] = this.#qemu.ports
    if (!rpc || !http) throw new TypeError('a VM has two ports')
    const stop = () => this.#stop()
    return {
      id: this.#plan.folder.id,
      pid: this.#pid,
      rpc,
      http,
      qmp: this.#qmp,
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
    this.#qmp.close()
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

async function cancellable<T>(options: StartVmOptions, work: () => Promise<T>): Promise<T> {
  try {
    options.signal?.throwIfAborted()
    return await work()
  } catch (error) {
    if (!options.signal?.aborted) throw error
    throw describeCancelled('prepare')
  }
}
