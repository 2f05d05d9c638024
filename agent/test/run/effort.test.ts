// How much the model reasons: of a run, of a step of its plan, and of what a step starts.
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { isPlanning, planReply, stepOf } from '../support/scripted-model.ts'
import { runWhole, type WholeRunOptions } from '../support/whole-run.ts'

const step = (id: string, fields: object = {}) => ({
  id,
  title: id,
  instructions: `do ${id}`,
  needs: [],
  writes: [],
  ...fields,
})
const plan = { goal: 'g', steps: [step('plain'), step('hard', { needs: ['plain'], effort: 'high' })] }

async function efforts(task: NonNullable<WholeRunOptions['task']>) {
  const { asked, completion } = await runWhole(
    (_, one) => (isPlanning(one) ? planReply(plan) : reply({ text: `did ${stepOf(one)}` })),
    { task },
  )
  expect(completion.outcome).toBe('completed')
  return asked.map((one) => [stepOf(one) ?? 'plan', one.body.reasoning_effort])
}

it('reaches the model with every request of a run; a step may have its own [G.05]', async () => {
  expect(await efforts({ effort: 'low' })).toEqual([
    ['plan', 'low'],
    ['plain', 'low'],
    ['hard', 'high'],
  ])
})

it('is left to the model where nobody says it [G.05]', async () => {
  expect(await efforts({})).toEqual([
    ['plan', undefined],
    ['plain', undefined],
    ['hard', 'high'],
  ])
})
