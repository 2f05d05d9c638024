import path from 'node:path'

/** File of the command line: its source, or the bundle that `scripts/test` makes of it, which starts in half the time. */
export const cliProgram = process.env.CAISSON_TEST_CLI ?? path.join(import.meta.dirname, '../../cli/bin.ts')
