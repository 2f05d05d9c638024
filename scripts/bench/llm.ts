/**
 * Benchmarks of the model client and the gateway, all from one run, so that ratios are meaningful where times are
 * not. `npm run bench:llm -- [--json] [--quick] [--only PART,PART]`; the parts are the names below.
 */

import { printFigures } from './figures.ts'
import { measureClient } from './llm-client.ts'
import { measureGateway } from './llm-gateway.ts'
import { parseBenchOptions, runParts } from './main.ts'

const parts = { client: measureClient, gateway: measureGateway }

const { only } = parseBenchOptions(parts, {})
printFigures(await runParts(parts, only, undefined))
