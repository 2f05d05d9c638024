import { expect, it } from 'vitest'
import { initialRunState, MOMENTS_MAX, type RunLine, reduceRun } from '../../protocol/run-state.ts'

type Event = RunLine['event']

const step = (id: string) => ({
  ...{ id, title: id, instructions: 'do', needs: [], writes: [] },
  onFailure: 'abort' as const,
})
const planned = (...ids: string[]): Event => ({
  type: 'plan-update',
  revision: 1,
  plan: { goal: 'g', steps: ids.map(step) },
})
const starts = (stepId: string): Event => ({ type: 'step-start', stepId })
const checkpoint = (checkpointId: string): Event => ({
  type: 'checkpoint',
  ...{ checkpointId, durationMs: 1, elapsedMs: 50, exchanges: 2 },
})
const fold = (...events: Event[]) =>
  events.reduce((state, event) => reduceRun(state, { event }), initialRunState)

it('a step has the last checkpoint before it first started, with what the run was there [W.04]', () => {
  const ends = { type: 'step-end', stepId: 'a', state: 'completed', text: 'done' } as const
  const { moments } = fold(
    ...[planned('a', 'b', '__proto__'), checkpoint('cp-1'), starts('a'), checkpoint('cp-2'), ends],
    ...[checkpoint('cp-3'), starts('b'), starts('__proto__'), starts('unknown'), checkpoint('cp-4')],
    starts('b'),
  )
  expect(Object.entries(moments).map(([id, { checkpointId }]) => [id, checkpointId])).toEqual([
    ['a', 'cp-1'],
    ['b', 'cp-3'],
    ['__proto__', 'cp-3'],
  ])
  expect(moments).toMatchObject({
    a: { steps: { a: { state: 'pending' } } },
    b: { steps: { a: { state: 'completed' } } },
  })
})

it('the moments are those of the newest steps, and none without a checkpoint [W.04]', () => {
  const ids = Array.from({ length: MOMENTS_MAX + 3 }, (_, index) => `s${index}`)
  const { moments } = fold(planned(...ids), checkpoint('cp-1'), ...ids.map(starts))
  expect(Object.keys(moments)).toEqual(ids.slice(3))
  expect(fold(planned('a'), starts('a')).moments).toEqual({})
})

it('a run that continues keeps its moments, unless it starts from its beginning [W.04 R.01]', () => {
  const before = [planned('a'), checkpoint('cp-1'), starts('a')]
  const resume = (checkpointId: string | null): Event => ({
    type: 'run-resume',
    ...{ epoch: 2, checkpointId, message: 'lost' },
  })
  expect(Object.keys(fold(...before, resume('cp-1')).moments)).toEqual(['a'])
  expect(fold(...before, resume(null)).moments).toEqual({})
})
