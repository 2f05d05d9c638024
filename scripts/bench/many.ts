/** Sixteen warm VMs in parallel: time until all have answered, and memory of each. */

import { type Bench, type Figures, openLink, waitForAgent } from './bench.ts'
import { figureOf, repeats, reportProgress } from './figures.ts'
import { readPss } from './processes.ts'
import { obtainTemplate, resumeFrom } from './warm.ts'

const VMS = repeats(16)
const ROUNDS = repeats(5)

export async function measureMany(bench: Bench): Promise<Figures> {
  const template = await obtainTemplate(bench)
  const times: number[] = []
  const pss: number[] = []
  const privates: number[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    reportProgress(`${VMS} warm VMs at once, ${round + 1} of ${ROUNDS}`)
    await using running = new AsyncDisposableStack()
    const startedAt = performance.now()
    const pids = await Promise.all(
      Array.from({ length: VMS }, async () => {
        const vm = running.use(await resumeFrom(bench, template))
        const link = running.use(openLink(vm, { cloned: true }))
        await Promise.all([waitForAgent(link), vm.fresh])
        return vm.pid
      }),
    )
    times.push(performance.now() - startedAt)
    for (const pid of pids) {
      const memory = await readPss(pid)
      pss.push(memory.pssMiB)
      privates.push(memory.privateMiB)
    }
  }
  return {
    parallel16Ms: figureOf(times),
    pssPerWarmVmMiB: figureOf(pss),
    privatePerWarmVmMiB: figureOf(privates),
  }
}
