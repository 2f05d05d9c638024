/** What an edit of each of 100 files takes, through the registry as a model's calls come. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createEditFile } from '../../agent/tools/file-write.ts'
import { createRegistry, type InvokeContext } from '../../agent/tools/registry.ts'
import { createLogger } from '../../agent/utils/logger.ts'
import type { Figures } from './bench.ts'
import { figureOf, tell } from './figures.ts'

const fileCount = 100
const samples = 20
const warmUpSamples = 3

const context: InvokeContext = {
  signal: new AbortController().signal,
  askTools: new Set(),
  onStart: () => Promise.resolve(),
  requestApproval: () => Promise.resolve({ decision: 'deny' }),
  emitOutput: () => undefined,
}

export async function measurePatch(): Promise<Figures> {
  tell(`${fileCount} files edited one by one`)
  const root = await mkdtemp(join(tmpdir(), 'caisson-bench-'))
  try {
    const registry = createRegistry([createEditFile({ root })], { logger: createLogger(() => undefined) })
    const single: number[] = []
    for (let count = -warmUpSamples; count < samples; count++) {
      await writeFiles(root)
      const before = performance.now()
      for (let at = 0; at < fileCount; at++) {
        const argumentsText = JSON.stringify({ path: nameOf(at), oldText: oldLine(at), newText: newLine(at) })
        const { error } = await registry.invoke(
          { callId: `c${at}`, name: 'edit_file', argumentsText },
          context,
        )
        if (error !== undefined) throw new Error(`expected the edit to succeed, and: ${error.message}`)
      }
      if (count >= 0) single.push(performance.now() - before)
    }
    return { edit100Ms: figureOf(single) }
  } finally {
    await rm(root, { recursive: true })
  }
}

/** 200 lines each. */
async function writeFiles(root: string): Promise<void> {
  for (let at = 0; at < fileCount; at++) {
    const lines = Array.from({ length: 200 }, (_, line) => `const value${line} = compute(${at}, ${line})`)
    lines[100] = oldLine(at)
    await writeFile(join(root, nameOf(at)), `${lines.join('\n')}\n`)
  }
}

function nameOf(at: number): string {
  return `file-${at}.ts`
}

function oldLine(at: number): string {
  return `export const name = 'old ${at}'`
}

function newLine(at: number): string {
  return `export const name = 'new ${at}'`
}
