// Which model a step of a plan and a sub-agent use, out of those that the host allows.
import { describe, expect, it } from 'vitest'
import type { StepModel } from '#specs/protocol/run-models.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, startModelServer } from '#specs/testing/model-server.ts'
import { findPlanProblems, parsePlan } from '../../plan/parse-plan.ts'
import { byBrief, makeAgents } from '../support/agents.ts'
import { modelAt } from '../support/run.ts'
import { isPlanning, planReply, stepOf } from '../support/scripted-model.ts'
import { runWhole, type WholeRunOptions } from '../support/whole-run.ts'

const stepModels: StepModel[] = [
  { name: 'fast', id: 'qwen3-coder', price: { input: 1, output: 1 } },
  { name: 'strong', id: 'claude-opus', contextTokens: 50_000 },
]
const step = (id: string, fields: object = {}) => ({
  id,
  title: id,
  instructions: `do ${id}`,
  needs: [],
  writes: [],
  ...fields,
})
const plan = (...steps: object[]) => ({ goal: 'g', steps })

async function ask(steps: object[], task: NonNullable<WholeRunOptions['task']> = {}) {
  return await runWhole(
    (_, one) => (isPlanning(one) ? planReply(plan(...steps)) : reply({ text: `did ${stepOf(one)}` })),
    { task },
  )
}

const modelsOf = (asked: readonly Asked[]) => asked.map((one) => [stepOf(one) ?? 'plan', one.body.model])
const system = (asked: readonly Asked[]): string => asked[0]?.messages[0]?.content ?? ''

describe('a step', () => {
  it('asks for the model that its plan names, and another for that of the run [S3.06 G.05]', async () => {
    const steps = [
      step('plain'),
      step('easy', { needs: ['plain'], model: 'fast' }),
      step('hard', { needs: ['easy'], model: 'strong', effort: 'high' }),
    ]
    const { asked, completion } = await ask(steps, { stepModels, effort: 'low' })
    expect(completion.outcome).toBe('completed')
    const [own] = asked.map(({ body }) => body.model)
    expect(modelsOf(asked)).toEqual([
      ['plan', own],
      ['plain', own],
      ['easy', 'fast'],
      ['hard', 'strong'],
    ])
    expect(asked.map(({ body }) => body.reasoning_effort)).toEqual(['low', 'low', 'low', 'high'])
    expect(system(asked)).toContain('# Models of the steps\n')
    expect(system(asked)).toContain('- fast: qwen3-coder\n- strong: claude-opus')
  })

  it('gets back a plan with a model that the run does not have, with those that it has [S3.06 G.05]', async () => {
    let isFirst = true
    const { asked } = await runWhole(
      (_, one) => {
        if (!isPlanning(one)) return reply({ text: 'done' })
        const named = isFirst ? 'gpt-9' : 'fast'
        isFirst = false
        return planReply(plan(step('easy', { model: named })))
      },
      { task: { stepModels } },
    )
    expect(asked[1]?.messages.at(-1)?.content).toContain(
      'steps.0.model: the run has no model "gpt-9": use fast, strong, or leave it out',
    )
  })

  it('has no such choice, and the model hears of none, where the run has one model [S3.06]', async () => {
    const { asked, completion, events } = await ask([step('easy', { model: 'fast' })])
    expect(completion.outcome).toBe('completed')
    expect(asked.map(({ body }) => body.model)).toEqual([asked[0]?.body.model, asked[0]?.body.model])
    expect(system(asked)).not.toContain('Models of the steps')
    expect(asked[0]?.text).not.toContain('"model":{')
    expect(events.find(({ type }) => type === 'plan-update')).not.toHaveProperty('plan.steps.0.model')
  })
})

describe('the name of a model', () => {
  const bounds = { tools: [], agents: { maxAgents: 0, begun: 0 }, models: ['fast', 'strong'] }

  it.each([
    ['another name', 'other'],
    ['of a prototype', '__proto__'],
    ['of its constructor', 'constructor'],
    ['of its method', 'toString'],
    ['far too long', 'a'.repeat(10_000)],
    ['empty', ''],
    ['with a space', 'fast '],
    ['with a hidden character', '\u202efast'],
    ['a number', 7],
    ['an object', {}],
  ])('is refused in a plan where the host does not allow it: %s [S3.06]', async (_what, model) => {
    const read = await parsePlan(plan(step('one', { model })), bounds)
    expect(read).toMatchObject({ ok: false, error: expect.stringMatching(/^(plan\.)?steps\.0\.model: /) })
    if (!read.ok) expect(read.error.length).toBeLessThan(500)
  })

  it('is checked in a plan that a person changed [S3.06]', async () => {
    const read = await parsePlan(plan(step('one', { model: 'fast' })), bounds)
    if (!read.ok) throw new Error(read.error)
    expect(await findPlanProblems(read.value.plan, bounds)).toEqual([])
    expect(await findPlanProblems(read.value.plan, { ...bounds, models: ['strong'] })).toEqual([
      'steps.0.model: the run has no model "fast": use strong, or leave it out for the model of the run',
    ])
  })
})

describe('a sub-agent', () => {
  it('has the model of its request, else that of its parent, and the journal says it [S3.06 G.05]', async () => {
    await using server = await startModelServer(
      byBrief({ ONE: [reply({ text: 'one is done' })], TWO: [reply({ text: 'two is done' })] }),
    )
    using bench = makeAgents({
      model: modelAt(server.baseUrl),
      stepModels: new Map(
        stepModels.map((one) => [one.name, { ...one, model: modelAt(server.baseUrl, one.name) }]),
      ),
    })
    const signal = new AbortController().signal
    await bench.agents.spawn({ brief: 'ONE', model: 'fast' }, 'fan-out', signal)
    await bench.agents.spawn({ brief: 'TWO' }, 'fan-out', signal)
    const [first, second] = server.asked.map(({ body }) => body.model)
    expect([first, second === 'fast']).toEqual(['fast', false])
    const starts = [...bench.heard.values()]
      .flat()
      .flatMap((event) => (event.type === 'agent-start' ? [event.model] : []))
    expect(starts).toEqual(['fast', undefined])
    const refused = await bench.agents.spawn({ brief: 'ONE', model: 'constructor' }, 'fan-out', signal)
    expect(refused.refused).toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('no model "constructor": use fast, strong'),
    })
    expect(server.asked).toHaveLength(2)
  })
})
