/** What a command that does nothing takes, beside Node alone: both start in turn. */

import path from 'node:path'
import { execa } from 'execa'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'

const samples = repeats(15)
const bin = path.resolve(import.meta.dirname, '../../host/cli/bin.ts')

export async function measureCli(): Promise<Figures> {
  reportProgress('the start of the command line')
  const [nodeMs, helpMs]: [number[], number[]] = [[], []]
  // The first one fills the cache of compiled code.
  for (let count = -1; count < samples; count++) {
    const [node, help] = [
      await startNode('-e', '0'),
      await startNode('--conditions=caisson-source', bin, '--help'),
    ]
    if (count < 0) continue
    nodeMs.push(node)
    helpMs.push(help)
  }
  const [node, help] = [figureOf(nodeMs), figureOf(helpMs)]
  return { nodeStartMs: node, cliHelpMs: help, cliHelpToNode: round(help.p50 / node.p50) }
}

async function startNode(...args: string[]): Promise<number> {
  const before = performance.now()
  await execa(process.execPath, args, { timeout: 30_000 })
  return performance.now() - before
}
