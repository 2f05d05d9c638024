/**
 * Benchmarks of the agent's tools without a VM: edits, the workspace index, MCP servers.
 * `npm run bench:tools -- [--json] [--quick] [--only PART,PART]`; the parts are the names below.
 */

import { printFigures } from './figures.ts'
import { parseBenchOptions, runParts } from './main.ts'
import { measureIndex } from './tools-index.ts'
import { measureMcp } from './tools-mcp.ts'
import { measurePatch } from './tools-patch.ts'

const parts = { patch: measurePatch, index: measureIndex, mcp: measureMcp }

const { only } = parseBenchOptions(parts, {})
printFigures(await runParts(parts, only, undefined))
