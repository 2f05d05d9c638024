// The places of a plan's steps in its graph.
import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Plan } from '#specs/protocol/plan.ts'
import { placeSteps } from '../parts/plan-lanes.ts'

const step = (id: string, needs: string[] = []): Plan['steps'][number] => ({
  ...{ id, title: id, instructions: id, needs, writes: [] },
  onFailure: 'abort',
})

it('a chain has one lane; steps that can run at the same time have lanes of their own [H.02]', () => {
  const chain = placeSteps([step('a'), step('b', ['a']), step('c', ['b'])])
  expect([chain.lanes, chain.steps.map(({ lane }) => lane)]).toEqual([1, [0, 0, 0]])
  const wide = placeSteps([step('a'), step('b', ['a']), step('c', ['a']), step('d', ['b', 'c'])])
  expect(wide.steps.map(({ id, row, lane }) => [id, row, lane])).toEqual([
    ['a', 0, 0],
    ['b', 1, 0],
    ['c', 2, 1],
    ['d', 3, 0],
  ])
})

it('every step has one row, below all that it waits for, whatever the plan [H.02]', () => {
  const plans = fc
    .array(fc.array(fc.nat({ max: 63 }), { maxLength: 4 }), { minLength: 1, maxLength: 64 })
    .map((needs) =>
      needs.map((of, index) =>
        step(
          `s${index}`,
          of.filter((n) => n < index).map((n) => `s${n}`),
        ),
      ),
    )
    .chain((steps) => fc.shuffledSubarray(steps, { minLength: steps.length }))
  fc.assert(
    fc.property(plans, (steps) => {
      const { steps: placed, lanes } = placeSteps(steps)
      const rows = new Map(placed.map(({ id, row }) => [id, row]))
      expect([...rows.values()].sort((a, b) => a - b)).toEqual(steps.map((_, index) => index))
      for (const { row, lane, needs } of placed) {
        expect(lane).toBeLessThan(lanes)
        for (const need of needs) expect(rows.get(need)).toBeLessThan(row)
      }
    }),
    { numRuns: 100, seed: 7 },
  )
})
