import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { testBench } from '../support/runs.ts'

const plan = {
  goal: 'Note the size',
  steps: [{ id: 'note', title: 'Note it', instructions: 'Count and note', needs: [], writes: ['size.txt'] }],
}

it('repeats a run without its model, and fails clearly where the conversation becomes another [G.06 R.03]', async () => {
  const bench = await (async () => {
    await using server = await startModelServer([
      reply({ calls: [{ name: 'submit_plan', arguments: plan }] }),
      reply({ calls: [{ name: 'run_bash', arguments: { command: 'wc -c <data.txt | tee size.txt' } }] }),
      reply({ text: 'It was noted.' }),
    ])
    const env = { CAISSON_LLM_URL: server.baseUrl, CAISSON_LLM_KEY: 'sk-1', CAISSON_MODEL: 'scripted' }
    const made = await testBench({ 'data.txt': '12345\n' }, env)
    const first = await made.run('Note the size of data.txt')
    expect(first.state.end?.outcome).toBe('completed')
    expect(server.asked).toHaveLength(3)
    return made
  })()
  // Its server is gone: only the recording can answer.
  const again = await bench.run('Note the size of data.txt', { replay: 'last' })
  expect(again.state.end).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('noted') })
  expect(again.events[0]).toMatchObject({ type: 'run-start', provider: 'recording', model: 'scripted' })
  expect((await (await bench.host.changes(again.run.id)).review()).map(({ path: file }) => file)).toEqual([
    'size.txt',
  ])

  await writeFile(path.join(bench.workspace, 'data.txt'), '1234567890\n')
  const folder = path.join(bench.home, 'runs', again.run.id)
  const other = await bench.run('Note the size of data.txt', { replay: folder })
  expect(other.state.end).toMatchObject({
    outcome: 'failed',
    message: expect.stringMatching(
      /Not in the recording of run-\w+: the conversation left it at message \d+/,
    ),
  })
  await expect(bench.start('Anything', { replay: bench.workspace })).rejects.toThrow('cannot read')
}, 180_000)
