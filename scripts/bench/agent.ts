/**
 * Figures of the agent's core: turns of the turn loop beside a floor in the same run, memory of many agents, the start of the
 * agent's bundle, the scheduling of a plan; with `--vm` also sub-agents in a VM.
 * `npm run bench:agent -- --json [--vm] [--only PART,PART]`; the parts are the names below.
 */

import { parseArgs } from 'node:util'
import { measureImport } from './agent-import.ts'
import { measurePlan } from './agent-plan.ts'
import { measureAgents, measureTurns } from './agent-turns.ts'
import { measureSubAgents } from './agent-vm.ts'
import type { Figures } from './bench.ts'
import { printFigures } from './figures.ts'

const parts: Readonly<Record<string, () => Promise<Figures>>> = {
  turns: measureTurns,
  memory: measureAgents,
  import: measureImport,
  plan: measurePlan,
}

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    vm: { type: 'boolean', default: false },
    only: { type: 'string', default: Object.keys(parts).join(',') },
  },
})

const figures: Record<string, unknown> = {}
for (const name of values.only.split(',').filter((word) => word !== '')) {
  const part = Object.hasOwn(parts, name) ? parts[name] : undefined
  if (part === undefined)
    throw new Error(`--only takes names of ${Object.keys(parts).join(', ')}; "${name}" is none of them`)
  Object.assign(figures, await part())
}
if (values.vm) Object.assign(figures, await measureSubAgents())
printFigures(figures)
