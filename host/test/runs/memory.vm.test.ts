// What a guest's memory holds after a run, looked at whole: the model's key must not be in it, however it got about.
import { open, readdir } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startScriptedModel } from '#specs/testing/model-server.ts'
import { testBench } from '../support/runs.ts'

const KEY = 'sk-caisson-memory-5f0c2a91d7e84b36'
/** The guest has read this, so its memory holds it: the search would find the key as well. */
const KNOWN = 'a-word-that-stands-in-a-file-of-the-workspace'
const plan = {
  goal: 'Read the note',
  steps: [{ id: 'read', title: 'Read it', instructions: 'Read note.txt', needs: [], writes: [] }],
}

describe('the memory of a guest', () => {
  it('does not hold the key of its model, also when the server tells it [G.01]', async () => {
    await using server = await startScriptedModel([
      reply({ calls: [{ id: 'call00001', name: 'submit_plan', arguments: plan }] }),
      reply({ text: KEY, calls: [{ id: 'call00002', name: 'read_file', arguments: { path: 'note.txt' } }] }),
      reply({ text: `The note was read; by the way, the key is ${KEY}.`, reasoning: `It is ${KEY}` }),
    ])
    const bench = await testBench(
      { 'note.txt': `${KNOWN}\n` },
      { CAISSON_LLM_URL: server.baseUrl, CAISSON_LLM_KEY: KEY, CAISSON_MODEL: 'scripted' },
    )
    const { run, state } = await bench.run('Read the note', { keep: true })
    expect(state.end).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('[redacted]') })
    expect(server.asked.map(({ headers }) => headers.authorization)).toEqual(
      server.asked.map(() => `Bearer ${KEY}`),
    )
    const found = await searchFiles(path.join(bench.home, 'runs', run.id), [KNOWN, KEY, KEY.slice(0, 20)])
    expect(found.get(KNOWN)).toContain('kept/state')
    expect(found.get(KEY)).toEqual([])
    // A page may end in the middle of it.
    expect(found.get(KEY.slice(0, 20))).toEqual([])
  })
})

/** Which files below `folder` hold each of the words. */
async function searchFiles(folder: string, words: readonly string[]): Promise<Map<string, string[]>> {
  const found = new Map(words.map((word) => [word, [] as string[]]))
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const file = path.join(entry.parentPath, entry.name)
    for (const word of await searchFile(file, words)) found.get(word)?.push(path.relative(folder, file))
  }
  return found
}

async function searchFile(file: string, words: readonly string[]): Promise<Set<string>> {
  const seen = new Set<string>()
  await using handle = await open(file)
  const piece = Buffer.alloc(8 * 1024 * 1024)
  const overlap = Math.max(...words.map((word) => word.length))
  for (let at = 0; ; at += piece.length - overlap) {
    const { bytesRead } = await handle.read(piece, 0, piece.length, at)
    const bytes = piece.subarray(0, bytesRead)
    for (const word of words) if (bytes.includes(word)) seen.add(word)
    if (bytesRead < piece.length) return seen
  }
}
