// Steps of a workflow in words.
import { expect, it } from 'vitest'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { WorkflowOutline } from '#specs/protocol/workflow.ts'
import { describeStep, labelOf, takenCase } from '../run/workflow-words.ts'

const outline: WorkflowOutline = {
  small: { work: 'call', after: [], cases: ['hours <= 8', null] },
  write: {
    work: 'chat',
    after: [
      { step: 'small', on: 'completed', case: 0 },
      { step: 'ask', on: 'completed' },
    ],
  },
  ask: { work: 'ask', after: [{ step: 'small', on: 'completed', case: 1 }] },
  each: { work: 'chat', after: [], each: 'steps.read.output.tasks', when: 'input.deep' },
}
const plan = {
  steps: Object.keys(outline).map((id) => ({ id, title: `The ${id}` })),
} as unknown as Parameters<typeof describeStep>[1]['plan']
const states = (given: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    Object.entries(given).map(([id, state]) => [
      id,
      { state, text: state === 'skipped' ? 'no step led here' : '' },
    ]),
  ) as RunState['steps']
const words = (id: string, given: Readonly<Record<string, string>>, rounds: [string, number][] = []) =>
  describeStep(id, { plan, outline, steps: states(given), rounds: new Map(rounds) })

it('a step says what it is, where its cases led, and that none led to it [S3.04 H.02]', () => {
  expect(words('small', { small: 'running', write: 'pending', ask: 'pending' })?.short).toEqual([
    'running',
    'call',
  ])
  const first = { small: 'completed', write: 'running', ask: 'skipped' }
  expect(words('small', first)).toEqual({
    short: ['completed', 'call', '→ The write'],
    whole: ['completed', 'call', '→ The write (hours <= 8)'],
  })
  expect(words('ask', first)).toEqual({
    short: ['not taken', 'question'],
    whole: ['skipped: no step led here', 'question'],
  })
  const other = { small: 'completed', write: 'running', ask: 'completed' }
  expect(words('small', other)?.whole.at(-1)).toBe('→ The ask (else)')
  // One that did not run led nowhere.
  expect(words('small', { ...other, small: 'skipped' })?.short).toEqual(['not taken', 'call'])
  expect(words('constructor', {})).toBeUndefined()
  expect(takenCase('gone', outline, {})).toBeUndefined()
})

it('a step for each entry of a list says how many began [S3.04 H.02]', () => {
  expect(words('each', {})).toEqual({
    short: ['pending', 'for each entry'],
    whole: ['pending', 'for each of steps.read.output.tasks', 'if input.deep'],
  })
  expect(words('each', {}, [['each', 3]])?.short).toEqual(['pending', '3 entries'])
})

it('turns and calls within a step are named by entry and inner step [S3.04 H.02]', () => {
  expect(labelOf('each--0', plan)).toBe('The each · entry 1')
  expect(labelOf('ask--read--2', plan)).toBe('The ask › read · entry 3')
  expect(labelOf('each', plan)).toBeUndefined()
  expect(labelOf('other--x', null)).toBe('other › x')
})
