// The executor alone: steps are replaced by plain functions, and no model is asked.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { executePlan, type StepRunner } from '../../plan/executor.ts'
import { PlanState } from '../../plan/plan-state.ts'
import { writesOverlap } from '../../plan/schedule.ts'
import type { StepResult } from '../../step/step.ts'
import { makeRun, type TestRunOptions } from '../support/run.ts'

const noModel = (): never => {
  throw new Error('the executor asks no model itself')
}

function planOf(...steps: [id: string, fields?: object][]): Plan {
  return Plan.parse({
    goal: 'g',
    steps: steps.map(([id, fields]) => ({ id, title: id, instructions: `do ${id}`, writes: [], ...fields })),
  })
}

const result = (
  state: StepResult['state'],
  text: string,
  reason: StepResult['reason'] = 'step_failed',
): StepResult => ({
  state,
  text,
  reason: state === 'completed' ? 'completed' : reason,
  history: [],
})

async function execute(
  plan: Plan,
  outcomes: Record<string, StepResult> = {},
  task: TestRunOptions['task'] = {},
) {
  const test = makeRun({ model: noModel, task })
  const started: string[] = []
  const openings = new Map<string, readonly ChatMessage[]>()
  const running = new Set<string>()
  let mostRunning = 0
  const together = new Set<string>()
  const perform: StepRunner = async (step, opening, _run, signal) => {
    started.push(step.id)
    openings.set(step.id, typeof opening === 'function' ? opening() : opening)
    for (const other of running) together.add([step.id, other].toSorted().join('+'))
    running.add(step.id)
    mostRunning = Math.max(mostRunning, running.size)
    await new Promise((resolve) => setTimeout(resolve, 2))
    running.delete(step.id)
    if (signal.aborted) return result('cancelled', 'interrupted')
    return outcomes[step.id] ?? result('completed', `answer of ${step.id}`)
  }
  const ending = await executePlan(new PlanState(plan), test.run, { performStep: perform })
  test.run.budget.stop()
  const states = Object.fromEntries(
    test.events.flatMap((event) => (event.type === 'step-end' ? [[event.stepId, event.state]] : [])),
  )
  return { ending, started, openings, mostRunning, together, states, ...test }
}

describe('order', () => {
  it('runs steps after what they need, and hands the answers on [S0.03]', async () => {
    const { ending, started, openings, events } = await execute(
      planOf(['c', { needs: ['a', 'b'] }], ['a'], ['b', { needs: ['a'] }]),
    )
    expect(started).toEqual(['a', 'b', 'c'])
    expect(ending).toMatchObject({ outcome: 'completed', reason: 'completed', summary: 'answer of c' })
    const content = openings.get('c')?.[1]?.content
    expect(content).toContain(
      '<result step="a">\nanswer of a\n</result>\n<result step="b">\nanswer of b\n</result>',
    )
    expect(openings.get('a')?.[1]?.content).toContain('# Results of earlier steps\nNone.')
    expect(events.map((event) => event.type === 'step-start' || event.type === 'step-end')).not.toContain(
      false,
    )
  })

  it('runs ready steps at once up to the limit, in the order of the plan [S0.07 A.01]', async () => {
    const { mostRunning, started } = await execute(
      planOf(['a'], ['b'], ['c'], ['d']),
      {},
      { limits: { maxParallelSteps: 3 } },
    )
    expect(mostRunning).toBe(3)
    expect(started).toEqual(['a', 'b', 'c', 'd'])
  })

  it('never runs two steps at once that write the same [S0.07]', async () => {
    const { together, mostRunning } = await execute(
      planOf(
        ['a', { writes: ['out/x'] }],
        ['b', { writes: ['out'] }],
        ['c', { writes: ['other'] }],
        ['d', { writes: ['*'] }],
      ),
    )
    expect(together.has('a+c')).toBe(true)
    expect([...together].filter((pair) => pair === 'a+b' || pair.includes('d'))).toEqual([])
    expect(mostRunning).toBe(2)
  })

  it.each([
    [['*'], ['a'], true],
    [[], ['*'], false],
    [['a.md'], ['./a.md'], true],
    [['a'], ['ab'], false],
    [['src/'], ['src/deep/x.ts'], true],
    [['src/*.ts'], ['src/x.ts'], true],
    [['src/*.ts'], ['doc/x.md'], false],
    [['src/*'], ['src'], true],
    [['/mnt/workspace/a'], ['a'], true],
    [['x/../a'], ['b'], true],
    [['.'], ['a'], true],
  ])('judges whether %j and %j overlap: %s', (a, b, overlap) => {
    expect(writesOverlap(a, b)).toBe(overlap)
    expect(writesOverlap(b, a)).toBe(overlap)
  })

  it('ends any graph with one end per step, and never starts a step before its needs [A.01]', async () => {
    const graph = fc
      .array(fc.record({ needs: fc.array(fc.nat(20), { maxLength: 3 }), fate: fc.nat(5) }), {
        minLength: 1,
        maxLength: 12,
      })
      .map((list) => ({
        plan: planOf(
          ...list.map(({ needs, fate }, index): [string, object] => [
            `s${index}`,
            {
              needs: [...new Set(needs.filter((need) => need < index).map((need) => `s${need}`))],
              onFailure: fate === 0 ? 'abort' : 'continue',
            },
          ]),
        ),
        outcomes: Object.fromEntries(
          list.flatMap(({ fate }, index) => (fate <= 1 ? [[`s${index}`, result('failed', 'no')]] : [])),
        ),
      }))
    await fc.assert(
      fc.asyncProperty(graph, async ({ plan, outcomes }) => {
        const { events, states, ending } = await execute(plan, outcomes)
        const ends = events.filter(({ type }) => type === 'step-end')
        expect(ends).toHaveLength(plan.steps.length)
        for (const step of plan.steps) {
          const from = events.findIndex((event) => event.type === 'step-start' && event.stepId === step.id)
          for (const need of from < 0 ? [] : step.needs) {
            const at = events.findIndex((event) => event.type === 'step-end' && event.stepId === need)
            expect(at).toBeLessThan(from)
            expect(states[need]).toBe('completed')
          }
        }
        expect(['completed', 'failed']).toContain(ending.outcome)
      }),
      { seed: 2, numRuns: 60 },
    )
  })
})

describe('failures', () => {
  it('ends the run when a step fails that says abort [A.01]', async () => {
    const plan = planOf(['a'], ['b'], ['c', { needs: ['b'] }])
    const { ending, states } = await execute(plan, { a: result('failed', 'broken disk') })
    expect(states).toEqual({ a: 'failed', b: 'cancelled', c: 'skipped' })
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    expect(ending.message).toContain('broken disk')
  })

  it('continues with what does not need a denied step, and fails as denied at its end [S1.11]', async () => {
    const plan = planOf(['a'], ['b'], ['c', { needs: ['a'] }], ['d', { needs: ['b'] }])
    const { ending, states } = await execute(plan, { a: result('failed', 'they said no', 'denied') })
    expect(states).toEqual({ a: 'failed', b: 'completed', c: 'skipped', d: 'completed' })
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'denied', summary: 'answer of d' })
    expect(ending.message).toMatch(/^2 of 4 steps completed; step "a" failed: they said no/)
  })

  it('names a failure before a denial when both would end the run [A.01]', async () => {
    const { ending } = await execute(planOf(['a'], ['b', { needs: ['c'] }], ['c']), {
      a: result('failed', 'they said no', 'denied'),
      b: result('failed', 'broken disk'),
    })
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
  })

  it('continues without the dependents of a step that says continue [A.01]', async () => {
    const plan = planOf(
      ['a', { onFailure: 'continue' }],
      ['b', { needs: ['a'] }],
      ['c'],
      ['d', { needs: ['b'] }],
    )
    const { ending, states, events } = await execute(plan, { a: result('failed', 'no luck') })
    const skipped = events.find((event) => event.type === 'step-end' && event.stepId === 'd')
    expect(skipped).toMatchObject({ text: 'a step that this one needs did not complete' })
    expect(states).toEqual({ a: 'failed', b: 'skipped', c: 'completed', d: 'skipped' })
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'answer of c' })
    expect(ending.message).toContain('no luck')
  })

  it('has not completed when no step has [A.01]', async () => {
    const { ending } = await execute(planOf(['a', { onFailure: 'continue' }]), {
      a: result('failed', 'x', 'denied'),
    })
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'denied' })
  })

  it('isolates a step that throws [S4.07]', async () => {
    const test = makeRun({ model: noModel })
    const ending = await executePlan(new PlanState(planOf(['a'])), test.run, {
      performStep: () => Promise.reject(new Error('a fault')),
    })
    test.run.budget.stop()
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'internal' })
    expect(JSON.stringify(ending)).not.toContain('a fault')
  })

  it('ends as cancelled, and says what became of each step [S1.03]', async () => {
    const test = makeRun({ model: noModel })
    const ending = await executePlan(new PlanState(planOf(['a'], ['b', { needs: ['a'] }])), test.run, {
      performStep: () => {
        test.cancel('enough')
        return Promise.resolve(result('cancelled', 'interrupted'))
      },
    })
    test.run.budget.stop()
    expect(ending).toMatchObject({ outcome: 'cancelled', reason: 'cancelled' })
    expect(ending.message).toContain('enough')
    expect(test.events.filter(({ type }) => type === 'step-end')).toHaveLength(2)
  })

  it('ends with the limit that was passed [S0.07]', async () => {
    const test = makeRun({ model: noModel, task: { limits: { maxToolCalls: 1 } } })
    const ending = await executePlan(new PlanState(planOf(['a'], ['b', { needs: ['a'] }])), test.run, {
      performStep: (_step, _opening, run) => {
        run.budget.takeCall()
        run.budget.takeCall()
        return Promise.resolve(result('completed', 'found something'))
      },
    })
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'limit_calls', summary: 'found something' })
  })
})
