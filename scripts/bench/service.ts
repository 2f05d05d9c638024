/**
 * The HTTP service: a run's start beside a bare ping in a VM of the same pool, an event's way to 1,000 clients beside a bare
 * Fastify, the memory of clients that do not read, and requests beside those to a bare Fastify.
 * `npm run bench:service -- [--json] [--quick] [--only PART,PART]`; the parts are the names below.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { openBench } from './bench.ts'
import { printFigures } from './figures.ts'
import { parseBenchOptions, runParts } from './main.ts'
import { measureLoad } from './service-load.ts'
import { measureServiceStart } from './service-start.ts'
import { measureSlowReaders, measureStreams } from './service-streams.ts'

const parts = {
  start: measureServiceStart,
  streams: measureStreams,
  slow: measureSlowReaders,
  load: measureLoad,
}

const { only } = parseBenchOptions(parts, {})
const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
try {
  printFigures(await runParts(parts, only, await openBench(home, 1)))
} finally {
  await rm(home, { recursive: true, force: true, maxRetries: 5 })
}
