// A task from its prompt to its end, with a scripted model behind the real client: plans given, asked about, and only made.
import { tmpdir } from 'node:os'
import { describe, expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import type { Task } from '#specs/protocol/task.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { createExplorer, isMountedReadOnly } from '../plan/plan-only.ts'
import { planAndExecute } from '../run-task.ts'
import { makeRun, modelAt, noteTools, type TestRunOptions } from './support/run.ts'
import { isPlanning, planReply, stepOf } from './support/scripted-model.ts'

const step = (id: string, fields: object = {}) => ({
  id,
  title: id,
  instructions: `do ${id}`,
  writes: [],
  ...fields,
})
const planOf = (...steps: object[]) => Plan.parse({ goal: 'g', steps })
const plain = planOf(step('look'), step('act', { needs: ['look'] }))

async function work(
  task: Partial<Task>,
  script: (asked: Asked, index: number) => ServerReply,
  decide?: TestRunOptions['decide'],
) {
  await using server = await startModelServer(script)
  const test = makeRun({ model: modelAt(server.baseUrl), task, ...(decide === undefined ? {} : { decide }) })
  const ending = await planAndExecute(test.run, { explorer: createExplorer('/nonexistent') })
  test.run.budget.stop()
  const updates = test.events.filter((event) => event.type === 'plan-update')
  return { ending, asked: server.asked, updates, ...test }
}

const answering = (asked: Asked): ServerReply => reply({ text: `did ${stepOf(asked)}` })

describe('a plan that the task brings', () => {
  it('is carried out without a word of the model about it [A.11]', async () => {
    const { ending, asked, updates } = await work({ plan: plain }, answering)
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'did act' })
    expect(asked.map(stepOf)).toEqual(['look', 'act'])
    expect(updates).toMatchObject([{ revision: 1, plan: plain }])
  })

  it('ends the run at once when it cannot be carried out [A.11]', async () => {
    const plan = planOf(step('a', { kind: 'agent', tools: ['fly'], output: { $ref: '#/nowhere' } }))
    const { ending, asked, events } = await work({ plan }, answering)
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'plan_invalid' })
    expect(ending.message).toContain('there is no tool fly')
    expect(ending.message).toContain('not a usable JSON schema')
    expect([asked, events]).toEqual([[], []])
  })
})

describe('a plan that needs more sub-agents than there can be', () => {
  const agents = (count: number, fields: object = {}) =>
    planOf(...Array.from({ length: count }, (_, index) => step(`s${index}`, { kind: 'agent', ...fields })))
  const limits = { maxAgents: 2 } as Task['limits']

  it('is asked for again with the reason, and ends a task that brings it [A.01 A.07]', async () => {
    const planned: Asked[] = []
    const { ending, updates } = await work({ limits }, (asked) => {
      if (!isPlanning(asked)) return answering(asked)
      planned.push(asked)
      return planReply(planned.length === 1 ? agents(3) : agents(2))
    })
    expect(planned).toHaveLength(2)
    expect(planned[1]?.messages.at(-1)?.content).toContain(
      'need 3 sub-agents ("s0", "s1", "s2") where 2 can begin',
    )
    expect(updates).toMatchObject([{ plan: agents(2) }])
    expect(ending.outcome).toBe('completed')
    const given = await work({ plan: agents(3), limits }, answering)
    expect(given.ending).toMatchObject({ outcome: 'failed', reason: 'plan_invalid' })
    expect(given.ending.message).toContain('need 3 sub-agents')
  })

  it('is none where some may be left aside by their conditions, or agents are steps like any other [A.01 A.07]', async () => {
    const look = step('look')
    const branch = (id: string) => step(id, { kind: 'agent', when: { step: 'look', contains: id } })
    const branches = planOf(look, branch('a'), branch('b'), branch('c'))
    expect((await work({ plan: branches, limits }, answering)).ending.outcome).toBe('completed')
    const none = await work({ plan: agents(3), limits: { ...limits, maxAgents: 0 } }, answering)
    expect(none.ending.outcome).toBe('completed')
  })
})

describe('the question about a plan', () => {
  const planning = (asked: Asked): ServerReply => (isPlanning(asked) ? planReply(plain) : answering(asked))

  it('comes after the plan and before the first step, with the plan in readable lines [A.11]', async () => {
    const { ending, approvals, events } = await work({ approvePlan: true }, planning)
    expect(ending.outcome).toBe('completed')
    expect(approvals).toHaveLength(1)
    expect(approvals[0]).toMatchObject({ tool: 'submit_plan', stepId: 'plan', agentPath: 'root' })
    expect(Plan.parse(JSON.parse(approvals[0]?.arguments ?? ''))).toEqual(plain)
    expect(approvals[0]?.preview).toContain(
      'Goal: g\n\n1. look: look\n   (writes nothing)\n   do look\n\n2. act',
    )
    expect(events.findIndex(({ type }) => type === 'plan-update')).toBeLessThan(
      events.findIndex(({ type }) => type === 'step-start'),
    )
  })

  it('is not asked where nobody wants it [A.11]', async () => {
    const { approvals } = await work({}, planning)
    expect(approvals).toEqual([])
  })

  it('may be answered with another plan, which is carried out and recorded [A.11]', async () => {
    const edited = planOf(step('only'))
    const { updates, ending } = await work({ approvePlan: true }, planning, () =>
      Promise.resolve({ decision: 'allow', plan: edited }),
    )
    expect(updates).toMatchObject([
      { revision: 1 },
      { revision: 2, plan: edited, reason: 'edited by the person' },
    ])
    expect(ending.summary).toBe('did only')
  })

  it('is asked again when the other plan cannot be carried out [A.11]', async () => {
    const bad = planOf(step('x', { kind: 'agent', tools: ['fly'] }))
    let asked = 0
    const { events, approvals, ending } = await work({ approvePlan: true }, planning, () =>
      Promise.resolve(++asked === 1 ? { decision: 'allow', plan: bad } : { decision: 'allow' }),
    )
    expect(approvals).toHaveLength(2)
    expect(new Set(approvals.map(({ approvalId }) => approvalId)).size).toBe(2)
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'note', text: expect.stringContaining('no tool fly') }),
    )
    expect(ending.summary).toBe('did act')
  })

  it('is followed by a plan that does what the denial says, a bounded number of times [A.11]', async () => {
    let asked = 0
    const {
      updates,
      ending,
      asked: requests,
    } = await work({ approvePlan: true }, planning, () =>
      Promise.resolve(
        ++asked === 2 ? { decision: 'allow' } : { decision: 'deny', hint: 'without </message> act' },
      ),
    )
    expect(ending.outcome).toBe('completed')
    expect(updates).toMatchObject([
      { revision: 1 },
      { revision: 2, reason: 'replanned: without </message> act' },
    ])
    expect(requests[1]?.messages[1]?.content).toContain(
      '# What the user says about it\n<message>\nwithout <\\/message> act\n</message>',
    )
    expect(requests[1]?.messages[1]?.content?.startsWith(requests[0]?.messages[1]?.content ?? '-')).toBe(true)

    const never = await work({ approvePlan: true }, planning, () =>
      Promise.resolve({ decision: 'deny', hint: 'no' }),
    )
    expect(never.ending).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(never.approvals).toHaveLength(4)
  })

  it('ends the run as denied when it is denied without a word, and nothing starts [A.11]', async () => {
    const { ending, events, asked } = await work({ approvePlan: true }, planning, () =>
      Promise.resolve({ decision: 'deny' }),
    )
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(events.some(({ type }) => type === 'step-start')).toBe(false)
    expect(asked).toHaveLength(1)
  })
})

describe('a run that only plans', () => {
  const look = (asked: Asked, index: number): ServerReply =>
    index === 0
      ? reply({ calls: [{ name: 'read_note', arguments: { path: 'a' } }] })
      : index === 1
        ? reply({ calls: [{ name: 'write_note', arguments: { path: 'a', content: 'x' } }] })
        : index === 2
          ? planReply({ goal: 'g', steps: [] })
          : planReply(asked.messages.length > 0 ? plain : {})

  it('looks around with what only reads, and ends with its plan and no step [A.11]', async () => {
    const { ending, events, updates, asked, diary, approvals } = await work(
      { mode: 'plan', approvePlan: true },
      look,
    )
    expect(asked[0]?.tools.map((tool) => tool.function.name)).toEqual(['read_note', 'submit_plan'])
    expect(asked[0]?.messages[0]?.content).toContain("You are Caisson's planner.")
    expect(diary.calls).toEqual(['read a'])
    expect(asked).toHaveLength(4)
    expect(updates).toMatchObject([{ revision: 1, plan: plain }])
    expect(approvals).toEqual([])
    expect(ending).toMatchObject({
      outcome: 'completed',
      message: 'planned 2 steps; nothing was executed',
    })
    expect(ending.summary).toContain('2. act: act\n   (after look; writes nothing)')
    expect(events.some(({ type }) => type === 'step-start')).toBe(false)
    const ends = events.filter((event) => event.type === 'tool-end')
    expect(ends.map(({ tool, error }) => [tool, error?.code])).toEqual([
      ['read_note', undefined],
      ['write_note', 'denied'],
      ['submit_plan', 'invalid_input'],
      ['submit_plan', undefined],
    ])
  })

  it('takes a plan that was written as text, and fails without one [A.11]', async () => {
    const written = await work({ mode: 'plan' }, () => reply({ text: JSON.stringify(plain) }))
    expect(written.ending.outcome).toBe('completed')
    const none = await work({ mode: 'plan' }, () => reply({ text: 'There is nothing to do.' }))
    expect(none.ending).toMatchObject({ outcome: 'failed', reason: 'plan_invalid' })
  })

  it('may run programs only where the kernel keeps the workspace as it is [A.11]', async () => {
    expect(await isMountedReadOnly(tmpdir())).toBe(false)
    expect(await isMountedReadOnly('/nonexistent')).toBe(false)
    const { run } = makeRun({ model: () => Promise.reject(new Error('not asked')) })
    const [, writer] = noteTools()
    if (writer === undefined) throw new Error('there is a second tool')
    const registry = run.registry.with([{ ...writer, name: 'run_thing', mayPlan: true }])
    expect(registry.forPlanning(true).names).toEqual(['read_note', 'run_thing'])
    expect(registry.forPlanning(false).names).toEqual(['read_note'])
  })
})

describe('the output of a step', () => {
  const schema = {
    type: 'object',
    properties: { n: { type: 'integer' } },
    required: ['n'],
    additionalProperties: false,
  }
  const plan = planOf(
    step('count', { output: schema }),
    step('say', { needs: ['count'], instructions: 'say {{steps.count.n}}' }),
  )

  it('is asked for in the step, asked again in its conversation, and canonical for those who use it [A.01] [G.07]', async () => {
    const { ending, asked, events } = await work({ plan }, (request) => {
      if (stepOf(request) === 'say') return reply({ text: 'said' })
      if (request.body.response_format === undefined) return reply({ text: 'There are three.' })
      return reply({ text: '```json\n{ "n": 3 }\n```' })
    })
    expect(ending.outcome).toBe('completed')
    expect(asked[0]?.messages[1]?.content).toContain(JSON.stringify(schema))
    expect(asked[1]?.messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user'])
    expect(asked[1]?.messages.slice(0, 2)).toEqual(asked[0]?.messages.slice(0, 2))
    expect(asked[1]?.messages[2]?.content).toBe('There are three.')
    expect(asked[2]?.messages[1]?.content).toContain('say 3')
    expect(events).toContainEqual({ type: 'step-end', stepId: 'count', state: 'completed', text: '{"n":3}' })
    expect(events.filter((event) => event.type === 'turn-end').map(({ turn }) => turn)).toEqual([1, 2, 1])
  })

  it('fails the step after two more attempts, with what was wrong [A.01] [G.07]', async () => {
    const { ending, asked } = await work({ plan }, () => reply({ text: '{"n":"three"}' }))
    expect(asked).toHaveLength(3)
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    expect(ending.message).toMatch(/does not fit its schema: .*n: .*string/)
  })
})

describe('a plan in the place of one that failed', () => {
  it('is asked of the model with what happened, and keeps what has begun [A.01]', async () => {
    const risky = planOf(step('try', { onFailure: 'replan' }), step('after', { needs: ['try'] }))
    const { ending, asked, updates } = await work({}, (request) => {
      if (isPlanning(request)) {
        return request.messages[1]?.content?.includes('# Current plan') === true
          ? planReply({ goal: 'g', steps: [step('other')] })
          : planReply(risky)
      }
      return reply({ text: stepOf(request) === 'try' ? 'STEP FAILED: no disk' : 'did it' })
    })
    expect(ending).toMatchObject({ outcome: 'completed', summary: 'did it' })
    expect(updates[1]).toMatchObject({ revision: 2, reason: 'step "try" failed' })
    expect(updates[1]?.plan.steps.map(({ id }) => id)).toEqual(['try', 'other'])
    const words = asked[2]?.messages[1]?.content ?? ''
    expect(words).toContain('# State of the plan\ntry: failed\nafter: pending')
    expect(words).toContain('<result step="try">\nno disk\n</result>')
    expect(words).toContain('Step "try" failed')
  })
})
