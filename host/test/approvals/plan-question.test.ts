import { describe, expect, it } from 'vitest'
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { asksAboutPlan, parseOutsidePlan, planOf, readPlanText } from '../../approvals/plan-question.ts'
import { ApprovalQueue, type ApprovalQueueOptions } from '../../approvals/queue.ts'
import { toolsNamedByRules } from '../../approvals/rules.ts'

const plan = Plan.parse({ goal: 'Tidy up', steps: [{ id: 'a', title: 'A', instructions: 'do' }] })
const mine = Plan.parse({ goal: 'Tidy up', steps: [{ id: 'b', title: 'B', instructions: 'do' }] })

const question = (over: Partial<ApprovalRequest> = {}): ApprovalRequest => ({
  approvalId: 'p1',
  runId: 'run-00000000000000000001',
  agentPath: 'root',
  stepId: 'plan',
  callId: 'plan',
  tool: 'submit_plan',
  arguments: JSON.stringify(plan),
  preview: '',
  ...over,
})

function open(options: Partial<ApprovalQueueOptions> = {}) {
  const events: HostEvent[] = []
  const allowed: Plan[] = []
  const queue = new ApprovalQueue({
    mode: 'ask',
    rules: [],
    interactive: true,
    record: async (event) => events.push(event),
    onPlanAllowed: (one) => void allowed.push(one),
    ...options,
  })
  return { queue, events, allowed }
}

describe('a question about a plan', () => {
  it('is answered with a yes, and the host knows which plan that was [S1.11 A.11]', async () => {
    const { queue, allowed, events } = open()
    const decision = queue.ask(question())
    await expect.poll(() => queue.pending).toEqual(['p1'])
    expect(queue.answer('p1', { decision: 'allow', scope: 'once' })).toMatchObject({ taken: true })
    expect(await decision).toEqual({ decision: 'allow' })
    expect(allowed).toEqual([plan])
    expect(events[1]).toMatchObject({ type: 'approval-decision', by: 'person' })
  })

  it('is answered with another plan, which is journaled and goes to the agent [S1.11 A.11]', async () => {
    const { queue, allowed, events } = open()
    const decision = queue.ask(question())
    await expect.poll(() => queue.pending).toEqual(['p1'])
    expect(queue.answer('p1', { decision: 'allow', scope: 'run', plan: mine })).toMatchObject({ taken: true })
    expect(await decision).toEqual({ decision: 'allow', plan: mine })
    expect(allowed).toEqual([mine])
    expect(events[1]).toMatchObject({ decision: 'allow', by: 'person', plan: mine })
    // The next plan is allowed as it is, not replaced.
    expect(await queue.ask(question({ approvalId: 'p2' }))).toEqual({ decision: 'allow' })
    expect(allowed).toEqual([mine, plan])
  })

  it('is denied without a word where nobody is there, so that no other plan is made in vain [S1.11 A.11]', async () => {
    const { queue, events } = open({ interactive: false })
    expect(await queue.ask(question())).toEqual({ decision: 'deny' })
    expect(events[1]).toMatchObject({
      decision: 'deny',
      by: 'mode',
      rule: expect.stringContaining('option approvals'),
    })
  })

  it.each<[string, object]>([
    ['with a no', { decision: 'deny', scope: 'once', plan: mine }],
    ['that is none', { decision: 'allow', scope: 'once', plan: { goal: 'g', steps: [] } }],
    [
      'that changes what has begun',
      { decision: 'allow', scope: 'once', plan: { ...mine, goal: 'begun already' } },
    ],
  ])('is not answered by a plan %s, and keeps waiting [S1.11]', async (_name, answer) => {
    const { queue } = open({
      findPlanProblems: ({ goal }) => (goal === 'begun already' ? ['step "a" is running'] : []),
    })
    const decision = queue.ask(question())
    await expect.poll(() => queue.pending).toEqual(['p1'])
    expect(queue.answer('p1', answer as never)).toMatchObject({ taken: false })
    expect(queue.pending).toEqual(['p1'])
    queue.close()
    expect((await decision).decision).toBe('deny')
  })

  it.each([
    ['of a sub-agent', { agentPath: 'root/helper' }],
    ['without a plan', { arguments: '{"goal":"Tidy up"}' }],
  ])(
    '%s is put before nobody, so that no yes to it stands for the plans that come [S1.11 A.11]',
    async (_, over) => {
      const { queue, events, allowed } = open({ mode: 'all' })
      expect(await queue.ask(question(over))).toEqual({ decision: 'deny' })
      expect(queue.pending).toEqual([])
      expect(events.map(({ type }) => type)).toEqual(['approval-request', 'approval-decision'])
      expect(allowed).toEqual([])
    },
  )

  it('alone takes a plan as its answer', async () => {
    const { queue } = open()
    const decision = queue.ask(question({ tool: 'delete_file' }))
    await expect.poll(() => queue.pending).toEqual(['p1'])
    expect(queue.answer('p1', { decision: 'allow', scope: 'once', plan: mine })).toMatchObject({
      taken: false,
    })
    queue.close()
    await decision
  })

  it('is denied where nobody is there, with the flag that would allow it, which does [S1.11]', async () => {
    const alone = open({ interactive: false })
    expect((await alone.queue.ask(question())).decision).toBe('deny')
    expect(alone.events[1]).toMatchObject({
      by: 'mode',
      rule: expect.stringContaining('option approvals.mode: all') as string,
    })
    expect(alone.allowed).toEqual([])
    const all = open({ interactive: false, mode: 'all' })
    expect((await all.queue.ask(question())).decision).toBe('allow')
    expect(all.allowed).toEqual([plan])
  })

  it('is answered by rules that name it, by its goal where they have a pattern [S1.11]', async () => {
    const rules: ApprovalRule[] = [
      { effect: 'allow', tool: 'submit_plan', pattern: 'Tidy *' },
      { effect: 'deny', tool: 'submit_plan', pattern: '*production*', reason: 'not there' },
    ]
    const { queue, allowed } = open({ rules, interactive: false })
    expect((await queue.ask(question())).decision).toBe('allow')
    const elsewhere = JSON.stringify({ ...plan, goal: 'Tidy production' })
    expect(await queue.ask(question({ approvalId: 'p2', arguments: elsewhere }))).toEqual({
      decision: 'deny',
      hint: 'not there',
    })
    expect(allowed).toEqual([plan])
  })
})

describe('rules about plans', () => {
  it('have plans asked about where they are strict and name them, and are no rules about a tool', () => {
    const ask: ApprovalRule = { effect: 'ask', tool: 'submit_plan' }
    expect(asksAboutPlan([ask])).toBe(true)
    expect(asksAboutPlan([{ effect: 'deny', tool: 'submit_plan' }])).toBe(true)
    expect(asksAboutPlan([{ effect: 'allow', tool: 'submit_plan' }])).toBe(false)
    expect(asksAboutPlan([{ effect: 'ask', tool: '*' }])).toBe(false)
    expect(toolsNamedByRules([ask, { effect: 'deny', tool: 'run_bash' }], ['run_bash'])).toEqual(['run_bash'])
  })
})

describe('a plan from outside', () => {
  it('is read whole, or refused with the places [A.11]', () => {
    expect(readPlanText(JSON.stringify(plan))).toEqual({ ok: true, value: plan })
    expect(readPlanText('{"goal":"g","steps":[{"id":"A b"}]}')).toMatchObject({
      ok: false,
      error: expect.stringMatching(/steps\.0\.id: expected 1 to 32/) as string,
    })
    expect(readPlanText('{oops')).toMatchObject({
      ok: false,
      error: expect.stringMatching(/^not JSON/) as string,
    })
    expect(parseOutsidePlan(null)).toMatchObject({
      ok: false,
      error: expect.stringMatching(/^the plan: /) as string,
    })
  })

  it('is found in a question of the root agent about one, and nowhere else', () => {
    expect(planOf(question())).toEqual(plan)
    expect(planOf(question({ arguments: '{"goal":1}' }))).toBeUndefined()
    expect(planOf(question({ tool: 'write_file' }))).toBeUndefined()
    expect(planOf(question({ agentPath: 'root/helper' }))).toBeUndefined()
  })
})
