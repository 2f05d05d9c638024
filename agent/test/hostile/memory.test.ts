// What hostile runs leave behind in memory, measured in a process of their own.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

const run = promisify(execFile)
const probe = path.join(import.meta.dirname, 'memory-probe.ts')
const flags = ['--conditions=caisson-source', '--expose-gc', '--no-warnings']

describe('the memory of an agent', () => {
  it.each(['endless text', 'endless arguments', 'endless line', 'results of 50 MiB'])(
    'stays bounded through runs of %s, and comes back after them [T.02]',
    async (kind) => {
      const { stdout } = await run(process.execPath, [...flags, probe, kind], { timeout: 90_000 })
      const { keptBytes, peakBytes } = JSON.parse(stdout) as { keptBytes: number; peakBytes: number }
      expect(keptBytes).toBeLessThan(16 << 20)
      // The process holds model, test kit and agent: several copies of one answer or result, not one of each run.
      expect(peakBytes).toBeLessThan(768 << 20)
    },
    100_000,
  )
})
