/**
 * Figures of the model's client and of the way through the gateway, all from one run, so that ratios mean something where
 * times do not. `npm run bench:llm -- --json [--only PART,PART]`; the parts are the names below.
 */

import { parseArgs } from 'node:util'
import type { Figures } from './bench.ts'
import { printFigures } from './figures.ts'
import { measureClient } from './llm-client.ts'
import { measureGateway } from './llm-gateway.ts'

const parts: Readonly<Record<string, () => Promise<Figures>>> = {
  client: measureClient,
  gateway: measureGateway,
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
