// Whole runs, host and agent, with servers that speak the protocols of Anthropic and Google.
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Asked, startModelServer } from '#specs/testing/model-server.ts'
import { Host } from '../../host/host.ts'
import { type InstalledMachine, installMachine } from './machine/install.ts'

const key = 'key-of-the-test-0123456789'
const content = 'written by a model\n'
const note = { path: 'note.txt', content }
let folder: string
let machine: InstalledMachine

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-kinds-'))
  machine = await installMachine(folder)
  process.env.PATH = `${machine.programs}:${process.env.PATH}`
}, 120_000)

afterAll(async () => await rm(folder, { recursive: true, force: true, maxRetries: 5 }))

const event = (value: { type: string }) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`

function anthropicAnswer(isFirst: boolean): string {
  const block = isFirst
    ? { type: 'tool_use', id: 'toolu_1', name: 'write_file', input: {} }
    : { type: 'text', text: 'I wrote note.txt.' }
  const usage = { input_tokens: 10, cache_read_input_tokens: isFirst ? 0 : 90, output_tokens: 1 }
  const start = { type: 'message_start', message: { model: 'claude-sonnet-5-5', usage } }
  const piece = { type: 'input_json_delta', partial_json: JSON.stringify(note) }
  return [
    start,
    { type: 'content_block_start', index: 0, content_block: block },
    ...(isFirst ? [{ type: 'content_block_delta', index: 0, delta: piece }] : []),
    {
      type: 'message_delta',
      delta: { stop_reason: isFirst ? 'tool_use' : 'end_turn' },
      usage: { output_tokens: 20 },
    },
    { type: 'message_stop' },
  ]
    .map(event)
    .join('')
}

function geminiAnswer(isFirst: boolean): string {
  const part = isFirst
    ? { functionCall: { name: 'write_file', args: note }, thoughtSignature: 'c2lnbmF0dXJl' }
    : { text: 'I wrote note.txt.' }
  const usageMetadata = { promptTokenCount: 100, cachedContentTokenCount: 90, candidatesTokenCount: 20 }
  const candidates = [{ content: { role: 'model', parts: [part] }, finishReason: 'STOP' }]
  return `data: ${JSON.stringify({ candidates, usageMetadata, modelVersion: 'gemini-3.8-flash' })}\n\n`
}

const kinds = [
  {
    kind: 'anthropic',
    model: 'claude-sonnet-5-5',
    answer: anthropicAnswer,
    isFirst: ({ text }: Asked) => !text.includes('"tool_result"'),
  },
  {
    kind: 'google',
    model: 'gemini-3.8-flash',
    answer: geminiAnswer,
    isFirst: ({ text }: Asked) => !text.includes('"functionResponse"'),
  },
] as const

describe('a run', () => {
  it.each(kinds)(
    'is done by a model of $kind, whose key stays on the host [S3.06] [G.01]',
    async ({ kind, model, answer, isFirst }) => {
      await using server = await startModelServer((asked) => ({ body: answer(isFirst(asked)) }))
      const place = path.join(folder, kind)
      const workspace = path.join(place, 'work')
      await mkdir(workspace, { recursive: true })
      const url = server.baseUrl.replace(/\/v1$/, '')
      await using host = new Host({
        env: {
          ...process.env,
          CAISSON_HOME: path.join(place, 'home'),
          CAISSON_CACHE: machine.cache,
          TEST_KEY: key,
        },
        config: { providers: { own: { kind, url, key: { env: 'TEST_KEY' }, models: [model] } } },
      })
      const run = await host.run({
        prompt: 'Write note.txt.',
        model,
        workspace,
        vm: { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold' },
        onNotes: () => undefined,
      })
      expect(await run.result()).toMatchObject({ outcome: 'completed' })
      await (await host.changes(run.id)).apply('all')
      expect(await readFile(path.join(workspace, 'note.txt'), 'utf8')).toBe(content)
      const events = await host.runs.read(run.id)
      const ends = events.map(({ event: one }) => one).filter(({ type }) => type === 'model-end')
      expect(ends.length).toBeGreaterThan(1)
      expect(ends.at(-1)).toMatchObject({ status: 200, estimated: false, usage: { cachedTokens: 90 } })
      expect(JSON.stringify(events)).not.toContain(key)
      if (kind === 'google') expect(server.asked.at(-1)?.text).toContain('c2lnbmF0dXJl')
      else expect(server.asked[0]?.text).toContain('"cache_control"')
    },
  )
})
