// The planner alone, with a scripted model behind the real client.
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { makePlan } from '../../plan/planner.ts'
import { repairPlan } from '../../plan/repair.ts'
import { makeRun, modelAt } from '../support/run.ts'
import { planReply } from '../support/scripted-model.ts'

const step = (id: string, fields: object = {}) => ({
  id,
  title: `do ${id}`,
  instructions: `please do ${id}`,
  ...fields,
})
const goodPlan = { goal: 'done', steps: [step('look'), step('act', { needs: ['look'] })] }

async function plan(...replies: ServerReply[]) {
  await using server = await startModelServer(replies)
  const test = makeRun({ model: modelAt(server.baseUrl), task: { context: { owner: 'Ada' } } })
  const planned = await makePlan(test.run, test.run.signal)
  return { planned, asked: server.asked, ...test }
}

describe('makePlan', () => {
  it('makes an ordered plan of several steps out of a task [S0.01] [S0.03]', async () => {
    const { planned, events } = await plan(planReply(goodPlan))
    expect(planned.ok && planned.value.plan.steps.map(({ id, needs }) => [id, needs])).toEqual([
      ['look', []],
      ['act', ['look']],
    ])
    expect(planned.ok && planned.value.corrections).toEqual([])
    expect(events).toMatchObject([{ type: 'turn-end', stepId: 'plan', turn: 1 }])
  })

  it('tells the model task, context, workspace and tools, and offers submit_plan alone [S0.05]', async () => {
    const { asked } = await plan(planReply(goodPlan))
    const [system, user] = asked[0]?.messages ?? []
    expect(system?.content).toMatch(/^You are Caisson's planner\.\n/)
    expect(system?.content).toContain('- read_note: Reads a note.')
    expect(user?.content).toBe(
      '# Task\n<task>\ncount the files\n</task>\n\n# Context\n<context name="owner">\nAda\n</context>\n\n# Workspace\n<workspace>\na.csv (12 bytes)\n</workspace>',
    )
    expect(asked[0]?.tools.map((tool) => tool.function.name)).toEqual(['submit_plan'])
  })

  it.each([
    ['a fenced block', `Here you are:\n\`\`\`json\n${JSON.stringify(goodPlan)}\n\`\`\``],
    ['plain JSON', JSON.stringify(goodPlan)],
    ['prose around it', `My plan is ${JSON.stringify(goodPlan)} as asked.`],
    [
      'a call written as text',
      `<TOOLCALL>[${JSON.stringify({ name: 'submit_plan', arguments: goodPlan })}]</TOOLCALL>`,
    ],
  ])('takes a plan as text in %s [S0.02] [G.07]', async (_name, text) => {
    const { planned, asked } = await plan(reply({ text }))
    expect(planned.ok && planned.value.plan.steps).toHaveLength(2)
    expect(asked).toHaveLength(1)
  })

  it('repairs what is certain, and records it [S0.02]', async () => {
    const loose = {
      plan: {
        goal: 'g',
        reasoning: 'because',
        steps: [
          { id: 'Look Around', description: 'look', dependsOn: null },
          {
            id: 2,
            title: 'act',
            instructions: 'act',
            depends_on: ['Look Around'],
            onFailure: 'Abort',
            writes: 'a.md',
          },
          { id: 2, title: 'act again', instructions: 'again', needs: 'look-around' },
        ],
      },
    }
    const { planned } = await plan(planReply(loose))
    expect(planned.ok && planned.value.plan.steps).toEqual([
      {
        id: 'look-around',
        title: 'look',
        instructions: 'look',
        needs: [],
        writes: ['*'],
        onFailure: 'abort',
      },
      {
        id: '2',
        title: 'act',
        instructions: 'act',
        needs: ['look-around'],
        writes: ['a.md'],
        onFailure: 'abort',
      },
      {
        id: '2-2',
        title: 'act again',
        instructions: 'again',
        needs: ['look-around'],
        writes: ['*'],
        onFailure: 'abort',
      },
    ])
    expect(planned.ok && planned.value.corrections.join('\n')).toContain('plan.reasoning: unknown, left out')
  })

  it('does not decide which of two equal ids a step needs [S0.02]', () => {
    const repaired = repairPlan({ goal: 'g', steps: [step('a'), step('a'), step('b', { needs: ['a'] })] })
    expect(JSON.stringify(repaired.value)).toContain('a (used twice)')
  })

  it('asks again with the validation errors, in a valid history [S0.02]', async () => {
    const cyclic = { goal: 'g', steps: [step('a', { needs: ['b'] }), step('b', { needs: ['a'] })] }
    const { planned, asked } = await plan(planReply(cyclic), reply({ text: 'I cannot' }), planReply(goodPlan))
    expect(planned.ok).toBe(true)
    const [, , assistant, tool] = asked[1]?.messages ?? []
    expect(tool?.tool_call_id).toBe(assistant?.tool_calls?.[0]?.id)
    expect(tool?.content).toContain('step "a" waits for itself')
    expect(asked[2]?.messages.map(({ role }) => role)).toEqual([
      'system',
      'user',
      'assistant',
      'tool',
      'assistant',
      'user',
    ])
    expect(asked[2]?.messages.slice(0, 4)).toEqual(asked[1]?.messages)
  })

  it('answers every call of an invalid plan before it asks again [S0.02]', async () => {
    const twice = reply({
      calls: [
        { name: 'submit_plan', arguments: { goal: 'g', steps: [] } },
        { name: 'submit_plan', arguments: {} },
      ],
    })
    const { planned, asked } = await plan(twice, planReply(goodPlan))
    expect(planned.ok).toBe(true)
    const [, , assistant, ...results] = asked[1]?.messages ?? []
    expect(results.map((message) => message.tool_call_id)).toEqual(assistant?.tool_calls?.map(({ id }) => id))
    expect(results).toHaveLength(2)
  })

  it.each([
    ['empty answers', reply({ text: '' })],
    ['prose', reply({ text: 'I will think about it.' })],
    ['another tool', reply({ calls: [{ name: 'read_note', arguments: { path: 'x' } }] })],
    ['no steps', planReply({ goal: 'g', steps: [] })],
    [
      'a cut plan',
      reply({
        calls: [{ name: 'submit_plan', arguments: '{"goal":"g","steps":[{"id":"a"' }],
        finishReason: 'length',
      }),
    ],
    ['prototype keys', reply({ text: '{"goal":"g","__proto__":{"steps":[]},"steps":[]}' })],
    ['too many steps', planReply({ goal: 'g', steps: Array.from({ length: 70 }, (_, n) => step(`s${n}`)) })],
    ['needs of nothing', planReply({ goal: 'g', steps: [step('a', { needs: ['zzz'] })] })],
    ['deep JSON', reply({ text: `{"goal":${'['.repeat(3_000)}${']'.repeat(3_000)}}` })],
    ['numbers for words', planReply({ goal: 1, steps: [{ id: {}, title: 2, instructions: 3 }] })],
  ])('fails as plan_invalid after three attempts at %s [S0.02]', async (_name, bad) => {
    const { planned, asked } = await plan(bad)
    expect(planned).toMatchObject({ ok: false, error: { reason: 'plan_invalid' } })
    expect(asked).toHaveLength(3)
  })

  it('ends with the reason of a model that fails [A.02]', async () => {
    const refused = await plan({ status: 401, body: '{"title":"Unauthorized"}' })
    expect(refused.planned).toMatchObject({ ok: false, error: { reason: 'model_refused' } })
    expect(refused.asked).toHaveLength(1)
    const gone = await plan({ status: 503, body: '' })
    expect(gone.planned).toMatchObject({ ok: false, error: { reason: 'model_unreachable' } })
    expect(gone.asked.length).toBeGreaterThan(1)
  })

  it('asks again after a failure that passes, and says so [G.05]', async () => {
    const broken = { body: 'data: {"choices":[]}\n\n' }
    const { planned, events } = await plan({ status: 503, body: '' }, broken, planReply(goodPlan))
    expect(planned.ok).toBe(true)
    expect(events.map(({ type }) => type)).toEqual(['turn-retry', 'turn-retry', 'turn-end'])
  })
})
