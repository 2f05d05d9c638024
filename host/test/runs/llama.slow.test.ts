import { readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { llamaKey, llamaModel, useLlamaServer } from '../../../test/support/llama-server.ts'
import { findVms, testBench } from '../support/runs.ts'

const startServer = useLlamaServer()

function settings(url: string, key: string): Record<string, string> {
  return { CAISSON_LLM_URL: url, CAISSON_LLM_KEY: key, CAISSON_MODEL: llamaModel }
}

describe('a run whose model is a real server', () => {
  it('plans, calls tools and answers by what the server streams, and its key stays outside [S0.06 S1.01 G.01]', async (context) => {
    await using server = await startServer(context)
    const bench = await testBench({ 'a.txt': 'a\n' }, settings(server.url, llamaKey))
    // A plan that a person approves is requested by itself.
    const { run, events, state } = await bench.run('Greet me', {
      plan: { approve: true },
      approvals: { mode: 'all' },
    })
    expect(state.end).toMatchObject({
      outcome: 'completed',
      reason: 'completed',
      summary: 'The tool answered, so this step is finished.',
    })
    expect(state.plan).toMatchObject({
      goal: 'A greeting stands in hello.txt',
      steps: [
        { id: 'look', needs: [] },
        { id: 'greet', needs: ['look'], writes: ['hello.txt'] },
      ],
    })
    const calls = events.flatMap((event) => (event.type === 'tool-start' ? [event] : []))
    expect(calls.map(({ stepId, tool }) => [stepId, tool])).toEqual([
      ['look', 'run_bash'],
      ['greet', 'write_file'],
    ])
    const listing = events.find((event) => event.type === 'tool-end' && event.tool === 'run_bash')
    expect(listing).toMatchObject({ output: expect.stringMatching(/a\.txt[\s\S]*x86_64/) })

    const exchanges = events.flatMap((event) => (event.type === 'model-end' ? [event] : []))
    const turns = events.flatMap((event) => (event.type === 'turn-end' ? [event] : []))
    // One request for the plan, two for each step.
    expect(exchanges.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    for (const { usage, estimated } of exchanges) {
      expect(estimated).toBe(false)
      expect(usage.inputTokens).toBeGreaterThan(0)
      expect(usage.outputTokens).toBeGreaterThan(0)
    }
    // The agent has its numbers from the server's stream alone, so they are the server's, not the gateway's estimate.
    const counted = exchanges.map(({ usage: { cachedTokens: _, ...usage } }) => usage)
    expect(counted).toEqual(turns.map(({ usage }) => usage))
    // Only the host reads what the server had cached: nothing at the first request, the prompt at the later ones.
    expect(exchanges[0]?.usage.cachedTokens).toBe(0)
    expect(exchanges.at(-1)?.usage.cachedTokens).toBeGreaterThan(0)

    const changes = await bench.host.changes(run.id)
    expect((await changes.review()).map((item) => [item.path, item.change])).toEqual([['hello.txt', 'added']])
    await changes.apply('all')
    expect(await readFile(path.join(bench.workspace, 'hello.txt'), 'utf8')).toBe('Hello, été!\nline "two"\n')
    expect(await filesHolding(llamaKey, bench.home)).toEqual([])
    expect(await findVms(bench.home)).toEqual([])
  })

  it('ends as refused when the key is wrong, names the setting, and tells the key to nobody [G.01]', async (context) => {
    await using server = await startServer(context)
    const wrong = 'not-the-key-of-this-server-0123456789'
    const bench = await testBench({ 'a.txt': 'a\n' }, settings(server.url, wrong))
    const { events, state } = await bench.run('Greet me')
    expect(state.end).toMatchObject({
      outcome: 'failed',
      reason: 'model_refused',
      message: expect.stringContaining('CAISSON_LLM_KEY'),
    })
    expect(events.filter(({ type }) => type === 'model-end')).toHaveLength(1)
    expect(await filesHolding(wrong, bench.home)).toEqual([])
  })

  it('ends as unreachable when no server answers, and names the address [S1.03]', async (context) => {
    const server = await startServer(context)
    await server[Symbol.asyncDispose]()
    const bench = await testBench({ 'a.txt': 'a\n' }, settings(server.url, llamaKey))
    const { state } = await bench.run('Greet me')
    expect(state.end).toMatchObject({
      outcome: 'failed',
      reason: 'model_unreachable',
      message: expect.stringContaining(new URL(server.url).origin),
    })
    expect(await filesHolding(llamaKey, bench.home)).toEqual([])
  })
})

/** Files below `folder` that hold `text`; at least one file of a run is looked through. */
async function filesHolding(text: string, folder: string): Promise<string[]> {
  const found: string[] = []
  const looked: string[] = []
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const full = path.join(entry.parentPath, entry.name)
    looked.push(entry.name)
    // The base of a disk is sparse, larger than a buffer, and older than the run; what the run wrote is in the layers.
    if ((await stat(full)).size >= 2 ** 31) continue
    if ((await readFile(full)).includes(text)) found.push(path.relative(folder, full))
  }
  expect(looked).toContain('journal.jsonl')
  expect(looked).toContain('agent.jsonl')
  return found
}
