/**
 * Figures of the model's client and of the way through the gateway, all from one run, so that ratios mean something where
 * times do not. `npm run bench:llm -- [--json] [--quick] [--only PART,PART]`; the parts are the names below.
 */

import { printFigures } from './figures.ts'
import { measureClient } from './llm-client.ts'
import { measureGateway } from './llm-gateway.ts'
import { parseBenchOptions, runParts } from './main.ts'

const parts = { client: measureClient, gateway: measureGateway }

const { only } = parseBenchOptions(parts, {})
printFigures(await runParts(parts, only, undefined))
