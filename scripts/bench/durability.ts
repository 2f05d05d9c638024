/**
 * What a run costs so that nothing of it is lost: checkpoints of its disk, a VM over a checkpoint, the journal's fold, and
 * a run that continues in another VM.
 * `npm run bench:durability -- [--json] [--quick] [--only PART,PART]`; the parts are the names below.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { openBench } from './bench.ts'
import { measureCheckpoints } from './checkpoints.ts'
import { printFigures } from './figures.ts'
import { measureFold } from './fold.ts'
import { parseBenchOptions, runParts } from './main.ts'
import { measureResume } from './resume.ts'

const parts = { checkpoint: measureCheckpoints, fold: measureFold, resume: measureResume }

const { only } = parseBenchOptions(parts, {})
const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
try {
  printFigures(await runParts(parts, only, await openBench(home, 1)))
} finally {
  await rm(home, { recursive: true, force: true, maxRetries: 5 })
}
