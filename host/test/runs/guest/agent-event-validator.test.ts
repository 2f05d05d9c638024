import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { addSteps, type GrownWorkflow } from '#specs/node/workflow/add-steps.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { Workflow } from '#specs/protocol/workflow.ts'
import { WorkflowAddition } from '#specs/protocol/workflow-format.ts'
import { AgentEventValidator, type ClaimBounds } from '../../../runs/guest/agent-event-validator.ts'

const work: ClaimBounds = { mode: 'work', approvePlan: false, maxAgents: 2, maxDepth: 1 }
const step = (id: string, more: object = {}) => ({ id, title: id, instructions: 'do', writes: [], ...more })
const planOf = (...steps: object[]) => Plan.parse({ goal: 'g', steps })
const update = (revision: number, plan: Plan): AgentEvent => ({ type: 'plan-update', revision, plan })
const start = (stepId: string): AgentEvent => ({ type: 'step-start', stepId })
const end = (stepId: string, state: 'completed' | 'failed' = 'completed'): AgentEvent => ({
  type: 'step-end',
  stepId,
  state,
  text: '',
})
const begin: AgentEvent = { type: 'agent-start', stepId: 'a', brief: 'b', tools: [], limits: {} }
const finish: AgentEvent = {
  type: 'agent-end',
  stepId: 'a',
  state: 'completed',
  reason: 'completed',
  text: '',
  usage: noUsage,
  merged: 0,
  conflicts: [],
}
const note: AgentEvent = { type: 'note', level: 'info', text: 'x' }

/** What each event was found to be, those of the root agent unless they name another. */
function say(claims: AgentEventValidator, ...said: (AgentEvent | [string, AgentEvent])[]): (string | null)[] {
  return said.map((one) => (Array.isArray(one) ? claims.check(...one) : claims.check('root', one)))
}

describe('a plan is believed', () => {
  it('when its revisions follow and change nothing that has begun [A.01 S0.07]', () => {
    const claims = new AgentEventValidator(work)
    const first = planOf(step('a'), step('b', { needs: ['a'] }))
    const second = planOf(step('a'), step('c', { needs: ['a'] }))
    expect(say(claims, update(1, first), start('a'), update(2, second), end('a'), start('c'))).toEqual(
      Array.from({ length: 5 }, () => null),
    )
  })

  it.each<[string, AgentEvent, RegExp]>([
    ['that leaves out what has begun', update(2, planOf(step('b'))), /step "a" is completed/],
    [
      'that changes what has begun',
      update(2, planOf(step('a', { title: 'x' }), step('b'))),
      /cannot be changed/,
    ],
    [
      'that waits for what has failed',
      update(2, planOf(step('a'), step('f'), step('b', { needs: ['f'] }))),
      /needs "f"/,
    ],
    ['out of turn', update(3, planOf(step('a'), step('f'))), /revision 3 of the plan where 2 was due/],
    [
      'under the number of the one before',
      update(1, planOf(step('a'), step('f'))),
      /revision 1 .* where 2 was due/,
    ],
  ])('and not a revision %s [A.01 S0.07]', (_name, event, words) => {
    const claims = new AgentEventValidator(work)
    const first = planOf(step('a'), step('f'), step('b'))
    const before = say(claims, update(1, first), start('a'), end('a'), start('f'), end('f', 'failed'))
    expect(before.every((problem) => problem === null)).toBe(true)
    expect(claims.check('root', event)).toMatch(words)
  })

  it('and no more plans than a run may have [A.01 S0.07]', () => {
    const claims = new AgentEventValidator(work)
    const told = Array.from({ length: limits.planMaxRevisions + 1 }, (_, index) =>
      claims.check('root', update(index + 1, planOf(step('a', { title: `${index}` })))),
    )
    expect(told.slice(0, -1)).toEqual(Array.from({ length: limits.planMaxRevisions }, () => null))
    expect(told.at(-1)).toMatch(/where a run has at most 32/)
  })

  it('and each step to begin once and to end once, so that what failed stays failed [S0.07]', () => {
    const plan = planOf(step('a'), step('b'))
    const claims = new AgentEventValidator(work)
    const [, , again] = say(claims, update(1, plan), start('a'), start('a'))
    expect(again).toMatch(/a second start of step "a"/)
    const failed = say(claims, end('a', 'failed'), start('a'), end('a', 'completed'))
    expect(failed).toEqual([
      null,
      expect.stringMatching(/a second start/) as string,
      expect.stringMatching(/a second end of step "a"/) as string,
    ])
    const next = planOf(step('a'), step('b', { needs: ['a'] }))
    expect(say(claims, end('b'), update(2, next))[1]).toMatch(/cannot be changed/)
  })

  it('and no step that starts before it, outside it, or in a run that only plans [S1.02 S0.07]', () => {
    const plan = planOf(step('a'))
    expect(say(new AgentEventValidator(work), start('a'))[0]).toMatch(/before any plan/)
    expect(say(new AgentEventValidator(work), update(1, plan), start('z'))[1]).toMatch(
      /its plan does not have/,
    )
    expect(say(new AgentEventValidator({ ...work, mode: 'plan' }), update(1, plan), start('a'))[1]).toMatch(
      /only plans/,
    )
  })

  it('to be the one that was handed over, or that a person made of it [A.11]', () => {
    const plan = planOf(step('a'))
    const other = planOf(step('b'))
    expect(say(new AgentEventValidator({ ...work, plan }), update(1, plan))).toEqual([null])
    expect(say(new AgentEventValidator({ ...work, plan }), update(1, other))[0]).toMatch(/another plan/)
    const edited = new AgentEventValidator({ ...work, plan })
    edited.allowPlan(other)
    expect(say(edited, update(1, other))).toEqual([null])
  })
})

describe('where a person is asked about the plan', () => {
  const plan = planOf(step('a'), step('b'))
  const asked: ClaimBounds = { ...work, approvePlan: true }

  it('a step starts only of a plan that was allowed, its revisions too [S1.11 S0.07 A.11]', () => {
    const claims = new AgentEventValidator(asked)
    expect(say(claims, update(1, plan), start('a'))[1]).toMatch(/not approved/)
    claims.allowPlan(Plan.parse(JSON.parse(JSON.stringify(plan))))
    expect(say(claims, start('a'), end('a'))).toEqual([null, null])
    const revised = planOf(step('a'), step('c'))
    expect(say(claims, update(2, revised), start('c'))).toEqual([null, expect.stringMatching(/not approved/)])
  })

  it('the plan of a person is measured like one of the agent [A.01 A.11]', () => {
    const claims = new AgentEventValidator(asked)
    claims.allowPlan(plan)
    say(claims, update(1, plan), start('a'))
    expect(claims.findPlanProblems(planOf(step('b')))).toEqual(['step "a" is running and cannot be left out'])
    expect(claims.findPlanProblems(planOf(step('a'), step('z')))).toEqual([])
    const agents = ['x', 'y'].map((id) => step(id, { kind: 'agent' }))
    expect(claims.findPlanProblems(planOf(step('a'), ...agents))).toEqual([])
    say(claims, ['root/one', begin])
    expect(claims.findPlanProblems(planOf(step('a'), ...agents))).toEqual([
      expect.stringContaining('need 2 sub-agents ("x", "y") where 1 can begin'),
    ])
  })
})

describe('a sub-agent is believed', () => {
  it('from its beginning to its end, once [A.07 S0.07]', () => {
    const claims = new AgentEventValidator(work)
    const story: [string, AgentEvent][] = [
      ['root/a', begin],
      ['root/a', note],
      ['root/a', finish],
    ]
    expect(say(claims, ...story)).toEqual([null, null, null])
    expect(claims.isAtWork('root/a')).toBe(false)
    expect(say(claims, ['root/a', note], ['root/a', finish], ['root/a', begin])).toEqual([
      'note of root/a, which is not at work',
      'agent-end of root/a, which is not at work',
      'a second agent-start of root/a',
    ])
  })

  it.each<[string, [string, AgentEvent][]]>([
    ['an event of one that never began', [['root/a', note]]],
    ['a child of one that never began', [['root/a/b', begin]]],
    [
      'one deeper than the run may be',
      [
        ['root/a', begin],
        ['root/a/deeper', begin],
      ],
    ],
    ['the beginning of the run itself', [['root', begin]]],
    ['the end of the run itself', [['root', finish]]],
    [
      'a plan of one',
      [
        ['root/a', begin],
        ['root/a', update(1, planOf(step('a')))],
      ],
    ],
    [
      'more than the run may have',
      [
        ['root/a', begin],
        ['root/a', finish],
        ['root/b', begin],
        ['root/c', begin],
      ],
    ],
  ])('and not %s [A.07 S0.07]', (_name, story) => {
    const found = say(new AgentEventValidator(work), ...story)
    expect(found.at(-1)).toEqual(expect.any(String))
    expect(found.slice(0, -1).every((problem) => problem === null)).toBe(true)
  })
})

describe('a sub-agent of a sub-agent is believed', () => {
  const deep = { ...work, maxAgents: 9, maxDepth: 3 }

  it('to its depth, within the life of the one that started it [A.07 S0.07]', () => {
    const claims = new AgentEventValidator(deep)
    const story: [string, AgentEvent][] = [
      ['root/a', begin],
      ['root/a/b', begin],
      ['root/a/b/a', begin],
      ['root/a/b/a', finish],
      ['root/a/b', note],
      ['root/a/b', finish],
      ['root/a/b2', begin],
      ['root/a/b2', finish],
      ['root/a', finish],
    ]
    expect(say(claims, ...story)).toEqual(story.map(() => null))
  })

  it.each<[string, [string, AgentEvent][]]>([
    [
      'deeper',
      [
        ['root/a', begin],
        ['root/a/b', begin],
        ['root/a/b/c', begin],
        ['root/a/b/c/d', begin],
      ],
    ],
    [
      'below one that has ended',
      [
        ['root/a', begin],
        ['root/a', finish],
        ['root/a/b', begin],
      ],
    ],
    [
      'at work when the one that started it ends',
      [
        ['root/a', begin],
        ['root/a/b', begin],
        ['root/a', finish],
      ],
    ],
  ])('and not %s [A.07 S0.07]', (_name, story) => {
    const found = say(new AgentEventValidator(deep), ...story)
    expect(found.at(-1)).toEqual(expect.any(String))
    expect(found.slice(0, -1).every((problem) => problem === null)).toBe(true)
  })
})

describe('whatever is said in whatever order', () => {
  it('is never more agents than allowed, nor a step of a plan that was not approved [S0.07]', () => {
    const paths = fc.constantFrom(
      'root',
      'root/a',
      'root/b',
      'root/a/c',
      'root/__proto__',
      'root/constructor',
    )
    const plans = [planOf(step('a')), planOf(step('a'), step('b')), planOf(step('constructor'))]
    const events = fc.oneof(
      fc.constantFrom(begin, finish, note),
      fc
        .tuple(fc.integer({ min: 1, max: 4 }), fc.constantFrom(...plans))
        .map(([revision, plan]) => update(revision, plan)),
      fc.constantFrom('a', 'b', 'constructor', 'toString').map(start),
      fc.constantFrom('a', 'b', 'constructor').map((id) => end(id)),
    )
    fc.assert(
      fc.property(fc.array(fc.tuple(paths, events), { maxLength: 40 }), (story) => {
        const claims = new AgentEventValidator({ ...work, approvePlan: true })
        const taken = story.filter(([path, event]) => claims.check(path, event) === null)
        expect(taken.filter(([, event]) => event.type === 'agent-start').length).toBeLessThanOrEqual(2)
        expect(taken.some(([path, event]) => path === 'root' && event.type === 'step-start')).toBe(false)
        const revisions = taken.flatMap(([, event]) => (event.type === 'plan-update' ? [event.revision] : []))
        expect(revisions).toEqual(revisions.map((_, index) => index + 1))
      }),
      { seed: 5, numRuns: 300 },
    )
  })
})

it('an agent that continues starts what had not started, and nothing a second time [R.01 W.04]', () => {
  const claims = new AgentEventValidator(work)
  claims.restore({
    ...{ phase: 'working', plan: planOf(step('a'), step('b')), revision: 1, added: [], agents: {} },
    steps: { a: { state: 'running', text: '' }, b: { state: 'pending', text: '' } },
  })
  expect(say(claims, start('b'), start('a'))).toEqual([null, 'a second start of step "a"'])
})

describe('steps that are added to a workflow', () => {
  const chat = [{ role: 'user' as const, text: 'go' }]
  const workflow = Workflow.parse({
    ...{ name: 'A', version: '1', sha256: '0'.repeat(64), input: null },
    steps: {
      a: { name: 'A', after: [], chat, tools: ['read_*'], mayAdd: { steps: 2, functions: 0 } },
      b: { name: 'b', after: [{ step: 'a', on: 'completed' }], chat },
    },
  })
  const plan = planOf(step('a'), step('b', { needs: ['a'] }))
  const bounds: ClaimBounds = { ...work, plan, workflow }
  const begun: GrownWorkflow = { plan, steps: workflow.steps, functions: [], added: [] }
  const addition = (ids: readonly string[], more: object = {}, by = 'a') =>
    WorkflowAddition.parse({
      by,
      steps: ids.map((id) => ({ id, chat: [{ role: 'user', content: 'x' }], ...more })),
      functions: [],
    })
  const grow = (to: GrownWorkflow, added: WorkflowAddition): GrownWorkflow => {
    const grown = addSteps(to, added, [])
    if (!grown.ok) throw new Error(grown.error.join('; '))
    return grown.value
  }
  const updateBy = (revision: number, added: WorkflowAddition, next: Plan): AgentEvent => ({
    ...{ type: 'plan-update', revision, plan: next, added },
  })
  const x = grow(begun, addition(['x']))
  const xy = grow(x, addition(['y']))

  it('are accepted where the host makes the same plan of them, also by another agent later [S3.11 R.01]', () => {
    const claims = new AgentEventValidator(bounds)
    const first = [update(1, plan), start('a'), updateBy(2, addition(['x']), x.plan)]
    expect(say(claims, ...first)).toEqual([null, null, null])
    const later = new AgentEventValidator(bounds)
    later.restore({
      ...{ phase: 'working', plan: x.plan, revision: 2, added: x.added, agents: {} },
      steps: { a: { state: 'running', text: '' } },
    })
    for (const one of [claims, later])
      expect(
        say(one, updateBy(3, addition(['y']), xy.plan), end('a'), start('x'), start('y'), start('b')),
      ).toEqual([null, null, null, null, null])
  })

  const unchecked = { ...plan, steps: [...plan.steps, ...planOf(step('x')).steps] }
  it.each<[string, AgentEvent, RegExp]>([
    ['without an addition', update(2, x.plan), /to which no step added/],
    [
      'with another plan than follows',
      updateBy(2, addition(['x']), xy.plan),
      /another plan than what follows/,
    ],
    [
      'with a step that runs too early',
      updateBy(2, addition(['x']), unchecked),
      /another plan than what follows/,
    ],
    [
      'by a step that does not run',
      updateBy(2, addition(['x'], {}, 'b'), x.plan),
      /by "b", which is pending/,
    ],
    ['by a step that is none', updateBy(2, addition(['x'], {}, 'constructor'), x.plan), /which is pending/],
    ['with too many steps', updateBy(2, addition(['x', 'y', 'z']), x.plan), /adds 3; 2 of 2 are left/],
    [
      'with a tool that the step lacks',
      updateBy(2, addition(['x'], { tools: ['write_file'] }), x.plan),
      /"write_file"/,
    ],
    [
      'with a model of its own',
      updateBy(2, addition(['x'], { model: 'm' }), x.plan),
      /model: the run has no model/,
    ],
    ['with a way back', updateBy(2, addition(['x'], { nextStep: 'A' }), x.plan), /leads back to "A"/],
  ])('are refused %s [S3.11 S0.07]', (_, event, why) => {
    const said = say(new AgentEventValidator(bounds), update(1, plan), start('a'), event)
    expect(said[2]).toMatch(why)
  })

  it('are refused after the most that the step may add, from a step without a right to, and without a workflow [S3.11]', () => {
    const claims = new AgentEventValidator(bounds)
    const [, , , , third] = say(
      claims,
      ...[
        update(1, plan),
        start('a'),
        updateBy(2, addition(['x']), x.plan),
        updateBy(3, addition(['y']), xy.plan),
      ],
      updateBy(4, addition(['z']), xy.plan),
    )
    expect(third).toMatch(/adds 1; 0 of 2 are left/)
    expect(say(claims, end('a'), start('b'), updateBy(4, addition(['z'], {}, 'b'), xy.plan))[2]).toMatch(
      /step "b" may not add steps/,
    )
    expect(
      say(
        new AgentEventValidator({ ...work, plan }),
        update(1, plan),
        start('a'),
        updateBy(2, addition(['x']), x.plan),
      )[2],
    ).toMatch(/added to no workflow/)
  })
})
