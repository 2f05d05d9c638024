/**
 * Figures of the VM, all from one run on one machine, so that ratios mean something where times do not.
 * `npm run bench:vm -- --json [--starts N] [--only PART,PART]`; the parts are the names below.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { type Bench, type Figures, openBench } from './bench.ts'
import { measureCold } from './cold.ts'
import { type Figure, printFigures, round } from './figures.ts'
import { measureMany } from './many.ts'
import { measureRoundTrips } from './round-trips.ts'
import { measureSleep } from './sleep.ts'
import { measureTask } from './task.ts'
import { measureWarm } from './warm.ts'
import { measureWorkspace } from './workspace.ts'

const parts: Readonly<Record<string, (bench: Bench) => Promise<Figures>>> = {
  cold: measureCold,
  warm: measureWarm,
  many: measureMany,
  task: measureTask,
  sleep: measureSleep,
  ping: measureRoundTrips,
  workspace: measureWorkspace,
}

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    starts: { type: 'string', default: '10' },
    only: { type: 'string', default: Object.keys(parts).join(',') },
  },
})

const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
try {
  const bench = await openBench(home, checkStarts(values.starts))
  const figures: Record<string, unknown> = {}
  for (const name of values.only.split(',')) Object.assign(figures, await findPart(name)(bench))
  printFigures({ ...figures, ...coldToWarm(figures) })
} finally {
  await rm(home, { recursive: true, force: true })
}

function findPart(name: string): (bench: Bench) => Promise<Figures> {
  const part = Object.hasOwn(parts, name) ? parts[name] : undefined
  if (part === undefined)
    throw new Error(`--only takes names of ${Object.keys(parts).join(', ')}; "${name}" is none of them`)
  return part
}

function checkStarts(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1)
    throw new Error(`--starts takes a whole number from 1, not ${text}`)
  return count
}

/** How many times sooner a warm VM serves than a cold one, where both were measured. */
function coldToWarm({ coldStartMs, warmStartMs }: Readonly<Record<string, unknown>>): Figures {
  if (coldStartMs === undefined || warmStartMs === undefined) return {}
  return { coldToWarm: round((coldStartMs as Figure).p50 / (warmStartMs as Figure).p50) }
}
