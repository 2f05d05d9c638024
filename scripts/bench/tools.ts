/**
 * Figures of the agent's tools, without a VM: edits, the index over a workspace, servers of tools.
 * `npm run bench:tools -- --json [--only PART,PART]`; the parts are the names below.
 */

import { parseArgs } from 'node:util'
import type { Figures } from './bench.ts'
import { printFigures } from './figures.ts'
import { measureIndex } from './tools-index.ts'
import { measureMcp } from './tools-mcp.ts'
import { measurePatch } from './tools-patch.ts'

const parts: Readonly<Record<string, () => Promise<Figures>>> = {
  patch: measurePatch,
  index: measureIndex,
  mcp: measureMcp,
}

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    only: { type: 'string', default: Object.keys(parts).join(',') },
  },
})

const figures: Record<string, unknown> = {}
for (const name of values.only.split(',')) {
  const part = Object.hasOwn(parts, name) ? parts[name] : undefined
  if (part === undefined)
    throw new Error(`--only takes names of ${Object.keys(parts).join(', ')}; "${name}" is none of them`)
  Object.assign(figures, await part())
}
printFigures(figures)
