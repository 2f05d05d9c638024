// Questions of the agent to the person: what answers them, what does not, and what a hostile agent makes of them.
import { describe, expect, it } from 'vitest'
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { UserQuestion } from '#specs/protocol/question.ts'
import { type ApprovalAnswer, ApprovalQueue, type ApprovalQueueOptions } from '../../approvals/queue.ts'
import { toolsNamedByRules } from '../../approvals/rules.ts'
import { describeAnswer } from '../../approvals/user-question.ts'

const choice: UserQuestion = {
  question: 'Which format?',
  kind: 'choice',
  options: [{ value: 'csv' }, { value: 'json', label: 'JSON, one line a record' }],
}

const ask = (question: UserQuestion, over: Partial<ApprovalRequest> = {}): ApprovalRequest => ({
  approvalId: 'q1',
  runId: 'run-00000000000000000001',
  agentPath: 'root',
  stepId: 's',
  callId: 'c',
  tool: 'ask_user',
  arguments: JSON.stringify(question),
  preview: '',
  question,
  ...over,
})

function open(options: Partial<ApprovalQueueOptions> = {}) {
  const events: HostEvent[] = []
  const record = async (event: HostEvent) => events.push(event)
  const queue = new ApprovalQueue({ mode: 'ask', rules: [], interactive: true, record, ...options })
  return { queue, events }
}

/** The question put before a person. */
async function asked(question: UserQuestion, options: Partial<ApprovalQueueOptions> = {}) {
  const opened = open(options)
  const decision = opened.queue.ask(ask(question))
  await expect.poll(() => opened.queue.pending).toEqual(['q1'])
  return { ...opened, decision, answer: (given: ApprovalAnswer) => opened.queue.answer('q1', given) }
}

const yes = { decision: 'allow', scope: 'once' } as const

describe('a question to the person', () => {
  it('takes the first answer of its form, journals it and hands it to the agent [S2.16]', async () => {
    const { answer, decision, events } = await asked(choice)
    expect(answer({ ...yes, answer: 'json' })).toMatchObject({ taken: true })
    expect(answer({ ...yes, answer: 'csv' })).toMatchObject({ taken: false })
    expect(await decision).toEqual({ decision: 'allow', answer: 'json' })
    expect(events[0]).toMatchObject({ type: 'approval-request', request: { question: choice } })
    expect(events[1]).toMatchObject({ type: 'approval-decision', by: 'person', answer: 'json' })
  })

  it('stays open for an answer of another form, of more than once, or of another kind of question [S2.16]', async () => {
    const wrong: Record<UserQuestion['kind'], readonly unknown[]> = {
      text: [1, true, ['a'], undefined],
      number: ['1', Number.NaN, Number.POSITIVE_INFINITY],
      confirm: ['yes', 1],
      choice: ['xml', ['csv'], ''],
      choices: ['csv', ['csv', 'csv'], ['xml']],
    }
    for (const [kind, answers] of Object.entries(wrong)) {
      const options = kind.startsWith('choice') ? { options: choice.options } : {}
      const { answer, queue } = await asked(UserQuestion.parse({ question: 'q', kind, ...options }))
      for (const one of answers)
        expect(answer({ ...yes, answer: one as never })).toMatchObject({ taken: false })
      expect(queue.pending).toEqual(['q1'])
    }
    const { answer } = await asked(choice)
    const plan = { goal: 'g', steps: [] } as never
    for (const more of [{ scope: 'run' }, { scope: 'always' }, { reach: 'host' }, { plan }] as const)
      expect(answer({ ...yes, answer: 'csv', ...more })).toMatchObject({ taken: false })
    expect(answer({ decision: 'deny', scope: 'once', answer: 'csv' })).toMatchObject({ taken: false })
    expect(answer({ ...yes, answer: 'csv' })).toMatchObject({ taken: true })
  })

  it('can be declined in words, for this time or for the run [S2.16]', async () => {
    const { answer, decision, queue } = await asked(choice)
    expect(answer({ decision: 'deny', scope: 'run', hint: 'you decide' })).toMatchObject({ taken: true })
    expect(await decision).toEqual({ decision: 'deny', hint: 'you decide' })
    expect((await queue.ask(ask(choice, { approvalId: 'q2' }))).decision).toBe('deny')
    expect(queue.pending).toEqual([])
  })

  it('takes another text than an option where it says so, and no other form of it [S2.16]', async () => {
    const { answer } = await asked({ ...choice, allowOther: true })
    expect(answer({ ...yes, answer: 7 })).toMatchObject({ taken: false })
    expect(answer({ ...yes, answer: 'xml' })).toMatchObject({ taken: true })
  })

  it('is answered by no mode and no allow rule [S2.16]', async () => {
    const confirm: UserQuestion = { question: 'Drop the table?', kind: 'confirm' }
    const rules: ApprovalRule[] = [{ effect: 'allow', tool: '*' }]
    const { answer, decision } = await asked(confirm, { mode: 'all', rules })
    expect(answer({ ...yes })).toMatchObject({ taken: false })
    expect(answer({ ...yes, answer: false })).toMatchObject({ taken: true })
    expect(await decision).toEqual({ decision: 'allow', answer: false })
  })

  it('can be kept back by a rule, which looks at what is asked and not at what the agent says of it [S2.16]', async () => {
    const rules: ApprovalRule[] = [
      { effect: 'deny', tool: 'ask_user', pattern: '*password*', reason: 'never ask for one' },
    ]
    const { queue, events } = open({ rules })
    const lie = ask({ question: 'Your password?', kind: 'text' }, { arguments: '{"question":"Your name?"}' })
    expect(await queue.ask(lie)).toEqual({ decision: 'deny', hint: 'never ask for one' })
    expect(events[1]).toMatchObject({ by: 'rule' })
    expect(toolsNamedByRules([...rules, { effect: 'ask', tool: '*' }], ['ask_user', 'run_bash'])).toEqual([
      'run_bash',
    ])
  })

  it('gets its own default where nobody answers, and is denied where it has none [S2.16]', async () => {
    for (const options of [
      { interactive: false },
      { mode: 'none' },
      { mode: 'all', interactive: false },
    ] as const) {
      const { queue, events } = open(options)
      expect(await queue.ask(ask({ ...choice, defaultAnswer: 'csv' }))).toMatchObject({
        decision: 'allow',
        answer: 'csv',
        hint: expect.stringContaining('default'),
      })
      expect(events[1]).toMatchObject({ by: 'mode', answer: 'csv' })
      const none = await queue.ask(ask(choice, { approvalId: 'q2' }))
      expect(none).toMatchObject({ decision: 'deny', hint: expect.stringContaining('decide yourself') })
      expect(none.answer).toBeUndefined()
    }
    const { queue, decision } = await asked({ question: 'How many?', kind: 'number', defaultAnswer: 3 })
    queue.detach()
    expect(await decision).toMatchObject({ decision: 'allow', answer: 3 })
  })

  it('is denied with the end of the run, and takes no answer afterwards [S2.16]', async () => {
    const { queue, decision, answer, events } = await asked({ ...choice, defaultAnswer: 'csv' })
    queue.close()
    expect(await decision).toEqual({ decision: 'deny' })
    expect(answer({ ...yes, answer: 'csv' })).toMatchObject({ taken: false })
    expect(events.at(-1)).toMatchObject({ by: 'cancel' })
  })
})

describe('a question of an MCP server', () => {
  const server = { ...choice, server: 'travel', defaultAnswer: 'csv' } as const

  it('is answered by a person alone, never by its own default where nobody is there [A.09 S2.16]', async () => {
    for (const options of [
      { interactive: false },
      { mode: 'none' },
      { mode: 'all', interactive: false },
    ] as const) {
      const { queue, events } = open(options)
      const decision = await queue.ask(ask(server))
      expect(decision.decision).toBe('deny')
      expect(decision.answer).toBeUndefined()
      expect(events[1]).toMatchObject({ by: 'mode', rule: expect.stringContaining('MCP server') })
    }
    const left = await asked(server)
    left.queue.detach()
    expect(await left.decision).toMatchObject({ decision: 'deny' })
    const there = await asked(server)
    expect(there.answer({ ...yes, answer: 'csv' })).toMatchObject({ taken: true })
    expect(await there.decision).toMatchObject({ decision: 'allow', answer: 'csv' })
  })

  it('gets nothing that looks like a secret, from whichever surface it comes [A.09]', async () => {
    const question = { question: 'What is it?', kind: 'text', server: 'travel' } as const
    const { answer, queue } = await asked(question)
    expect(answer({ ...yes, answer: 'sk-0123456789abcdef0123456789' })).toMatchObject({ taken: false })
    expect(queue.pending).toEqual(['q1'])
    expect(describeAnswer(question)).toBe('a text without passwords, keys and tokens')
    expect(answer({ ...yes, answer: 'a lamp' })).toMatchObject({ taken: true })
    // The agent's own question is answered as it was.
    const { server: _, ...own } = question
    const mine = await asked(own)
    expect(mine.answer({ ...yes, answer: 'sk-0123456789abcdef0123456789' })).toMatchObject({ taken: true })
  })

  it('can be kept back by a rule about the server [A.09]', async () => {
    const rules: ApprovalRule[] = [
      { effect: 'deny', tool: 'ask_user', argument: 'server', pattern: 'tra*', reason: 'not that one' },
    ]
    const { queue } = open({ rules })
    expect(await queue.ask(ask(server))).toEqual({ decision: 'deny', hint: 'not that one' })
    void queue.ask(ask({ ...choice, server: 'other' }, { approvalId: 'q2' }))
    void queue.ask(ask(choice, { approvalId: 'q3' }))
    await expect.poll(() => queue.pending).toEqual(['q2', 'q3'])
  })
})

describe('a hostile agent', () => {
  it('gets no question put that is none, nor an answer for a call that is no question [S2.16]', async () => {
    const { queue } = open({ mode: 'all' })
    const { question: _, ...bare } = ask(choice)
    expect((await queue.ask(bare)).decision).toBe('deny')
    expect((await queue.ask(ask(choice, { approvalId: 'q2', tool: 'delete_file' }))).decision).toBe('deny')
    const { queue: asking } = open()
    void asking.ask({ ...bare, approvalId: 'q3', tool: 'delete_file' })
    await expect.poll(() => asking.pending).toEqual(['q3'])
    expect(asking.answer('q3', { ...yes, answer: 'csv' })).toMatchObject({ taken: false })
    expect(asking.answer('q3', yes)).toMatchObject({ taken: true })
  })

  it('asks a person no more than so often in a run, whoever of its agents asks [S2.16]', async () => {
    const { queue } = open()
    for (let at = 0; at < limits.runMaxQuestions; at++) {
      const approvalId = `q-${at}`
      const decision = queue.ask(ask(choice, { approvalId, agentPath: at % 2 === 0 ? 'root' : 'root/a' }))
      queue.answer(approvalId, { ...yes, answer: 'csv' })
      expect(await decision).toMatchObject({ answer: 'csv' })
    }
    const flood = await queue.ask(ask(choice, { approvalId: 'one-more' }))
    expect(flood).toMatchObject({ decision: 'deny', hint: expect.stringContaining('decide yourself') })
  })
})

describe('the form of a question', () => {
  it('has options where it is a choice and there alone, no two of one value, and a default that answers it [S2.16]', () => {
    const options = [{ value: 'a' }, { value: 'b' }]
    for (const wrong of [
      { kind: 'choice' },
      { kind: 'text', options },
      { kind: 'choice', options: [{ value: 'a' }, { value: 'a', label: 'other' }] },
      { kind: 'choice', options: [{ value: 'a' }] },
      { kind: 'choice', options: Array.from({ length: 21 }, (_, at) => ({ value: `${at}` })) },
      { kind: 'choices', options, allowOther: true },
      { kind: 'choice', options, defaultAnswer: 'c' },
      { kind: 'choices', options, defaultAnswer: ['a', 'a'] },
      { kind: 'number', defaultAnswer: 'three' },
      { kind: 'number', defaultAnswer: Number.NaN },
    ])
      expect(UserQuestion.safeParse({ question: 'q', ...wrong }).success).toBe(false)
    expect(
      UserQuestion.safeParse({ question: 'q', kind: 'choices', options, defaultAnswer: [] }).success,
    ).toBe(true)
  })

  it('is said in words to who answered otherwise', () => {
    expect(describeAnswer({ ...choice, allowOther: true })).toBe('one of "csv", "json", or another text')
    expect(describeAnswer({ question: 'q', kind: 'confirm' })).toBe('true or false')
  })
})
