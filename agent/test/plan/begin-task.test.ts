// The first request of a run: a plan, the beginning of the work, or an answer in words.
import { describe, expect, it } from 'vitest'
import type { Task } from '#specs/protocol/task.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { planAndExecute } from '../../run-task.ts'
import { makeRun, modelAt } from '../support/run.ts'
import { isPlanning, planReply, stepOf } from '../support/scripted-model.ts'

const read = (path: string) => ({ name: 'read_note', arguments: { path } })
const plan = {
  goal: 'g',
  steps: [{ id: 'only', title: 'Only', instructions: 'do it', needs: [], writes: [] }],
}

async function work(script: (asked: Asked, index: number) => ServerReply, task: Partial<Task> = {}) {
  await using server = await startModelServer(script)
  const test = makeRun({ model: modelAt(server.baseUrl), task })
  const ending = await planAndExecute(test.run)
  test.run.budget.stop()
  return { ending, asked: server.asked, ...test }
}

describe('the first answer of a run', () => {
  it('in words is a plan of one step and the answer of the run, with one request [S1.03 A.01]', async () => {
    const { ending, asked, events } = await work(() => reply({ text: 'Four.' }), {
      prompt: 'What is\n2 + 2?',
    })
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'Four.' })
    expect(asked).toHaveLength(1)
    expect(events).toMatchObject([
      { type: 'turn-end', stepId: 'plan', turn: 1, text: 'Four.' },
      { type: 'plan-update', revision: 1, plan: { goal: 'What is 2 + 2?', steps: [{ id: 'task' }] } },
      { type: 'step-start', stepId: 'task' },
      { type: 'step-end', stepId: 'task', state: 'completed', text: 'Four.' },
    ])
  })

  it('may begin the work: its calls run, and the next request continues from them [A.01]', async () => {
    const { ending, asked, events, diary } = await work((one) =>
      isPlanning(one) ? reply({ calls: [read('a'), read('b')] }) : reply({ text: 'Both read.' }),
    )
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'Both read.' })
    expect(asked.map(stepOf)).toEqual([undefined, 'task'])
    expect(diary.calls.toSorted()).toEqual(['read a', 'read b'])
    expect(asked[0]?.tools.map((tool) => tool.function.name)).toEqual(
      expect.arrayContaining(['read_note', 'write_note', 'submit_plan']),
    )
    const [, , turn, ...results] = asked[1]?.messages ?? []
    expect(turn?.tool_calls).toHaveLength(2)
    expect(results.map(({ content }) => content)).toEqual(['text of a', 'text of b'])
    expect(events.filter(({ type }) => type === 'turn-end')).toMatchObject([
      { stepId: 'plan', turn: 1 },
      { stepId: 'task', turn: 1, text: 'Both read.' },
    ])
  })

  it('is a plan where it submits one, whatever else it calls [S0.02]', async () => {
    for (const first of [
      planReply(plan),
      reply({ text: `My plan: ${JSON.stringify(plan)}` }),
      reply({
        calls: [
          { name: 'write_note', arguments: { path: 'a', content: 'x' } },
          { name: 'submit_plan', arguments: plan },
        ],
      }),
    ]) {
      const { ending, asked, diary } = await work((one) =>
        isPlanning(one) ? first : reply({ text: 'did it' }),
      )
      expect(ending.summary).toBe('did it')
      expect(asked.map(stepOf)).toEqual([undefined, 'only'])
      expect(diary.calls).toEqual([])
    }
  })

  it('with a plan that cannot be carried out is asked for again with submit_plan alone [S0.02]', async () => {
    const { ending, asked } = await work((one, index) =>
      !isPlanning(one) ? reply({ text: 'did it' }) : planReply(index === 0 ? { goal: 'g', steps: [] } : plan),
    )
    expect(ending.outcome).toBe('completed')
    expect(asked[1]?.tools.map((tool) => tool.function.name)).toEqual(['submit_plan'])
    expect(asked[1]?.messages.at(-1)).toMatchObject({
      role: 'tool',
      content: expect.stringContaining('not valid'),
    })
  })

  it('is a plan alone where a person approves plans, and in words it is asked for again [A.11]', async () => {
    const { ending, asked, approvals } = await work(
      (one, index) =>
        index === 0
          ? reply({ text: 'Four.' })
          : isPlanning(one)
            ? planReply(plan)
            : reply({ text: 'did it' }),
      { approvePlan: true },
    )
    expect(ending.outcome).toBe('completed')
    expect(approvals).toHaveLength(1)
    expect(asked[0]?.tools.map((tool) => tool.function.name)).toEqual(['submit_plan'])
    expect(asked.map(stepOf)).toEqual([undefined, undefined, 'only'])
  })

  it('counts as a turn of the step, and as a request of the run [A.01]', async () => {
    const limits = { maxTurnsPerStep: 3 } as Task['limits']
    const { ending, asked } = await work((_, index) => reply({ calls: [read(`n${index}`)] }), { limits })
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'limit_turns' })
    // And one to conclude.
    expect(asked).toHaveLength(4)
  })

  it('fails the step and the run where it says so, or gives nothing three times [S0.07]', async () => {
    const failed = await work(() => reply({ text: 'STEP FAILED: there is no such file' }))
    expect(failed.ending).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    expect(failed.ending.message).toContain('there is no such file')
    const empty = await work(() => reply({ text: '' }))
    expect(empty.ending).toMatchObject({ outcome: 'failed', reason: 'model_broken' })
    expect(empty.asked).toHaveLength(3)
  })

  it('of a server that refuses the request falls back to planning with one tool [G.07]', async () => {
    const { ending, asked } = await work((one, index) =>
      index === 0
        ? { status: 400, body: JSON.stringify({ error: { message: 'too many tools' } }) }
        : isPlanning(one)
          ? planReply(plan)
          : reply({ text: 'did it' }),
    )
    expect(ending.outcome).toBe('completed')
    expect(asked[1]?.tools).toHaveLength(1)
  })

  it('may be words with braces, or a task that names steps of nobody [T.02]', async () => {
    const prompt = `Explain {{steps.nobody}} ${'x'.repeat(300)}`
    const { ending, events } = await work(() => reply({ text: 'It is {"a": 1}.' }), { prompt })
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'It is {"a": 1}.' })
    const [update] = events.filter((event) => event.type === 'plan-update')
    expect(update?.plan.goal.length).toBeLessThanOrEqual(100)
  })
})
