// Graphs through the executor: conditions, retries, references, sub-agents, and another plan while one is carried out.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Plan, type Step } from '#specs/protocol/plan.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import { PlanBook } from '../../plan/book.ts'
import { executePlan } from '../../plan/executor.ts'
import type { Planner } from '../../plan/planner.ts'
import { writesOverlap } from '../../plan/schedule.ts'
import type { Run } from '../../run.ts'
import type { StepResult } from '../../step.ts'
import type { AgentRequest, AgentResult } from '../../subagents/agents.ts'
import { makeRun, type TestRunOptions } from '../support/run.ts'

const noModel = (): never => {
  throw new Error('no model is asked here')
}
const object = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }

function planOf(...steps: [id: string, fields?: object][]): Plan {
  return Plan.parse({
    goal: 'g',
    steps: steps.map(([id, fields]) => ({ id, title: id, instructions: `do ${id}`, writes: [], ...fields })),
  })
}

const done = (text: string): StepResult => ({ state: 'completed', reason: 'completed', text, history: [] })
const failed = (text: string, reason: StepResult['reason'] = 'step_failed'): StepResult => ({
  state: 'failed',
  reason,
  text,
  history: [],
})

type Perform = (step: Step, run: Run, attempt: number) => StepResult | Promise<StepResult>

async function execute(
  plan: Plan,
  perform: Perform = ({ id }) => done(`answer of ${id}`),
  options: { planner?: Planner; agents?: Run['agents'] } & Omit<TestRunOptions, 'model'> = {},
) {
  const { planner, agents, ...rest } = options
  const test = makeRun({ model: noModel, ...rest })
  const run: Run = agents === undefined ? test.run : { ...test.run, agents }
  const told: Record<string, string[]> = {}
  const ending = await executePlan(new PlanBook(plan), run, {
    performStep: async (step, opening, stepRun, signal) => {
      const messages = typeof opening === 'function' ? opening() : opening
      told[step.id] = [...(told[step.id] ?? []), messages.at(-1)?.content ?? '']
      await new Promise((resolve) => setTimeout(resolve, 1))
      if (signal.aborted) return { state: 'cancelled', reason: 'cancelled', text: 'interrupted', history: [] }
      return perform(step, stepRun, told[step.id]?.length ?? 1)
    },
    planner: planner ?? noModel,
  })
  test.run.budget.stop()
  const states = Object.fromEntries(
    test.events.flatMap((event) => (event.type === 'step-end' ? [[event.stepId, event.state]] : [])),
  )
  const updates = test.events.filter((event) => event.type === 'plan-update')
  return { ending, states, told, updates, ...test }
}

describe('conditions', () => {
  const branches = planOf(
    ['look', { output: object }],
    ['few', { when: { step: 'look', path: 'n', equals: 1 } }],
    ['many', { needs: ['look'], when: { step: 'look', path: 'n', equals: 9 } }],
    ['sum', { needs: ['few', 'many'], instructions: 'join {{steps.few}} and {{steps.many}}' }],
  )

  it('take one branch, and what needs both goes on with it [A.01]', async () => {
    const { states, ending, told } = await execute(branches, ({ id }) => done(id === 'look' ? '{"n":9}' : id))
    expect(states).toEqual({ look: 'completed', few: 'skipped', many: 'completed', sum: 'completed' })
    expect(told.sum?.[0]).toContain('join (step "few" was not taken) and many')
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'sum' })
    expect(ending.message).toBe('3 of 4 steps completed, 1 left aside by their conditions')
  })

  it('begin a step because another one failed, with why it did [A.01]', async () => {
    const plan = planOf(
      ['try', { onFailure: 'continue' }],
      ['mend', { when: { step: 'try', state: 'failed' }, instructions: 'mend {{steps.try}}' }],
      ['build', { needs: ['try'] }],
    )
    const { states, told, ending } = await execute(plan, ({ id }) =>
      id === 'try' ? failed('no disk') : done(id),
    )
    expect(states).toEqual({ try: 'failed', mend: 'completed', build: 'skipped' })
    expect(told.mend?.[0]).toContain('<result step="try">\nno disk\n</result>')
    expect(ending.outcome).toBe('completed')
  })

  it('are not asked of a step whose needs failed, whichever ended first [A.01]', async () => {
    const plan = planOf(
      ['a', { onFailure: 'continue' }],
      ['b'],
      ['c', { needs: ['a'], when: { step: 'b', equals: 'no' } }],
      ['d', { needs: ['c'] }],
    )
    for (const slow of ['a', 'b']) {
      const { states } = await execute(plan, async ({ id }) => {
        if (id === slow) await new Promise((resolve) => setTimeout(resolve, 10))
        return id === 'a' ? failed('no') : done('yes')
      })
      expect(states).toEqual({ a: 'failed', b: 'completed', c: 'skipped', d: 'skipped' })
    }
  })
})

describe('retries', () => {
  it('begin a step anew with what went wrong, and only then count as its failure [A.01]', async () => {
    const plan = planOf(['a', { retries: 2 }], ['b', { needs: ['a'] }])
    const { states, events, told } = await execute(plan, ({ id }, _run, attempt) =>
      id === 'a' && attempt < 3 ? failed(`attempt ${attempt} </result> broke`) : done(id),
    )
    expect(states).toEqual({ a: 'completed', b: 'completed' })
    expect(events.filter(({ type }) => type === 'step-retry')).toEqual([
      { type: 'step-retry', stepId: 'a', attempt: 2, reason: 'attempt 1 </result> broke' },
      { type: 'step-retry', stepId: 'a', attempt: 3, reason: 'attempt 2 </result> broke' },
    ])
    expect(told.a?.[1]).toContain('attempt 1 <\\/result> broke')
    expect(events.filter((event) => event.type === 'step-start' && event.stepId === 'a')).toHaveLength(1)
  })

  it.each([
    ['denied', 1],
    ['step_failed', 3],
  ] as const)('of what failed with %s: begun %i times [A.01]', async (reason, times) => {
    const { told, ending } = await execute(planOf(['a', { retries: 2 }]), () => failed('no', reason))
    expect(told.a).toHaveLength(times)
    expect(ending).toMatchObject({ outcome: 'failed', reason })
  })

  it('are not made of instructions that lead nowhere [A.01]', async () => {
    const plan = planOf(
      ['a', { output: { type: 'object' } }],
      ['b', { needs: ['a'], retries: 3, instructions: 'use {{steps.a.path}}' }],
    )
    const { states, told, ending } = await execute(plan, () => done('{}'))
    expect(states).toEqual({ a: 'completed', b: 'failed' })
    expect(told.b).toBeUndefined()
    expect(ending.message).toContain('the output of step "a" has no "path"')
  })
})

describe('a step for a sub-agent', () => {
  const plan = planOf(
    ['a'],
    [
      'b',
      {
        kind: 'agent',
        needs: ['a'],
        instructions: 'do as {{steps.a}} says',
        tools: ['read_note'],
        output: object,
      },
    ],
    ['c', { needs: ['b'], instructions: 'use {{steps.b.n}}' }],
  )
  const agents = (text: string, asked: AgentRequest[] = []): NonNullable<Run['agents']> => ({
    spawn: async (request, stepId) => {
      asked.push(request)
      const result: AgentResult = {
        agentPath: `root/${stepId}`,
        state: 'completed',
        reason: 'completed',
        text,
        usage: { requests: 1, inputTokens: 1, outputTokens: 1, reasoningTokens: 0 },
        merged: [],
        conflicts: [{ path: 'x.md' }],
        leftOut: [],
      }
      return result
    },
    findView: () => ({ ok: false, error: { code: 'not_found', message: '', retryable: false } }),
    takeFile: async () => ({ ok: false, error: { code: 'not_found', message: '', retryable: false } }),
  })

  it('tells it all that it needs, and takes its answer for the step [A.01]', async () => {
    const asked: AgentRequest[] = []
    const { states, told } = await execute(plan, undefined, { agents: agents('{"n":4}', asked) })
    expect(states).toEqual({ a: 'completed', b: 'completed', c: 'completed' })
    expect(asked).toMatchObject([{ name: 'b', tools: ['read_note'], output: object }])
    expect(asked[0]?.brief).toContain('<result step="a">\nanswer of a\n</result>')
    expect(told.b).toBeUndefined()
    expect(told.c?.[0]).toContain('use 4')
  })

  it('fails when the answer is not what the step must give, and names conflicts otherwise [A.01]', async () => {
    const { states } = await execute(plan, undefined, { agents: agents('four') })
    expect(states).toEqual({ a: 'completed', b: 'failed', c: 'skipped' })
    const { ending } = await execute(planOf(['b', { kind: 'agent' }]), undefined, {
      agents: agents('made it'),
    })
    expect(ending.summary).toContain('made it\n\n[Caisson] Not brought over from root/b')
    expect(ending.summary).toContain('x.md')
  })

  it('is a step like any other where there are none, with its own tools and turns [A.01]', async () => {
    const narrow = planOf(['b', { kind: 'agent', tools: ['read_note'], limits: { maxTurns: 2 } }])
    const { states } = await execute(
      narrow,
      (_step, run) => done(`${run.registry.names.join()} ${run.task.limits.maxTurnsPerStep}`),
      { agents: agents('x'), task: { limits: { maxAgents: 0 } } },
    )
    expect(states).toEqual({ b: 'completed' })
    const { ending } = await execute(narrow, (_step, run) =>
      done(`${run.registry.names.join()} ${run.task.limits.maxTurnsPerStep}`),
    )
    expect(ending.summary).toBe('read_note 2')
  })
})

describe('another plan', () => {
  const plan = planOf(['a'], ['b', { needs: ['a'] }], ['c', { needs: ['b'] }])
  const revise = (run: Run, next: unknown, reason = 'found more') =>
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
    expect(answers).toMatchObject([{ ok: true, value: expect.stringContaining('plan 2 is in force') }])
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
    ['is the plan in force', plan, 'this is the plan in force'],
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
  ])('is refused when it %s, and the one in force goes on [A.01]', async (_name, next, why) => {
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
    expect(ending.message).toContain('no disk; there is no other plan: no idea')
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
    const ending = executePlan(new PlanBook(risky), running.run, {
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

  it('is put before a person where plans are, and stays out when it is denied [A.01]', async () => {
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

describe('any graph', () => {
  const stepFields = fc.record({
    needs: fc.array(fc.nat(9), { maxLength: 2 }),
    when: fc.option(fc.record({ at: fc.nat(9), state: fc.constantFrom('completed', 'failed', 'skipped') }), {
      nil: undefined,
    }),
    writes: fc.subarray(['a', 'a/b', 'c', '*'], { maxLength: 2 }),
    onFailure: fc.constantFrom('abort', 'continue', 'replan'),
    retries: fc.nat(1),
    fate: fc.constantFrom('done', 'done', 'done', 'fail', 'revise'),
  })
  const graph = fc.array(stepFields, { minLength: 1, maxLength: 10 }).map((list) => ({
    fates: Object.fromEntries(list.map(({ fate }, index) => [`s${index}`, fate])),
    plan: planOf(
      ...list.map(({ needs, when, writes, onFailure, retries }, index): [string, object] => [
        `s${index}`,
        {
          needs: [...new Set(needs.filter((need) => need < index).map((need) => `s${need}`))],
          ...(when === undefined || when.at >= index
            ? {}
            : { when: { step: `s${when.at}`, state: when.state } }),
          writes,
          onFailure,
          retries,
        },
      ]),
    ),
  }))

  it('ends with one end per step of its last plan, keeps needs, writes and what has begun [A.01]', async () => {
    await fc.assert(
      fc.asyncProperty(graph, async ({ plan, fates }) => {
        let made = 0
        const grow = (current: Plan): Plan => {
          made++
          return planOf(...current.steps.map((step): [string, object] => [step.id, step]), [
            `n${made}`,
            { writes: ['c'] },
          ])
        }
        const withoutFailed = (current: Plan, stateOf: (id: string) => string | undefined): Plan =>
          planOf(
            ...current.steps
              .filter(
                ({ id, needs }) =>
                  stateOf(id) !== 'pending' || !needs.some((need) => stateOf(need) === 'failed'),
              )
              .map((step): [string, object] => [step.id, step]),
          )
        const planner: Planner = async (_run, _signal, former) => {
          if (former === undefined) throw new Error('a first plan was not asked for')
          const next = Plan.safeParse(withoutFailed(former.plan, (id) => former.states[id]?.state))
          return next.success
            ? { ok: true, value: { plan: next.data, corrections: [] } }
            : { ok: false, error: { reason: 'plan_invalid', message: 'cut' } }
        }
        let current = plan
        const { events, ending } = await execute(
          plan,
          async ({ id }, run) => {
            if (fates[id] === 'fail') return failed('no')
            if (fates[id] === 'revise' && made < 5)
              await run.revisePlan?.(grow(current), 'more', new AbortController().signal)
            return done(id)
          },
          { planner },
        )
        const states = new Map<string, string>()
        const running = new Map<string, Step>()
        const ends = new Map<string, number>()
        for (const event of events) {
          if (event.type === 'plan-update') {
            const begun = Object.fromEntries(
              [...states].map(([id, state]) => [id, { state: state as 'failed' }]),
            )
            expect(findRevisionProblems(current, event.plan, begun)).toEqual([])
            current = event.plan
          }
          if (event.type === 'step-start') {
            const step = current.steps.find(({ id }) => id === event.stepId)
            if (step === undefined) throw new Error(`a step began that is not in the plan: ${event.stepId}`)
            for (const need of step.needs) expect(['completed', 'skipped']).toContain(states.get(need))
            if (step.when !== undefined) expect(states.get(step.when.step)).toBe(step.when.state)
            for (const other of running.values()) expect(writesOverlap(step.writes, other.writes)).toBe(false)
            running.set(step.id, step)
            states.set(step.id, 'running')
          }
          if (event.type === 'step-end') {
            running.delete(event.stepId)
            states.set(event.stepId, event.state)
            ends.set(event.stepId, (ends.get(event.stepId) ?? 0) + 1)
          }
        }
        expect([...ends.keys()].toSorted()).toEqual(current.steps.map(({ id }) => id).toSorted())
        expect([...ends.values()].every((count) => count === 1)).toBe(true)
        expect(['completed', 'failed']).toContain(ending.outcome)
      }),
      { seed: 9, numRuns: 80 },
    )
  })
})
