// A VM whose processors stand still: it costs no processor time, keeps its memory, and goes on in the middle of an
// instruction. Its own clock is set right when it goes on.

import type { Vm } from '../vm.ts'
import { pauseCpus, resumeCpus } from './saved-state.ts'

const REFRESH_DEADLINE_MS = 20_000

/** Resolves when the guest's processors stand still. Harmless twice. */
export async function pauseVm(vm: Vm): Promise<void> {
  await pauseCpus(vm.qmp)
}

/** Resolves when the guest runs and has the time. Harmless for one that runs. @throws {FreshError} when it does not take it */
export async function unpauseVm(vm: Vm): Promise<void> {
  const timed = vm.root.reseed({ entropy: false, deadlineMs: REFRESH_DEADLINE_MS })
  timed.catch(() => undefined)
  await resumeCpus(vm.qmp)
  await timed
}
