/**
 * Carries out one kind of hostile run again and again, in a process of its own, and prints what memory it has kept. Run as
 * `node --expose-gc memory-probe.ts KIND`; prints `{ "keptBytes", "peakBytes" }`.
 */
import * as z from 'zod'
import { delta, toolDelta } from '#specs/testing/model-replies.ts'
import { defineTool, toolSuccess } from '../../tool-calls/tool.ts'
import { answer, call, runTask, type WorldOptions, working } from './world.ts'

const giveMuch = defineTool({
  name: 'give_much',
  description: 'Gives much.',
  inputSchema: z.strictObject({ number: z.int() }),
  outputSchema: z.string(),
  requiresApproval: false,
  readOnly: true,
  execute: ({ number }) =>
    Promise.resolve(toolSuccess(`${number} ${'line of text\n'.repeat((50 << 20) / 13)}`)),
  render: (text) => text,
})

const endless = (chunk: string): Parameters<typeof runTask>[0] =>
  working({ body: Buffer.alloc(24 << 20, chunk), after: 'hang' })

const kinds: Record<string, { script: Parameters<typeof runTask>[0]; options?: WorldOptions }> = {
  'endless text': { script: endless(delta({ content: 'all work and no play '.repeat(50) })) },
  'endless arguments': {
    script: endless(toolDelta({ index: 0, id: 'c', function: { name: 'a', arguments: 'x'.repeat(1_000) } })),
  },
  'endless line': { script: endless('x') },
  'results of 50 MiB': {
    script: working(...[1, 2, 3, 4, 5].map((number) => call('give_much', { number })), answer('done')),
    options: { tools: [giveMuch] },
  },
}

const chosen = kinds[process.argv[2] ?? '']
if (chosen === undefined || globalThis.gc === undefined)
  throw new Error(`usage: node --expose-gc memory-probe.ts ${Object.keys(kinds).join('|')}`)

/** What is held when nothing is under way. */
async function heldBytes(): Promise<number> {
  for (let round = 0; round < 3; round++) {
    await new Promise((resolve) => setTimeout(resolve, 20))
    globalThis.gc?.()
  }
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

await runTask(chosen.script, { ...chosen.options, deadlineMs: 60_000 })
const before = await heldBytes()
const rounds = 4
for (let round = 0; round < rounds; round++)
  await runTask(chosen.script, { ...chosen.options, deadlineMs: 60_000 })
const keptBytes = (await heldBytes()) - before
console.log(JSON.stringify({ keptBytes, peakBytes: process.resourceUsage().maxRSS * 1024 }))
