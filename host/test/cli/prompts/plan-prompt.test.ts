// A person at a keyboard in memory, before a plan; the editor is a function that gives what they wrote.
import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import { promptApproval } from '../../../cli/prompts/approval-prompt.ts'
import type { PlanPromptIo } from '../../../cli/prompts/plan-prompt.ts'
import { toPlainJson } from '../../../cli/render/json-lines.ts'
import { Person } from '../support/person.ts'

const step = (id: string, more: object = {}) => ({ id, title: `Do ${id}`, instructions: 'do it', ...more })
const plan = Plan.parse({ goal: 'A goal', steps: [step('a'), step('b', { needs: ['a'] })] })

function sitDown(io: Partial<PlanPromptIo> = {}, about: Plan = plan) {
  const request = {
    approvalId: 'p1',
    agentPath: 'root',
    stepId: 'plan',
    callId: 'plan',
    tool: 'submit_plan',
    arguments: JSON.stringify(about),
    preview: 'what the agent says of it',
  }
  const person = new Person()
  const { input, output, signal } = person
  return Object.assign(person, { answer: promptApproval(request, { input, output, signal, ...io }) })
}

describe('the question about a plan', () => {
  it('shows goal and steps from the plan itself, and Enter says nothing [S1.11 H.01 A.11]', async () => {
    const person = sitDown()
    await person.sees('Run this plan?')
    expect(stripVTControlCharacters(person.raw)).toContain('  │ Goal: A goal\n  │ 1. Do a\n')
    expect(stripVTControlCharacters(person.raw)).toContain('2. Do b')
    expect(stripVTControlCharacters(person.raw)).not.toContain('what the agent says of it')
    expect(stripVTControlCharacters(person.raw)).not.toContain('edit it first')
    person.type('\r')
    await person.sees('Type 1-4, y, n')
    person.type('n\r')
    expect(await person.answer).toEqual({ decision: 'deny', scope: 'once' })
  })

  it('takes a yes, for this plan or for every later one [S1.11 A.11]', async () => {
    for (const [keys, scope] of [
      ['1\r', 'once'],
      ['y\r', 'once'],
      ['2\r', 'run'],
    ] as const) {
      const person = sitDown()
      await person.sees('Run this plan?')
      person.type(keys)
      expect(await person.answer).toEqual({ decision: 'allow', scope })
    }
  })

  it('says of a revision what it changes [A.11]', async () => {
    const current = Plan.parse({ goal: 'A goal', steps: [step('a'), step('c')] })
    const person = sitDown({ current })
    await person.sees('Run this plan?')
    expect(stripVTControlCharacters(person.raw)).toContain(
      '  changes:\n  + 2. Do b (after 1)\n  - Do c\n    1 step as before',
    )
    person.withdraw()
    expect(await person.answer).toBeNull()
    const same = sitDown({ current: plan })
    await same.sees('Run this plan?')
    expect(stripVTControlCharacters(same.raw)).not.toContain('  changes:')
    same.withdraw()
    await same.answer
  })

  it('is answered with the plan as the person changed it, once it is one and touches nothing that has begun [S1.11 A.11]', async () => {
    const mine = { ...plan, goal: 'My goal' }
    const written = ['{oops', JSON.stringify({ ...plan, goal: 'touches' }), JSON.stringify(mine)]
    const given: string[] = []
    const person = sitDown({
      edit: async (text) => {
        given.push(text)
        return { ok: true, value: written[given.length - 1] ?? '' }
      },
      findPlanProblems: ({ goal }) =>
        goal === 'touches' ? ['step "a" is running and cannot be changed'] : [],
    })
    await person.sees('edit it first')
    person.type('3\r')
    await person.sees('What now?')
    expect(stripVTControlCharacters(person.raw)).toContain('│ not JSON')
    person.type('1\r')
    await person.sees('What now?')
    expect(stripVTControlCharacters(person.raw)).toContain('│ step "a" is running and cannot be changed')
    person.type('1\r')
    await person.sees('Run the edited plan?')
    expect(stripVTControlCharacters(person.raw)).toContain('~ the goal: My goal')
    person.type('1\r')
    expect(await person.answer).toEqual({ decision: 'allow', scope: 'once', plan: mine })
    expect(given).toEqual([toPlainJson(plan), '{oops', written[1]])
  })

  it('continues as it was when nothing was changed, the editor failed, or the person thinks better of it', async () => {
    const person = sitDown({ edit: async (text) => ({ ok: true, value: text }) })
    await person.sees('edit it first')
    person.type('3\r')
    await person.sees('Run this plan?')
    person.type('4\r')
    expect(await person.answer).toEqual({ decision: 'deny', scope: 'once' })
    const other = sitDown({ edit: async () => ({ ok: false, error: 'the editor ended with 1' }) })
    await other.sees('edit it first')
    other.type('3\r')
    await other.sees('What now?')
    expect(stripVTControlCharacters(other.raw)).toContain('the editor ended with 1')
    other.type('2\r')
    await other.sees('Run this plan?')
    other.type('n\r')
    expect(await other.answer).toEqual({ decision: 'deny', scope: 'once' })
  })
})

describe('a plan in an editor', () => {
  it('means the same and holds nothing that a terminal or an editor obeys [H.01]', () => {
    const hostile = {
      goal: 'a\u009b31m\u202e vim: set exrc: -*- eval: x -*- Local Variables: vi:x ex<700: é',
      steps: ['// vim:set modeline', 'vim600: x'],
    }
    const text = toPlainJson(hostile)
    expect(JSON.parse(text)).toEqual(hostile)
    expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u)
    expect(text).not.toMatch(/(vim?|ex)[<=>]?\d*:|Local Variables:|-\*-/)
    expect(text).toContain('é')
  })
})
