// The final answer of a run with an output schema, with a scripted model behind the real client.
import { describe, expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import type { Task } from '#specs/protocol/task.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { planAndExecute } from '../../run-task.ts'
import { makeRun, modelAt } from '../support/run.ts'
import { stepOf } from '../support/scripted-model.ts'

const outputSchema = {
  type: 'object',
  properties: { total: { type: 'integer' }, names: { type: 'array', items: { type: 'string' } } },
  required: ['total'],
}
const fitting = '{"total":3,"names":["b","a"]}'

async function work(script: (asked: Asked, index: number) => ServerReply, task: Partial<Task> = {}) {
  await using server = await startModelServer(script)
  const test = makeRun({ model: modelAt(server.baseUrl), task: { outputSchema, ...task } })
  const ending = await planAndExecute(test.run)
  test.run.budget.stop()
  return { ending, asked: server.asked, ...test }
}

const isFormed = ({ body }: Asked) => body.response_format !== undefined
const lastOf = ({ messages }: Asked) => messages.at(-1)?.content ?? ''

describe('the final answer of a run with an output schema', () => {
  it('is the answer of the only step when that fits, and the schema is in every request [A.12]', async () => {
    const { ending, asked } = await work((_, index) =>
      reply(index === 0 ? { calls: [{ name: 'read_note', arguments: { path: 'a' } }] } : { text: fitting }),
    )
    expect(ending).toMatchObject({ outcome: 'completed', summary: fitting })
    expect(asked).toHaveLength(2)
    for (const { messages } of asked)
      expect(messages[1]?.content).toContain(`<schema>\n${JSON.stringify(outputSchema)}\n</schema>`)
  })

  it('may be the first answer of the model, even where it looks like a plan [A.12]', async () => {
    const schema = { type: 'object', properties: { steps: { type: 'array' } }, required: ['steps'] }
    const { ending, asked } = await work(() => reply({ text: '```json\n{"steps": []}\n```' }), {
      outputSchema: schema,
    })
    expect(ending).toMatchObject({ outcome: 'completed', summary: '{"steps":[]}' })
    expect(asked).toHaveLength(1)
  })

  it('is requested in the form of the schema, in the same conversation, until it fits [A.12]', async () => {
    const replies = ['There are three.', '{"total":"many"}', fitting]
    const { ending, asked, events } = await work((_, index) => reply({ text: replies[index] ?? '' }))
    expect(ending).toMatchObject({ outcome: 'completed', reason: 'completed', summary: fitting })
    expect(asked.map(isFormed)).toEqual([false, true, true])
    expect(asked[1]?.messages.some(({ content }) => content === 'There are three.')).toBe(true)
    expect(lastOf(asked[2] as Asked)).toContain('total')
    const turns = events.flatMap((event) => (event.type === 'turn-end' ? [event.stepId] : []))
    expect(turns.slice(-2)).toEqual(['answer', 'answer'])
  })

  it('is made of what all last steps answered [A.12]', async () => {
    const step = (id: string) => ({ id, title: id, instructions: `do ${id}`, writes: [] })
    const plan = Plan.parse({ goal: 'g', steps: [step('a'), step('b')] })
    const { ending, asked } = await work(
      (each) => reply({ text: isFormed(each) ? fitting : `found by ${stepOf(each)}` }),
      { plan },
    )
    expect(ending).toMatchObject({ outcome: 'completed', summary: fitting })
    const last = asked.at(-1) as Asked
    expect(last.messages[1]?.content).toContain('<result step="a">\nfound by a\n</result>')
    expect(last.messages[1]?.content).toContain('<result step="b">\nfound by b\n</result>')
  })

  it('fails the run after a bounded number of requests, with the mismatch and the text [A.12]', async () => {
    const { ending, asked } = await work((_, index) =>
      reply({ text: index === 0 ? 'There are three.' : '{"names":[1]}' }),
    )
    expect(ending).toMatchObject({
      outcome: 'failed',
      reason: 'answer_invalid',
      summary: 'There are three.',
      message: expect.stringMatching(/does not fit the output schema: .*total/),
    })
    expect(asked).toHaveLength(4)
  })

  it('says why a model declines, and fails as the model where that fails [A.12]', async () => {
    const declined = await work((_, index) =>
      reply({ text: index === 0 ? 'no' : 'STEP FAILED: I only speak prose.' }),
    )
    expect(declined.ending.message).toMatch(/output schema: I only speak prose\.$/)
    const broken = await work((_, index) =>
      index === 0 ? reply({ text: 'no' }) : { status: 401, body: '{"error":{"message":"bad key"}}' },
    )
    expect(broken.ending).toMatchObject({ outcome: 'failed', reason: 'model_refused', summary: 'no' })
  })

  it('is text where the run has no schema, and a failed run is asked for none [A.12]', async () => {
    await using server = await startModelServer(() => reply({ text: 'STEP FAILED: no file' }))
    const { run } = makeRun({ model: modelAt(server.baseUrl), task: { outputSchema } })
    expect(await planAndExecute(run)).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    run.budget.stop()
    expect(server.asked).toHaveLength(1)
  })
})
