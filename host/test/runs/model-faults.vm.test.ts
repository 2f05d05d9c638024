import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { delta, done, reply, toolDelta } from '#specs/testing/model-replies.ts'
import { type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { testBench } from '../support/runs.ts'

const plan = {
  goal: 'Note it',
  steps: [{ id: 'note', title: 'Note it', instructions: 'Note it once', needs: [], writes: ['log.txt'] }],
}
const command = 'echo once >>log.txt'
const planned = reply({ calls: [{ name: 'submit_plan', arguments: plan }] })
const call = { index: 0, id: 'a', function: { name: 'run_bash', arguments: JSON.stringify({ command }) } }
/** The call is whole, the answer is not. */
const brokenOff: ServerReply = { body: toolDelta(call), after: 'reset' }
/** The answer is whole, the call is not. */
const cutOff: ServerReply = {
  body: `${toolDelta({ ...call, function: { name: 'run_bash', arguments: '{"command":"echo on' } })}${delta({}, 'tool_calls')}${done}`,
}

it('ends a run well with a server that breaks off, cuts arguments and only answers whole, each call once [G.05] [G.07]', async () => {
  await using server = await startModelServer([
    { body: (planned.body as string).slice(0, 200) },
    planned,
    cutOff,
    cutOff,
    reply({ calls: [{ name: 'run_bash', arguments: { command } }] }),
    brokenOff,
    reply({ text: 'It was noted.' }),
  ])
  const env = { CAISSON_LLM_URL: server.baseUrl, CAISSON_MODEL: 'scripted' }
  const bench = await testBench({}, env)
  const { run, state, events } = await bench.run('Note it in log.txt')
  expect(state.end).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('noted') })
  expect(server.asked.map(({ body }) => body.stream)).toEqual([true, true, true, true, false, false, false])
  expect(events.filter(({ type }) => type === 'tool-start')).toHaveLength(1)
  expect(events.filter(({ type }) => type === 'model-end')).toHaveLength(7)
  const changes = await bench.host.changes(run.id)
  expect((await changes.review()).map(({ path: file }) => file)).toEqual(['log.txt'])
  await changes.apply('all')
  expect(await readFile(path.join(bench.workspace, 'log.txt'), 'utf8')).toBe('once\n')
}, 180_000)
