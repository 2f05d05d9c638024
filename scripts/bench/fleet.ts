/**
 * A fleet on a real PostgreSQL: runs without work on 1 to 8 host processes beside bare pg-boss, lines as rows beside a file
 * that is flushed, and appends with and without a notice.
 * `npm run bench:fleet -- [--json] [--quick] [--only PART,PART]`; the parts are the names below.
 */
import { printFigures } from './figures.ts'
import { measureAppends, measureNotices } from './fleet-journal.ts'
import { startServer } from './fleet-place.ts'
import { measureRuns } from './fleet-runs.ts'
import { parseBenchOptions, runParts } from './main.ts'

const parts = { runs: measureRuns, appends: measureAppends, notices: measureNotices }

const { only } = parseBenchOptions(parts, {})
await using server = await startServer()
printFigures(await runParts(parts, only, server))
