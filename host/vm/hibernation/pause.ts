// Pauses and resumes a VM's processors: a paused VM uses no CPU time and keeps its memory. Resuming sets the guest's
// clock.

import type { Vm } from '../vm.ts'
import { pauseCpus, resumeCpus } from './saved-state.ts'

const RESEED_DEADLINE_MS = 20_000

/** Resolves when the guest's processors are paused. Idempotent. */
export async function pauseVm(vm: Vm): Promise<void> {
  await pauseCpus(vm.qmp)
}

/**
 * Resolves when the guest runs and its clock is set. Harmless for a running VM. @throws {ReseedError} when the guest
 * does not accept the time
 */
export async function unpauseVm(vm: Vm): Promise<void> {
  const timed = vm.root.reseed({ entropy: false, deadlineMs: RESEED_DEADLINE_MS })
  timed.catch(() => undefined)
  await resumeCpus(vm.qmp)
  await timed
}
