// Starts, monitors and ends one VM, and leaves nothing behind in any case. Handles pipes and processes; the protocols
// on the ports and the agent belong to other layers.

import { setTimeout as sleep } from 'node:timers/promises'
import { type BootWatch, watchBoot } from './boot-watch.ts'
import { loadState, resumeCpus } from './hibernation/saved-state.ts'
import { type QemuProcess, spawnQemu } from './qemu/qemu-process.ts'
import { Qmp, QmpError } from './qemu/qmp.ts'
import {
  describeCancelled,
  describeFailure,
  describeOutcome,
  describeSpawnFailure,
  isLaunchFailure,
  StartLimits,
} from './start-failure.ts'
import { planVm, prepareMachine, type StartState, type StartVmOptions, type VmCommand } from './vm-command.ts'
import type { VmPhase } from './vm-error.ts'
import { LAST_WORDS_MS, type Vm, VmLife, type VmTimings } from './vm-lifecycle.ts'

export type { VmDiskImage, VmImage } from './drives.ts'
export type { StartVmOptions } from './vm-command.ts'
export type { Vm, VmExit } from './vm-lifecycle.ts'

const DEFAULT_DEADLINE_MS = 90_000
/** For a running guest: a thread of its init answers. */
const RESEED_DEADLINE_MS = 20_000

/**
 * Boots a VM and returns when its init is ready; the agent may still be starting. Call it from the main thread: on
 * Linux QEMU ends with the thread that started it.
 * @throws VmError with the failed phase; nothing keeps running or is left behind
 */
export async function startVm(options: StartVmOptions, state: StartState = {}): Promise<Vm> {
  return await begin(options, state, boot)
}

/** A saved machine, and work to do before it runs. */
export interface SavedMachine {
  readonly state: StartState & { readonly stateFile: string }
  /** Whether the memory is in a separate file, outside the state. */
  readonly withoutMemory: boolean
  /** Called once everything is loaded. The guest runs only after this resolves, and never if it rejects. */
  readonly beforeRun?: () => Promise<void>
}

/** Restores a VM; returns when it runs, see {@link Vm.fresh}. @throws VmError like {@link startVm} */
export async function resumeVm(options: StartVmOptions, saved: SavedMachine): Promise<Vm> {
  return await begin(options, saved.state, (start) => resume(start, saved))
}

/** A start in progress: QEMU runs, and nothing else is known. */
interface Start {
  readonly plan: VmCommand
  readonly qemu: QemuProcess
  readonly limits: StartLimits
  readonly deadlineMs: number
  readonly watch: BootWatch
  enter(phase: VmPhase): void
}

/** Result of a start: the VM's lifecycle, and its timings. */
interface Started {
  readonly life: VmLife
  readonly timings: Partial<VmTimings>
  readonly qmpAt: number
  readonly doneAt: number
  readonly fresh: Promise<unknown>
}

type Way = (start: Start) => Promise<Started>

async function begin(options: StartVmOptions, state: StartState, way: Way): Promise<Vm> {
  const startedAt = performance.now()
  const machine = await cancellable(options, () => prepareMachine(options, false))
  try {
    return await run(await planVm(options, machine, state), options, startedAt, way)
  } catch (error) {
    if (!isLaunchFailure(error)) throw error
    // The cached facts may be outdated (for example, the kernel now forbids namespaces): test again.
    const again = await cancellable(options, () => prepareMachine(options, true))
    if (JSON.stringify(again) === JSON.stringify(machine)) throw error
    return await run(await planVm(options, again, state), options, startedAt, way)
  }
}

async function run(plan: VmCommand, options: StartVmOptions, startedAt: number, way: Way): Promise<Vm> {
  const deadlineMs = options.deadlineMs ?? DEFAULT_DEADLINE_MS
  const preparedAt = performance.now()
  const { qemu, watch } = await launch(plan)
  const limits = new StartLimits(deadlineMs, options.signal)
  const spawnedAt = performance.now()
  let phase: VmPhase = 'qmp'
  const enter = (next: VmPhase) => {
    phase = next
  }
  try {
    const { life, timings, qmpAt, fresh, doneAt } = await way({
      plan,
      qemu,
      limits,
      deadlineMs,
      watch,
      enter,
    })
    const timed = {
      prepareMs: preparedAt - startedAt,
      spawnMs: spawnedAt - preparedAt,
      qmpMs: qmpAt - spawnedAt,
      guestUptimeMs: null,
      ...timings,
      totalMs: doneAt - startedAt,
    }
    const whenFresh = fresh.then(
      () => undefined,
      async (error: unknown) => {
        qemu.kill()
        throw describeFailure(error, { phase: 'fresh', watch, qemu, exit: await qemu.exited, deadlineMs })
      },
    )
    whenFresh.catch(() => undefined)
    return life.toVm(timed, whenFresh)
  } catch (error) {
    qemu.kill()
    const exit = await qemu.exited
    // QEMU's last output may still be in the pipe.
    await sleep(LAST_WORDS_MS)
    qemu.destroyStreams()
    await plan.folder.remove()
    throw describeFailure(error, { phase, watch, qemu, exit, deadlineMs })
  } finally {
    limits.end()
  }
}

const boot: Way = async (start) => {
  const { plan, qemu, limits, watch, enter } = start
  const life = await connect(start)
  const qmpAt = performance.now()
  enter('kernel')
  const outcome = await limits.race(watch.outcome)
  enter(watch.phase())
  if (outcome.kind !== 'ready') throw describeOutcome(outcome, watch.phase(), qemu)
  const readyAt = performance.now()
  enter('fresh')
  if (plan.refreshes) await limits.race(life.root.refresh({ deadlineMs: RESEED_DEADLINE_MS }))
  const doneAt = performance.now()
  const firstOutputAt = Math.max(qmpAt, watch.firstOutputAt() ?? readyAt)
  const timings = {
    kernelMs: firstOutputAt - qmpAt,
    initMs: readyAt - firstOutputAt,
    freshMs: doneAt - readyAt,
    guestUptimeMs: outcome.uptimeMs,
  }
  return { life, timings, qmpAt, doneAt, fresh: Promise.resolve() }
}

async function resume(start: Start, { withoutMemory, beforeRun }: SavedMachine): Promise<Started> {
  const { qemu, limits, deadlineMs, enter } = start
  const life = await connect(start)
  const qmpAt = performance.now()
  enter('load')
  await limits.race(loadState(life.qmp, { uri: qemu.stateUri ?? '', withoutMemory, deadlineMs }))
  if (beforeRun !== undefined) await limits.race(beforeRun())
  // The guest finds the message when it starts to run; it sends nothing before that.
  const fresh = life.root.reseed({ deadlineMs: RESEED_DEADLINE_MS })
  fresh.catch(() => undefined)
  // From here on, the guest may have run even after a failure.
  enter('fresh')
  await limits.race(resumeCpus(life.qmp))
  const doneAt = performance.now()
  const timings = { loadMs: doneAt - qmpAt }
  return { life, timings, qmpAt, doneAt, fresh: Promise.race([fresh, failAtExit(qemu)]) }
}

async function connect({ plan, qemu, limits, deadlineMs }: Start): Promise<VmLife> {
  const qmp = await limits.race(Promise.race([Qmp.connect(qemu.qmp, deadlineMs), failAtExit(qemu)]))
  return new VmLife(plan, qemu, qmp, await qemu.findPid())
}

async function launch(plan: VmCommand): Promise<Pick<Start, 'qemu' | 'watch'>> {
  try {
    const qemu = spawnQemu(plan.qemu)
    // On a busy host the guest may be ready before the files below are closed.
    return { qemu, watch: watchBoot(qemu, plan.readyMarker) }
  } catch (cause) {
    // Without free descriptors or processes, Node throws; other failures arrive as an event.
    await plan.folder.remove()
    throw describeSpawnFailure(cause)
  } finally {
    await plan.closeFiles()
  }
}

/** Rejects when QEMU or its launcher ends; a stream may stay open then. */
async function failAtExit(qemu: QemuProcess): Promise<never> {
  await qemu.exited
  throw new QmpError('closed', 'QMP: QEMU ended')
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
