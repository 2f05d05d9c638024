// What a guest's memory holds after a run, looked at whole: the model's key must not be in it, however it got about.
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { testBench } from '../support/runs.ts'
import { searchFiles } from '../support/search-files.ts'

const KEY = 'sk-caisson-memory-5f0c2a91d7e84b36'
/** The guest has read this, so its memory holds it: the search would find the key as well. */
const KNOWN = 'a-word-that-stands-in-a-file-of-the-workspace'
const plan = {
  goal: 'Read the note',
  steps: [{ id: 'read', title: 'Read it', instructions: 'Read note.txt', needs: [], writes: [] }],
}

describe('the memory of a guest', () => {
  it('does not hold the key of its model, also when the server tells it [G.01]', async () => {
    await using server = await startModelServer([
      reply({ calls: [{ id: 'call00001', name: 'submit_plan', arguments: plan }] }),
      reply({ text: KEY, calls: [{ id: 'call00002', name: 'read_file', arguments: { path: 'note.txt' } }] }),
      reply({ text: `The note was read; by the way, the key is ${KEY}.`, reasoning: `It is ${KEY}` }),
    ])
    const bench = await testBench(
      { 'note.txt': `${KNOWN}\n` },
      { CAISSON_LLM_URL: server.baseUrl, CAISSON_LLM_KEY: KEY, CAISSON_MODEL: 'scripted' },
    )
    const { run, state } = await bench.run('Read the note', { vm: { keep: true } })
    expect(state.end).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('[redacted]') })
    expect(server.asked.map(({ headers }) => headers.authorization)).toEqual(
      server.asked.map(() => `Bearer ${KEY}`),
    )
    const found = await searchFiles(path.join(bench.home, 'runs', run.id), [KNOWN, KEY, KEY.slice(0, 20)])
    expect(found.get(KNOWN)).toContain('kept/memory')
    expect(found.get(KEY)).toEqual([])
    // A page may end in the middle of it.
    expect(found.get(KEY.slice(0, 20))).toEqual([])
  })
})
