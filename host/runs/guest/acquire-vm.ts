/** Gets the VM of a run: a kept VM, a VM of the pool, a copy of a template, or a cold boot. */
import { errorMessage } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { findSavedVm, wakeVm } from '../../vm/hibernation/hibernate.ts'
import { removeSaved } from '../../vm/hibernation/saved-vm-lock.ts'
import type { WarmVm } from '../../vm/template/warm-start.ts'
import type { StartVmOptions } from '../../vm/vm.ts'
import { VmError } from '../../vm/vm-error.ts'
import { checkResources } from '../../vm/vm-options.ts'
import { acquireWarmVm, type PooledVm } from '../../vm/vm-pool.ts'
import type { ResolvedRun } from '../resolved-run.ts'
import { warmUp } from './warm-up.ts'

export interface Origin extends WarmVm {
  /** Whether the VM was restored from the state of a continued run. */
  readonly isSaved?: boolean
}

/**
 * Calls `open` with the VM while its identity is reseeded, and again with the next VM if that one fails.
 * @throws the error of the last `open`, or VmError when even a cold boot fails
 */
export async function acquireVm<T>(
  plan: ResolvedRun,
  pooled: PooledVm | undefined,
  options: StartVmOptions,
  open: (origin: Origin) => Promise<T>,
): Promise<T> {
  const kept = await openKept(plan, options, open)
  if (kept.value !== undefined) return kept.value
  const start = plan.vm.start ?? 'auto'
  const why = kept.problem === undefined ? {} : { coldReason: kept.problem }
  return await acquireWarmVm(pooled, options, { start, warmUp }, (warm) => open({ ...warm, ...why }))
}

/**
 * Journal event about how the VM started, sent when its agent answers.
 * @param agentMs time until the agent answered
 */
export function describeReady({ vm, cloned, coldReason, isSaved }: Origin, agentMs: number): HostEvent {
  const { totalMs: _, guestUptimeMs: __, ...timed } = vm.timings
  const phases = { ...timed, agentMs }
  return {
    type: 'vm-ready',
    start: isSaved === true ? 'saved' : cloned ? 'template' : 'boot',
    ...(coldReason === undefined ? {} : { coldReason: coldReason.slice(0, 2_000) }),
    accelerator: vm.accelerator,
    confinement: vm.confinement,
    phasesMs: Object.fromEntries(
      Object.entries(phases).map(([name, ms]) => [name.slice(0, -2), Math.round(ms)]),
    ),
  }
}

/** Start options of the VM for a run. */
export function vmOptions(
  { folders, vm: { start: _, hibernateAfterMs: __, disk, ...options }, image }: ResolvedRun,
  start: Pick<StartVmOptions, 'workspaceDisk' | 'signal'>,
): StartVmOptions {
  return { ...options, image: disk ?? image, folders, stopsWhenDiskFull: true, ...start }
}

/**
 * Opens the VM that the continued run kept, or returns why it cannot.
 * @throws VmError when no VM can be started now, and the signal's reason
 */
async function openKept<T>(
  { continues }: ResolvedRun,
  options: StartVmOptions,
  open: (origin: Origin) => Promise<T>,
): Promise<{ readonly value?: T; readonly problem?: string }> {
  if (continues === undefined) return {}
  const { runId, kept } = continues
  const saved = await findSavedVm(kept)
  if (saved === undefined) {
    await remove(kept)
    return { problem: `${runId} kept no VM` }
  }
  try {
    // Same check as for a new VM: this run may also keep its VM at the end.
    await checkResources(saved.record, options.folders.vms)
    const vm = await wakeVm(options, saved)
    const value = await open({ vm, cloned: false, isSaved: true })
    await remove(kept)
    return { value }
  } catch (error) {
    // No new VM can start either: keep the saved VM for a later run.
    if ((options.signal?.aborted || isPassing(error)) && (await findSavedVm(kept)) !== undefined) throw error
    // Its disk has changed, or it cannot be restored.
    await remove(kept)
    options.signal?.throwIfAborted()
    const why = errorMessage(error)
    return { problem: `the VM that ${runId} kept did not wake: ${why}`.slice(0, 2_000) }
  }
}

function isPassing(error: unknown): boolean {
  return error instanceof VmError && ['memory_short', 'disk_short'].includes(error.kind)
}

async function remove(directory: string): Promise<void> {
  await removeSaved(directory).catch(() => undefined)
}
