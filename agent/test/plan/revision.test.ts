// Another plan in the place of the one that is carried out: handed in by a step, or made after a failure.
import { describe, expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import { executePlan } from '../../plan/executor.ts'
import { PlanState } from '../../plan/plan-state.ts'
import type { Planner } from '../../plan/planner.ts'
import type { AgentRun } from '../../run/run.ts'
import { done, execute, failed, noModel, planOf } from '../support/execute.ts'
import { makeRun } from '../support/run.ts'

const missing = { ok: false, error: { code: 'not_found', message: '', retryable: false } } as const
/** None of these is asked for anything but how many have begun. */
const plainAgents = {
  begun: 0,
  spawn: noModel,
  findView: () => missing,
  takeFile: async () => missing,
}

describe('another plan', () => {
  const plan = planOf(['a'], ['b', { needs: ['a'] }], ['c', { needs: ['b'] }])
  const revise = (run: AgentRun, next: unknown, reason = 'found more') =>
    run.revisePlan?.(next, reason, new AbortController().signal) ??
    Promise.reject(new Error('no way to revise'))

  it('handed in by a step takes the place of what has not begun, told before any of it starts [A.01]', async () => {
    const next = {
      goal: 'g',
      steps: [...plan.steps.slice(0, 1), { id: 'd', title: 'd', instructions: 'd', needs: ['a'] }],
    }
    const answers: unknown[] = []
    const { states, updates, events, ending } = await execute(plan, async ({ id }, run) => {
      if (id === 'a') answers.push(await revise(run, next, 'b is\nnot needed'))
      return done(id)
    })
    expect(answers).toMatchObject([
      { ok: true, value: expect.stringContaining('plan 2 is now the current plan') },
    ])
    expect(states).toEqual({ a: 'completed', d: 'completed' })
    expect(updates).toMatchObject([
      { revision: 2, reason: 'b is not needed', plan: { steps: [{ id: 'a' }, { id: 'd' }] } },
    ])
    const at = (type: string, stepId: string) =>
      events.findIndex((event) => event.type === type && 'stepId' in event && event.stepId === stepId)
    expect(events.findIndex(({ type }) => type === 'plan-update')).toBeLessThan(at('step-start', 'd'))
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'd' })
  })

  it('may leave out what has begun: that is put back [A.01]', async () => {
    const { updates } = await execute(plan, async ({ id }, run) => {
      if (id === 'b')
        await revise(run, { goal: 'g', steps: [{ id: 'e', title: 'e', instructions: 'e', needs: ['b'] }] })
      return done(id)
    })
    expect(updates[0]?.plan.steps.map(({ id }) => id)).toEqual(['a', 'b', 'e'])
  })

  it.each([
    [
      'changes what has begun',
      { goal: 'g', steps: [{ ...plan.steps[0], title: 'other' }] },
      'cannot be changed',
    ],
    ['is the current plan', plan, 'this is the current plan'],
    [
      'is none',
      { goal: 'g', steps: [{ id: 'x', needs: ['nobody'], instructions: 'x' }] },
      'no step has the id "nobody"',
    ],
    [
      'names tools that there are not',
      { goal: 'g', steps: [{ id: 'x', instructions: 'x', kind: 'agent', tools: ['fly'] }] },
      'there is no tool fly',
    ],
  ])('is refused when it %s, and the one in force continues [A.01]', async (_name, next, why) => {
    const answers: unknown[] = []
    const { states, updates } = await execute(plan, async ({ id }, run) => {
      if (id === 'a') answers.push(await revise(run, next))
      return done(id)
    })
    expect(answers).toMatchObject([
      { ok: false, error: { code: 'invalid_input', message: expect.stringContaining(why) } },
    ])
    expect(updates).toEqual([])
    expect(states).toEqual({ a: 'completed', b: 'completed', c: 'completed' })
  })

  it('counts the sub-agents that have begun, also those that began while a person was asked [A.01 A.07]', async () => {
    const used = { ...plainAgents, begun: 1 }
    const withAgent = planOf(...plan.steps.map((one): [string, object] => [one.id, one]), [
      'x',
      { kind: 'agent' },
    ])
    const task = { limits: { maxAgents: 2 }, approvePlan: true }
    const answers: unknown[] = []
    await execute(
      plan,
      async ({ id }, run) => {
        if (id === 'a') answers.push(await revise(run, withAgent))
        if (id === 'b') answers.push(await revise(run, { ...withAgent, goal: 'other' }))
        return done(id)
      },
      {
        task,
        agents: used,
        decide: async () => {
          used.begun = 2
          return { decision: 'allow' }
        },
      },
    )
    const refusal = { ok: false, error: { message: expect.stringContaining('where 0 can begin') } }
    expect(answers).toMatchObject([refusal, refusal])
  })

  it('does not undo what another step has changed meanwhile [A.01]', async () => {
    const two = planOf(['a'], ['b'], ['c', { needs: ['a', 'b'] }])
    const answers: { ok: boolean }[] = []
    const { updates } = await execute(two, async ({ id }, run) => {
      if (id === 'c') return done('c')
      const own = { ...two, steps: [...two.steps, { id: `of-${id}`, title: id, instructions: id }] }
      answers.push(await revise(run, own))
      answers.push(
        await revise(run, {
          ...own,
          steps: [...own.steps, { id: `also-${id}`, title: id, instructions: id }],
        }),
      )
      return done(id)
    })
    expect(answers.map(({ ok }) => ok)).toContain(false)
    expect(updates.every(({ revision }, index) => revision === index + 2)).toBe(true)
  })

  it('is made only so often [A.01]', async () => {
    let last: unknown
    const { updates } = await execute(planOf(['a']), async (_step, run) => {
      for (let number = 0; number < 40; number++) {
        last = await revise(run, { goal: `g${number}`, steps: [] })
      }
      return done('a')
    })
    expect(updates).toHaveLength(31)
    expect(last).toMatchObject({ ok: false, error: { code: 'limit_reached' } })
  })

  it('is made when a step fails that says so, of what has not begun [A.01]', async () => {
    const risky = planOf(['a', { onFailure: 'replan' }], ['b', { needs: ['a'] }])
    const whys: unknown[] = []
    const planner: Planner = async (_run, _signal, former) => {
      whys.push(former?.why, former?.states.a)
      const next = planOf(['a', { onFailure: 'replan' }], ['other'])
      return { ok: true, value: { plan: next, corrections: [] } }
    }
    const { states, updates, ending } = await execute(
      risky,
      ({ id }) => (id === 'a' ? failed('no disk') : done(id)),
      { planner },
    )
    expect(whys).toEqual([{ failedStep: 'a' }, { state: 'failed', text: 'no disk' }])
    expect(states).toEqual({ a: 'failed', other: 'completed' })
    expect(updates).toMatchObject([{ revision: 2, reason: 'step "a" failed' }])
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'other' })
  })

  it('that cannot be made ends the run with the failure, and says why [A.01]', async () => {
    const risky = planOf(['a', { onFailure: 'replan' }], ['b', { needs: ['a'] }])
    const planner: Planner = async () => ({
      ok: false,
      error: { reason: 'plan_invalid', message: 'no idea' },
    })
    const { states, ending } = await execute(risky, () => failed('no disk'), { planner })
    expect(states).toEqual({ a: 'failed', b: 'skipped' })
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    expect(ending.message).toContain('no disk; replanning failed: no idea')
  })

  it('whose planner has a fault, or whose question outlives the run, still ends every step [A.01]', async () => {
    const risky = planOf(['a', { onFailure: 'replan' }], ['b', { needs: ['a'] }])
    const broken: Planner = () => Promise.reject(new Error('a fault'))
    const faulty = await execute(risky, () => failed('no disk'), { planner: broken })
    expect(faulty.states).toEqual({ a: 'failed', b: 'skipped' })
    expect(faulty.ending).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    expect(JSON.stringify(faulty.ending)).not.toContain('a fault')

    const other = planOf(['a', { onFailure: 'replan' }], ['c'])
    const asked = Promise.withResolvers<void>()
    const running = makeRun({
      model: noModel,
      task: { approvePlan: true },
      decide: () => {
        asked.resolve()
        return new Promise(() => undefined)
      },
    })
    const ending = executePlan(new PlanState(risky), running.run, {
      performStep: () => Promise.resolve(failed('no disk')),
      planner: async () => ({ ok: true, value: { plan: other, corrections: [] } }),
    })
    await asked.promise
    running.cancel('enough')
    expect(await ending).toMatchObject({ outcome: 'cancelled', message: expect.stringContaining('enough') })
    expect(running.events.filter(({ type }) => type === 'step-end')).toHaveLength(2)
    running.run.budget.stop()
  })

  it('is not made around a denial [A.01]', async () => {
    const risky = planOf(['a', { onFailure: 'replan' }], ['b'])
    const { states, updates } = await execute(risky, ({ id }) =>
      id === 'a' ? failed('they said no', 'denied') : done(id),
    )
    expect(states).toEqual({ a: 'failed', b: 'completed' })
    expect(updates).toEqual([])
  })

  it('is put before a person where plans are, and stays out when it is denied [A.01 A.11]', async () => {
    const next = planOf(['a'], ['d'])
    for (const decision of ['allow', 'deny'] as const) {
      const answers: unknown[] = []
      const { updates, approvals, states } = await execute(
        plan,
        async ({ id }, run) => {
          if (id === 'a') answers.push(await revise(run, next))
          return done(id)
        },
        { task: { approvePlan: true }, decide: () => Promise.resolve({ decision, hint: 'hm' }) },
      )
      expect(approvals).toMatchObject([{ tool: 'submit_plan', stepId: 'plan' }])
      expect(Plan.parse(JSON.parse(approvals[0]?.arguments ?? ''))).toEqual(next)
      if (decision === 'allow') expect(updates).toHaveLength(1)
      else {
        expect(updates).toEqual([])
        expect(answers).toMatchObject([
          { ok: false, error: { code: 'denied', message: expect.stringContaining('hm') } },
        ])
        expect(states).toEqual({ a: 'completed', b: 'completed', c: 'completed' })
      }
    }
  })
})
