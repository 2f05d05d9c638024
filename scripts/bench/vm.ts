/**
 * Benchmarks of the VM and the start of the command line, all from one run on one machine, so that ratios are meaningful
 * where times are not.
 * `npm run bench:vm -- [--json] [--quick] [--starts N] [--only PART,PART]`; the parts are the names below.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type Figures, openBench } from './bench.ts'
import { measureCli } from './cli.ts'
import { type Figure, printFigures, repeats, round } from './figures.ts'
import { parseBenchOptions, runParts } from './main.ts'
import { measureRoundTrips } from './round-trips.ts'
import { measureSleep } from './sleep.ts'
import { measureCold, measureMany, measureWarm } from './starts.ts'
import { measureTask } from './task.ts'
import { measureWorkspace } from './workspace.ts'

const parts = {
  cli: measureCli,
  cold: measureCold,
  warm: measureWarm,
  many: measureMany,
  task: measureTask,
  sleep: measureSleep,
  ping: measureRoundTrips,
  workspace: measureWorkspace,
}

const { only, starts } = parseBenchOptions(parts, {
  starts: { type: 'string', default: String(repeats(10)) },
})

const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
try {
  const bench = await openBench(home, checkStarts(starts))
  const figures = await runParts(parts, only, bench)
  printFigures({ ...figures, ...coldToWarm(figures) })
} finally {
  await rm(home, { recursive: true, force: true })
}

function checkStarts(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1)
    throw new Error(`--starts takes a whole number from 1, not ${text}`)
  return count
}

/** How much faster a warm VM is ready than a cold one, if both were measured. */
function coldToWarm({ coldStartMs, warmStartMs }: Readonly<Record<string, unknown>>): Figures {
  if (coldStartMs === undefined || warmStartMs === undefined) return {}
  return { coldToWarm: round((coldStartMs as Figure).p50 / (warmStartMs as Figure).p50) }
}
