/** What the agent's bundle takes to be loaded and to begin to serve, in a fresh process on this machine. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { execa } from 'execa'
import { bundleAgent } from '../../host/image/agent-bundle.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'

const samples = repeats(15)
const entry = path.resolve(import.meta.dirname, '../../agent/main.ts')

/** Loaded before the agent; speaks when the agent's own first turn of the event loop is over. */
const probe = `const before = performance.now()
const cpu = process.cpuUsage()
setImmediate(() => {
  const { user, system } = process.cpuUsage(cpu)
  const ms = performance.now() - before
  process.stdout.write(JSON.stringify({ ms, cpuMs: (user + system) / 1000, rss: process.memoryUsage().rss }))
  process.exit(0)
})
`

interface Found {
  readonly ms: number
  /** Hardly changed by what else the machine does. */
  readonly cpuMs: number
  readonly rss: number
}

export async function measureImport(): Promise<Figures> {
  reportProgress('the import of the bundle')
  const folder = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
  try {
    const bundle = await bundleAgent(entry)
    for (const [name, content] of bundle) await writeFile(path.join(folder, name), content)
    await writeFile(path.join(folder, 'probe.cjs'), probe)
    const found: Found[] = []
    for (let count = -1; count < samples; count++) {
      const { stdout } = await execa(process.execPath, ['-r', './probe.cjs', 'agent.cjs'], {
        cwd: folder,
        timeout: 30_000,
      })
      if (count >= 0) found.push(JSON.parse(stdout) as Found)
    }
    return {
      importMs: figureOf(found.map(({ ms }) => ms)),
      importCpuMs: figureOf(found.map(({ cpuMs }) => cpuMs)),
      rssMiB: figureOf(found.map(({ rss }) => rss / 2 ** 20)),
      bundleKiB: round((bundle.get('main.js')?.length ?? 0) / 1024),
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
