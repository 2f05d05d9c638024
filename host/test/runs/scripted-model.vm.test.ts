// A whole run in the VM, with the model that the library gives its users for their tests.
import { calls, createScriptedModel, text } from 'caisson/testing'
import { expect, it } from 'vitest'
import { Host } from '../../host.ts'
import { testBench } from '../support/runs.ts'

const plan = {
  goal: 'A note',
  steps: [{ id: 'note', title: 'Write a note', instructions: 'Write it', needs: [], writes: ['note.txt'] }],
}

it('carries a task out in the VM by a script, as the documents show [T.01] [S0.06] [S4.01]', async () => {
  await using model = createScriptedModel({
    rules: [
      { when: { step: 'plan' }, reply: calls({ name: 'submit_plan', arguments: plan }), times: 1 },
      {
        when: { step: 'note', turn: 0 },
        reply: calls({ name: 'write_file', arguments: { path: 'note.txt', content: 'hello' } }),
        times: 1,
      },
      { when: { step: 'note' }, reply: text('The note is written.'), times: 1 },
    ],
  })
  const providers = { scripted: { url: await model.listen(), models: ['scripted'] } }
  const bench = await testBench({})
  const host = new Host({
    env: { ...process.env, CAISSON_HOME: bench.home },
    config: { model: 'scripted', providers },
  })
  const run = await host.run({
    prompt: 'Write a note',
    context: { owner: 'Ada' },
    tools: ['write_file'],
    workspace: bench.workspace,
    approvals: { interactive: false },
  })
  const { end } = await run.ended
  expect(end).toMatchObject({ outcome: 'completed', summary: 'The note is written.' })
  model.assertDone()
  expect(model.requests.map(({ step, turn }) => [step, turn])).toEqual([
    ['plan', 0],
    ['note', 0],
    ['note', 1],
  ])
  expect(model.requests[2]?.lastResult).toContain('note.txt')
  for (const { messages } of model.requests)
    expect(JSON.stringify(messages)).toContain('<context name=\\"owner\\">\\nAda')
  expect(model.requests[1]?.tools.map(({ name }) => name)).toEqual(['write_file'])
  const changes = await host.changes(run.id)
  expect((await changes.review()).map(({ path }) => path)).toEqual(['note.txt'])
}, 180_000)
