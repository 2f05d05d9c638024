/** A whole run in a warm process: from `host.start` to the first plan, on a workspace of 100 files, with the offline model. */

import { rm } from 'node:fs/promises'
import path from 'node:path'
import { Host } from '../../host/host.ts'
import { offlineModel } from '../../host/providers/providers.ts'
import type { Bench, Figures } from './bench.ts'
import { figureOf, repeats, reportProgress } from './figures.ts'
import { makeFolder } from './workspace.ts'

const RUNS = repeats(10)

export async function measureTask(bench: Bench): Promise<Figures> {
  const host = new Host({ env: { ...process.env, CAISSON_HOME: bench.folders.home } })
  const workspace = path.join(bench.work, 'task')
  await makeFolder(workspace)
  // After one run the process is warm and the template exists.
  await timeTask(host, workspace)
  const times: number[] = []
  for (let index = 0; index < RUNS; index += 1) {
    reportProgress(`run ${index + 1} of ${RUNS}`)
    times.push(await timeTask(host, workspace))
  }
  await rm(workspace, { recursive: true })
  return { taskStartMs: figureOf(times) }
}

async function timeTask(host: Host, workspace: string): Promise<number> {
  const startedAt = performance.now()
  const run = await host.run({ prompt: 'Run the command `true`', workspace, model: offlineModel })
  let plannedMs = Number.NaN
  for await (const item of run.watch()) {
    if (item.source !== 'delta' && item.event.type === 'plan-update' && Number.isNaN(plannedMs))
      plannedMs = performance.now() - startedAt
  }
  const { end } = await run.ended
  if (end?.outcome !== 'completed') throw new Error(`the run ${end?.outcome}: ${end?.message}`)
  return plannedMs
}
