// A whole run against a server with requirements of its own: what it does not take, when it wants a pause, and what it costs.
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace, runArguments } from '../support/cli.ts'

const plan = {
  goal: 'Read the note',
  steps: [{ id: 'read', title: 'Read it', instructions: 'Read note.txt', needs: [], writes: [] }],
}

describe('a run by a server with requirements of its own', () => {
  it('continues behind pauses and refused fields, and ends when its money is spent [G.05]', async () => {
    const usage = { prompt_tokens: 10_000, completion_tokens: 100 }
    let answered = 0
    await using server = await startModelServer(({ body }, index) => {
      if (index === 0) return failure(429, 'slow down', 'openai', { 'retry-after': '1' })
      if ('stream_options' in body) return failure(400, 'Extra inputs are not permitted', 'problem')
      answered += 1
      const call =
        answered === 1
          ? { id: 'call00001', name: 'submit_plan', arguments: plan }
          : { id: `call0000${answered}`, name: 'read_file', arguments: { path: 'note.txt' } }
      // This server counts though it takes no field that asks for it.
      const { uncounted: _, ...counted } = reply({ calls: [call], usage })
      return counted
    })
    const config = await temporaryFolder('config')
    await mkdir(path.join(config, 'caisson'))
    await writeFile(
      path.join(config, 'caisson/config.toml'),
      `model = "priced/model"
[providers.local]
url = "${server.baseUrl}"
[prices."priced/*"]
input = 1.0
output = 10.0
[limits]
maxCostUsd = 0.05`,
    )
    const place = await cliPlace({ 'note.txt': 'a note\n' }, { XDG_CONFIG_HOME: config })
    const end = await place.run(...runArguments(place, 'Read the note', '--no-apply'))
    const events = (await place.journal()).map(({ event }) => event)
    const exchanges = events.filter((event) => event.type === 'model-end')
    const paid = exchanges.filter(({ status }) => status === 200)
    expect(paid.length).toBeGreaterThanOrEqual(2)
    for (const { costUsd } of paid) expect(costUsd).toBeCloseTo(0.011)
    expect(exchanges[0]?.queuedMs).toBeGreaterThanOrEqual(900)
    // The last was asked for a conclusion alone: another turn and this one would have cost too much.
    expect(paid).toHaveLength(4)
    expect(server.asked.at(-1)?.body).toMatchObject({ tool_choice: 'none' })
    expect(events.at(-1)).toMatchObject({ type: 'run-end', outcome: 'failed', reason: 'limit_cost' })
    expect(paid.length * 0.011).toBeLessThanOrEqual(0.05)
    expect(end.code).toBe(1)
    expect(`${end.stdout}${end.stderr}`).toMatch(/\$0\.0[234]/)
    // Refused once, then known: in this run and for the next.
    expect(server.asked.filter(({ body }) => 'stream_options' in body)).toHaveLength(2)
    const known = JSON.parse(await readFile(path.join(place.home, 'models.json'), 'utf8'))
    expect(known.models).toMatchObject([
      { server: server.baseUrl, model: 'priced/model', said: { refusedFields: ['stream_options'] } },
    ])
  })
})
