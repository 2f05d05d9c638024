// The plan's schema, and what a later plan may change of an earlier one.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { limits } from '../../protocol/limits.ts'
import { Plan, type StepState } from '../../protocol/plan.ts'
import { findReferences } from '../../protocol/plan-references.ts'
import { findRevisionProblems } from '../../protocol/plan-revision.ts'

const step = (id: string, fields: object = {}) => ({ id, title: id, instructions: `do ${id}`, ...fields })
const planOf = (...steps: object[]) => Plan.parse({ goal: 'g', steps })
const problemsOf = (...steps: object[]) => {
  const parsed = Plan.safeParse({ goal: 'g', steps })
  return parsed.success ? [] : parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`)
}
const object = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }

describe('the graph of a plan', () => {
  it.each([
    ['a condition on no step', [step('a', { when: { step: 'z' } })], 'steps.0.when: no step has the id "z"'],
    [
      'a circle of needs and conditions',
      [step('a', { when: { step: 'b' } }), step('b', { needs: ['a'] })],
      'steps.0.needs: step "a" waits for itself | steps.1.needs: step "b" waits for itself',
    ],
    [
      'a condition on itself',
      [step('a', { when: { step: 'a' } })],
      'steps.0.needs: step "a" waits for itself',
    ],
    [
      'a reference to no step',
      [step('a', { instructions: 'use {{steps.b}}' })],
      'steps.0.instructions: {{steps.b}}: no step has the id "b"',
    ],
    [
      'a reference to a step that is not needed',
      [step('a'), step('b', { instructions: 'use {{steps.a}}' })],
      'steps.1.instructions: {{steps.a}}: step "a" is not among the needs',
    ],
    [
      'a reference into text',
      [step('a'), step('b', { needs: ['a'], instructions: 'use {{ steps.a.n }}' })],
      'steps.1.instructions: {{ steps.a.n }}: step "a" gives text; a path needs its `output`',
    ],
    [
      'a condition that looks into text',
      [step('a'), step('b', { when: { step: 'a', path: 'n', equals: 1 } })],
      'steps.1.when: step "a" gives text: a path needs its `output`',
    ],
    [
      'tools of a step that no agent carries out',
      [step('a', { tools: ['read_file'] })],
      'steps.0.tools: only a step of the kind "agent" has these',
    ],
  ])('is refused with %s [A.01]', (_name, steps, problem) => {
    expect(problemsOf(...steps).join(' | ')).toBe(problem)
  })

  it('takes references and conditions on what is waited for [A.01]', () => {
    const steps = [
      step('a', { output: object }),
      step('b', { needs: ['a'], instructions: 'use {{steps.a}} and {{ steps.a.n }}' }),
      step('c', {
        when: { step: 'a', path: 'n', equals: 1 },
        instructions: `use {{steps.a.n}}, not $${'{{ steps.meta.outputs.tag }}'}`,
      }),
      step('d', { kind: 'agent', tools: ['read_file'], limits: { maxTurns: 3 }, retries: 2 }),
    ]
    expect(problemsOf(...steps)).toEqual([])
  })

  it('is refused when it is too long to be shown, or its schemas nest too deep [A.01]', () => {
    const long = 'x'.repeat(limits.documentMaxChars - 10)
    expect(problemsOf(step('a', { instructions: long })).join()).toContain('can be shown to a person')
    const deep = JSON.parse(`${'{"properties":'.repeat(13)}{}${'}'.repeat(13)}`)
    expect(problemsOf(step('a', { output: deep })).join()).toContain('levels of nesting')
  })

  it('finds references in any text, in time linear in it [A.01]', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('{{', 'steps.', 'a', '.', ' ', '}}', '$')), (parts) => {
        const text = parts.join('')
        for (const { at, text: found } of findReferences(text)) {
          expect(text.slice(at, at + found.length)).toBe(found)
          expect(text.charAt(at - 1)).not.toBe('$')
        }
      }),
      { seed: 5, numRuns: 300 },
    )
    expect(findReferences('{{steps.a'.repeat(100_000))).toEqual([])
    expect(findReferences(`{{${' '.repeat(200_000)}`)).toEqual([])
  })
})

describe('a revision', () => {
  const current = planOf(step('a'), step('b', { needs: ['a'] }), step('c', { needs: ['b'] }))
  const states = { a: { state: 'completed' }, b: { state: 'failed' } } as const

  it('may change, add and leave out what has not begun [A.01]', () => {
    const next = planOf(...current.steps.slice(0, 2), step('d', { needs: ['a'] }))
    expect(findRevisionProblems(current, next, states)).toEqual([])
  })

  it.each([
    ['leaves out what has begun', [step('a')], 'step "b" is failed and cannot be left out'],
    [
      'changes what has begun',
      [step('a', { writes: [] }), step('b', { needs: ['a'] })],
      'step "a" is completed and cannot be changed',
    ],
    [
      'waits for what failed',
      [...current.steps],
      'step "c" needs "b", which is failed: let it need another step',
    ],
  ])('is refused when it %s [A.01]', (_name, steps, problem) => {
    expect(findRevisionProblems(current, planOf(...steps), states)).toEqual([problem])
  })

  it('is no revision of steps that are called like parts of every object [A.01]', () => {
    const plan = planOf(step('constructor'))
    expect(findRevisionProblems(plan, planOf(step('x')), {})).toEqual([])
  })

  it('never passes with a step changed that has begun, whatever else it changes [A.01]', () => {
    const state = fc.constantFrom<StepState>(
      'pending',
      'running',
      'completed',
      'failed',
      'skipped',
      'cancelled',
    )
    const steps = fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { minLength: 1 })
    const plan = fc
      .tuple(steps, fc.boolean())
      .map(([ids, isOther]) =>
        planOf(...ids.map((id) => step(id, isOther && id === 'b' ? { title: 'other' } : {}))),
      )
    fc.assert(
      fc.property(plan, plan, fc.dictionary(fc.constantFrom('a', 'b', 'c', 'd'), state), (from, to, of) => {
        const begun = from.steps.filter(({ id }) => (of[id] ?? 'pending') !== 'pending')
        const kept = begun.every((before) =>
          to.steps.some((after) => JSON.stringify(after) === JSON.stringify(before)),
        )
        const wrapped = Object.fromEntries(Object.entries(of).map(([id, one]) => [id, { state: one }]))
        expect(findRevisionProblems(from, to, wrapped).length === 0).toBe(kept)
      }),
      { seed: 7, numRuns: 300 },
    )
  })
})
