/**
 * Benchmarks of the agent's core: the turn loop compared with a floor, memory of many agents, startup of the bundle,
 * plan scheduling; turns and tokens of tasks by calls and by a program; with `--vm` also sub-agents in a VM.
 * `npm run bench:agent -- [--json] [--quick] [--vm] [--only PART,PART]`; the parts are the names below.
 */

import { measureImport } from './agent-import.ts'
import { measurePlan } from './agent-plan.ts'
import { measurePrograms } from './agent-programs.ts'
import { measureAgents, measureTurns } from './agent-turns.ts'
import { measureSubAgents } from './agent-vm.ts'
import { printFigures } from './figures.ts'
import { parseBenchOptions, runParts } from './main.ts'

const parts = {
  turns: measureTurns,
  memory: measureAgents,
  import: measureImport,
  plan: measurePlan,
  programs: measurePrograms,
}

const { only, vm } = parseBenchOptions(parts, { vm: { type: 'boolean', default: false } })
const figures = await runParts(parts, only, undefined)
if (vm) Object.assign(figures, await measureSubAgents())
printFigures(figures)
