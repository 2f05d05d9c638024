// What of a plan is repaired, and what is left for its validation to refuse.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import { parsePlan } from '../../plan/parse-plan.ts'
import { repairPlan } from '../../plan/repair.ts'

const step = (id: string, fields: object = {}) => ({ id, title: id, instructions: `do ${id}`, ...fields })
const agents = { maxAgents: 2, begun: 0 }
const read = (...steps: unknown[]) => parsePlan({ goal: 'g', steps }, { tools: ['read_file'], agents })
const object = { type: 'object', properties: { n: { type: 'integer' } } }

describe('a plan with mistakes', () => {
  it.each([
    ['a failure answered by trying again', { onFailure: 'Retry 2' }, { retries: 2, onFailure: 'abort' }],
    ['the same in brackets', { onFailure: 'retry(3)' }, { retries: 3 }],
    ['another spelling of replan', { onFailure: 're-plan' }, { onFailure: 'replan' }],
    ['a number as text', { retries: '1' }, { retries: 1 }],
    ['another word for the output', { output_schema: object }, { output: object }],
    ['null for what may be left out', { when: null, output: null, kind: null, tools: null }, { needs: [] }],
    ['another word for a condition', { condition: { step: 'a' } }, { when: { step: 'a' } }],
  ])('is repaired: %s [A.01] [S0.02]', async (_name, fields, expected) => {
    const result = await read(step('a'), step('b', fields))
    expect(result).toMatchObject({ ok: true, value: { plan: { steps: [{ id: 'a' }, expected] } } })
  })

  it('keeps conditions and references with steps that were renamed, and needs what it refers to [A.01] [S0.02]', async () => {
    const result = await read(
      step('Look!', { output: object }),
      step('b', { when: { step: 'Look!', path: 'n', equals: 1 } }),
      step('c', { instructions: 'use {{steps.Look!.n}} and {{steps.b}}' }),
    )
    expect(result).toMatchObject({
      ok: true,
      value: {
        plan: {
          steps: [
            { id: 'look' },
            { when: { step: 'look', path: 'n', equals: 1 } },
            { needs: ['look', 'b'], instructions: 'use {{steps.look.n}} and {{steps.b}}' },
          ],
        },
        corrections: expect.arrayContaining(['step c: needs look, b, which it refers to']),
      },
    })
  })

  it.each([
    ['a condition in words', step('b', { when: 'the tests fail' }), 'steps.1.when'],
    ['a condition in words under another name', step('b', { if: 'a failed' }), 'steps.1.when'],
    ['an unknown answer to a failure', step('b', { onFailure: 'pray' }), 'steps.1.onFailure'],
    ['more repetitions than there are', step('b', { retries: 99 }), 'steps.1.retries'],
    ['an output that is no object', step('b', { output: { type: 'array' } }), 'expected the type "object"'],
    ['a reference that closes a circle', step('a2', { instructions: '{{steps.a2}}' }), 'waits for itself'],
  ])('is refused: %s [A.01] [S0.02]', async (_name, bad, why) => {
    const result = await read(step('a'), bad)
    expect(result).toMatchObject({ ok: false, error: expect.stringContaining(why) })
  })

  it('is a plan or a bounded sentence, whatever was handed in [S0.02]', async () => {
    const field = fc.constantFrom(
      'id',
      'needs',
      'when',
      'output',
      'instructions',
      'onFailure',
      'retries',
      'kind',
      'limits',
    )
    const loose = fc.dictionary(
      field,
      fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom('a', 'b', '{{steps.a}}')),
    )
    const plan = fc.record({
      goal: fc.string(),
      steps: fc.array(fc.oneof(loose, fc.jsonValue({ maxDepth: 1 })), { maxLength: 4 }),
    })
    await fc.assert(
      fc.asyncProperty(fc.oneof(plan, fc.jsonValue()), async (value) => {
        const result = await parsePlan(value, { tools: [], agents })
        if (result.ok) expect(Plan.safeParse(result.value.plan).success).toBe(true)
        else expect(result.error.length).toBeLessThan(10_000)
        const once = repairPlan(value).value
        expect(repairPlan(once).value).toEqual(once)
      }),
      { seed: 13, numRuns: 400 },
    )
  })
})
