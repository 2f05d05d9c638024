/** Cold starts, against a bare Node in the same kernel and root. */

import { startVm } from '../../host/vm/vm.ts'
import { type Bench, type Figures, openLink, vmOptions, waitForAgent } from './bench.ts'
import { figureOf, reportProgress, round } from './figures.ts'
import { readPss } from './processes.ts'

/** Alternating, so that a noisy minute affects both. */
export async function measureCold(bench: Bench): Promise<Figures> {
  const cold: number[] = []
  const floor: number[] = []
  const pss: number[] = []
  for (let index = 0; index < bench.starts; index += 1) {
    reportProgress(`cold start ${index + 1} of ${bench.starts}`)
    floor.push(await timeFloor(bench))
    const startedAt = performance.now()
    await using vm = await startVm(vmOptions(bench))
    await using link = openLink(vm)
    await waitForAgent(link)
    cold.push(performance.now() - startedAt - vm.timings.prepareMs)
    pss.push((await readPss(vm.pid)).pssMiB)
  }
  const [coldStartMs, floorMs] = [figureOf(cold), figureOf(floor)]
  return {
    coldStartMs,
    floorMs,
    coldToFloor: round(coldStartMs.p50 / floorMs.p50),
    pssMiB: figureOf(pss),
  }
}

async function timeFloor(bench: Bench): Promise<number> {
  await using vm = await startVm({
    ...vmOptions(bench),
    guestOptions: { init: '/usr/lib/caisson/floor' },
    readyMarker: 'caisson: floor',
  })
  return vm.timings.totalMs - vm.timings.prepareMs
}
