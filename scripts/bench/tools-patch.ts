/**
 * Duration of a patch over 100 files through the registry, compared with 100 calls of `edit_file` and with the floor:
 * reading, writing and renaming as many files.
 */

import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLogger } from '../../agent/link/logger.ts'
import { type InvokeContext, invokeTool } from '../../agent/tool-calls/call.ts'
import { createRegistry, type Registry } from '../../agent/tool-calls/registry.ts'
import { toolFailure } from '../../agent/tool-calls/tool.ts'
import { createFileTools } from '../../agent/tools/file-tools.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'

const fileCount = 100
const samples = repeats(15)
const warmUpSamples = repeats(3)

let conversations = 0
const quiet: InvokeContext = {
  signal: new AbortController().signal,
  askTools: new Set(),
  onStart: () => Promise.resolve(),
  requestApproval: () => Promise.resolve({ decision: 'deny' }),
  emitOutput: () => undefined,
}

export async function measurePatch(): Promise<Figures> {
  reportProgress(`a patch over ${fileCount} files, ${fileCount} edits, and their floor`)
  const root = await mkdtemp(join(tmpdir(), 'caisson-bench-'))
  try {
    // No search is performed.
    const tools = createFileTools(() => Promise.resolve(toolFailure('unavailable', 'no sandbox')), { root })
    const registry = createRegistry(tools, { logger: createLogger(() => undefined) })
    const found = { patch: [] as number[], edits: [] as number[], floor: [] as number[] }
    for (let count = -warmUpSamples; count < samples; count++) {
      const patch = await timed(root, (context) =>
        callTool(registry, 'apply_patch', { patch: patchText() }, context),
      )
      const edits = await timed(root, (context) => editAll(registry, context))
      const floor = await timed(root, () => writeAll(root))
      if (count < 0) continue
      found.patch.push(patch)
      found.edits.push(edits)
      found.floor.push(floor)
    }
    const patch100Ms = figureOf(found.patch)
    const patchFloorMs = figureOf(found.floor)
    return {
      patch100Ms,
      edit100Ms: figureOf(found.edits),
      patchFloorMs,
      patchOverFloor: round(patch100Ms.p50 / patchFloorMs.p50),
    }
  } finally {
    await rm(root, { recursive: true })
  }
}

/** Milliseconds of `work` over fresh files, by a conversation that has read none. */
async function timed(root: string, work: (context: InvokeContext) => Promise<void>): Promise<number> {
  const context = { ...quiet, stepId: `s${conversations++}` }
  for (let at = 0; at < fileCount; at++) await writeFile(join(root, nameOf(at)), contentOf(at))
  const before = performance.now()
  await work(context)
  return performance.now() - before
}

async function callTool(
  registry: Registry,
  name: string,
  input: object,
  context: InvokeContext,
): Promise<void> {
  const { error } = await invokeTool(
    registry,
    { id: 'c', name, argumentsText: JSON.stringify(input) },
    context,
  )
  if (error !== undefined) throw new Error(`expected ${name} to succeed, and it said: ${error.message}`)
}

async function editAll(registry: Registry, context: InvokeContext): Promise<void> {
  for (let at = 0; at < fileCount; at++) {
    await callTool(
      registry,
      'edit_file',
      { path: nameOf(at), oldText: oldLine(at), newText: newLine(at) },
      context,
    )
  }
}

/** The same result with system calls alone. */
async function writeAll(root: string): Promise<void> {
  for (let at = 0; at < fileCount; at++) {
    const path = join(root, nameOf(at))
    const text = readFileSync(path, 'utf8')
    writeFileSync(`${path}.new`, text.replace(oldLine(at), newLine(at)))
    renameSync(`${path}.new`, path)
  }
}

function patchText(): string {
  const files = Array.from({ length: fileCount }, (_, at) => [
    `--- a/${nameOf(at)}`,
    `+++ b/${nameOf(at)}`,
    '@@ -100,3 +100,3 @@',
    ` ${plainLine(at, 99)}`,
    `-${oldLine(at)}`,
    `+${newLine(at)}`,
    ` ${plainLine(at, 101)}`,
  ])
  return `${files.flat().join('\n')}\n`
}

/** 200 lines. */
function contentOf(at: number): string {
  const lines = Array.from({ length: 200 }, (_, line) => (line === 100 ? oldLine(at) : plainLine(at, line)))
  return `${lines.join('\n')}\n`
}

function plainLine(at: number, line: number): string {
  return `const value${line} = compute(${at}, ${line})`
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
