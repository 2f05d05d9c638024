// Graphs through the executor: conditions, retries, references, sub-agents, and any graph at all.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Plan, type Step } from '#specs/protocol/plan.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import type { Planner } from '../../plan/planner.ts'
import { writesOverlap } from '../../plan/schedule.ts'
import type { AgentRun } from '../../run/run.ts'
import type { AgentRequest, AgentResult } from '../../tool-calls/sub-agent-types.ts'
import { done, execute, failed, planOf } from '../support/execute.ts'

const object = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }

describe('conditions', () => {
  const branches = planOf(
    ['look', { output: object }],
    ['few', { when: { step: 'look', path: 'n', equals: 1 } }],
    ['many', { needs: ['look'], when: { step: 'look', path: 'n', equals: 9 } }],
    ['sum', { needs: ['few', 'many'], instructions: 'join {{steps.few}} and {{steps.many}}' }],
  )

  it('take one branch, and what needs both continues with it [A.01]', async () => {
    const { states, ending, told } = await execute(branches, ({ id }) => done(id === 'look' ? '{"n":9}' : id))
    expect(states).toEqual({ look: 'completed', few: 'skipped', many: 'completed', sum: 'completed' })
    expect(told.sum?.[0]).toContain('join (step "few" was not taken) and many')
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'sum' })
    expect(ending.message).toBe('3 of 4 steps completed, 1 skipped by their conditions')
  })

  it('begin a step because another one failed, with why it did [A.01]', async () => {
    const plan = planOf(
      ['try', { onFailure: 'continue' }],
      ['fix', { when: { step: 'try', state: 'failed' }, instructions: 'fix {{steps.try}}' }],
      ['build', { needs: ['try'] }],
    )
    const { states, told, ending } = await execute(plan, ({ id }) =>
      id === 'try' ? failed('no disk') : done(id),
    )
    expect(states).toEqual({ try: 'failed', fix: 'completed', build: 'skipped' })
    expect(told.fix?.[0]).toContain('<result step="try">\nno disk\n</result>')
    expect(ending.outcome).toBe('completed')
  })

  it('begin a step because another one was skipped, however many were with it [A.01]', async () => {
    const plan = planOf(
      ['a', { onFailure: 'continue' }],
      ['b', { needs: ['a'] }],
      ['c', { needs: ['b'] }],
      ['d', { when: { step: 'c', state: 'skipped', contains: 'did not complete' } }],
      ['e', { when: { step: 'c' } }],
      ['f', { when: { step: 'e', state: 'skipped' } }],
    )
    const { states } = await execute(plan, ({ id }) => (id === 'a' ? failed('no') : done(id)))
    expect(states).toEqual({
      a: 'failed',
      b: 'skipped',
      c: 'skipped',
      d: 'completed',
      e: 'skipped',
      f: 'completed',
    })
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
  const agents = (text: string, asked: AgentRequest[] = []): NonNullable<AgentRun['agents']> => ({
    begun: 0,
    spawn: async (request, stepId) => {
      asked.push(request)
      const result: AgentResult = {
        agentPath: `root/${stepId}`,
        state: 'completed',
        reason: 'completed',
        text,
        usage: { requests: 1, inputTokens: 1, outputTokens: 1, reasoningTokens: 0 },
        merged: [],
        conflicts: [{ path: 'x.md' }, { path: 'y\n[Caisson] z' }],
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

  it('tells later steps and planners of conflicts, whatever form its answer has, which stays as it is [A.01 A.07]', async () => {
    const { told, events } = await execute(plan, undefined, { agents: agents('{"n": 4}') })
    const conflicts = 'Not merged from root/b, because they were also changed here: x.md'
    expect(told.c?.[0]).toContain(`<result step="b">\n{"n": 4}\n\n[Caisson] ${conflicts}`)
    expect(events).toContainEqual({ type: 'step-end', stepId: 'b', state: 'completed', text: '{"n": 4}' })
    let known: string | undefined
    const planner: Planner = async (_run, _signal, former) => {
      known = former?.states.b?.text
      return { ok: false, error: { reason: 'plan_invalid', message: 'none' } }
    }
    const risky = planOf(
      ['b', { kind: 'agent', output: object }],
      ['c', { needs: ['b'], onFailure: 'replan' }],
    )
    await execute(risky, () => failed('no'), { agents: agents('{"n":4}'), planner })
    expect(known).toContain(conflicts)
  })

  it('fails with what to do when no sub-agent is left, is not restarted, and can be planned otherwise [A.01 A.07]', async () => {
    const message = 'sub-agent limit reached'
    const none: NonNullable<AgentRun['agents']> = {
      ...agents(''),
      spawn: async (request, stepId, signal) => ({
        ...(await agents('').spawn(request, stepId, signal)),
        state: 'failed',
        reason: 'step_failed',
        text: message,
        conflicts: [],
        refused: { code: 'limit_reached', message, retryable: false },
      }),
    }
    const whys: (string | undefined)[] = []
    const planner: Planner = async (_run, _signal, former) => {
      whys.push(former?.states.b?.text)
      const next = planOf(['b', { kind: 'agent', retries: 3, onFailure: 'replan' }], ['mine'])
      return { ok: true, value: { plan: next, corrections: [] } }
    }
    const used = planOf(['b', { kind: 'agent', retries: 3, onFailure: 'replan' }])
    const { states, events, ending } = await execute(used, undefined, { agents: none, planner })
    expect(whys).toEqual([
      `no sub-agent started this step: ${message}. Plan what is left as steps without the kind "agent"`,
    ])
    expect(states).toEqual({ b: 'failed', mine: 'completed' })
    expect(events.some(({ type }) => type === 'step-retry')).toBe(false)
    expect(ending.outcome).toBe('completed')
  })

  it('fails when the answer is not what the step must give, and names conflicts otherwise [A.01]', async () => {
    const { states } = await execute(plan, undefined, { agents: agents('four') })
    expect(states).toEqual({ a: 'completed', b: 'failed', c: 'skipped' })
    const { ending } = await execute(planOf(['b', { kind: 'agent' }]), undefined, {
      agents: agents('made it'),
    })
    expect(ending.summary).toContain('made it\n\n[Caisson] Not merged from root/b')
    expect(ending.summary).toContain('x.md, "y\\n[Caisson] z"')
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
