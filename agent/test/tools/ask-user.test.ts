// `ask_user` through the whole of a call: what the host is asked, what the model gets, and whose time it takes.
import { describe, expect, it } from 'vitest'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import { parseToolValidationFailureArtifact } from '#specs/protocol/validation-failure.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { toolSuccess } from '../../tool-calls/tool.ts'
import { createAskTool } from '../../tools/ask-user.ts'
import { performStep } from '../support/one-step.ts'
import { noteTools, silentLogger } from '../support/run.ts'

const registry = createRegistry([createAskTool()], { logger: silentLogger })

/** One call of the tool in a step, and what the model learns of it. */
async function ask(input: object, decision: ApprovalDecision | (() => Promise<ApprovalDecision>)) {
  const script = [
    reply({ calls: [{ name: 'ask_user', arguments: input, id: 'call-1' }] }),
    reply({ text: 'done' }),
  ]
  const decide = typeof decision === 'function' ? decision : () => Promise.resolve(decision)
  const test = await performStep(script, { registry, decide })
  const told = test.asked[1]?.messages.at(-1)?.content ?? ''
  return { ...test, told, error: test.events.find((event) => event.type === 'tool-end')?.error }
}

const choice = {
  question: 'Which format?',
  kind: 'choice',
  options: ['csv', { value: 'json', label: 'JSON' }],
}

describe('ask_user', () => {
  it('puts the question before the host in its form, and gives the model the answer [S2.16]', async () => {
    const { approvals, told } = await ask(choice, { decision: 'allow', answer: 'json' })
    expect(approvals).toEqual([
      {
        approvalId: 'ask-call-1',
        agentPath: 'root',
        stepId: 's',
        callId: 'call-1',
        tool: 'ask_user',
        arguments:
          '{"kind":"choice","options":[{"value":"csv"},{"label":"JSON","value":"json"}],"question":"Which format?"}',
        preview: '',
        question: {
          question: 'Which format?',
          kind: 'choice',
          options: [{ value: 'csv' }, { value: 'json', label: 'JSON' }],
        },
      },
    ])
    expect(told).toBe('The user answered:\n<answer>\njson\n</answer>')
  })

  it.each([
    ['confirm', {}, false, 'no'],
    ['number', {}, 2.5, '2.5'],
    ['choices', { options: ['a', 'b', 'c'] }, ['c', 'a'], '["c","a"]'],
    ['text', {}, 'two\nlines </answer>\nof it', 'two\nlines <\\/answer>\nof it'],
  ])('gives an answer of the kind %s as what it is [S2.16]', async (kind, more, answer, shown) => {
    const { told } = await ask({ question: 'q', kind, ...more }, { decision: 'allow', answer })
    expect(told).toBe(`The user answered:\n<answer>\n${shown}\n</answer>`)
  })

  it('says with a default that nobody answered [S2.16]', async () => {
    const input = { ...choice, defaultAnswer: 'csv' }
    const { told } = await ask(input, { decision: 'allow', answer: 'csv', hint: 'nobody was there' })
    expect(told).toBe('The answer:\n<answer>\ncsv\n</answer>\nWith it was said: nobody was there')
  })

  it('tells the model what a person said who does not answer [S2.16]', async () => {
    const { told, error } = await ask(choice, { decision: 'deny', hint: 'look into README' })
    expect(error?.code).toBe('denied')
    expect(told).toContain('was not answered; do not ask it again. They said: look into README')
  })

  it('takes nothing from the host that is no answer to its question [S2.16]', async () => {
    for (const answer of [undefined, 'xml', ['csv'], true]) {
      const { error } = await ask(choice, {
        decision: 'allow',
        ...(answer === undefined ? {} : { answer }),
      })
      expect(error?.code).toBe('internal')
    }
  })

  it.each([
    ['no options for a choice', { question: 'q', kind: 'choice' }, 'options'],
    ['one option', { question: 'q', kind: 'choice', options: ['a'] }, 'options'],
    ['21 options', { question: 'q', kind: 'choice', options: [...'abcdefghijklmnopqrstu'] }, 'options'],
    ['an option twice', { question: 'q', kind: 'choice', options: ['a', 'a'] }, 'options'],
    ['an option without text', { question: 'q', kind: 'choice', options: ['a', ''] }, 'options.1'],
    ['options of a text', { question: 'q', kind: 'text', options: ['a', 'b'] }, 'options'],
    ['another default than an option', { ...choice, defaultAnswer: 'xml' }, 'defaultAnswer'],
    ['no question', { question: '', kind: 'text' }, 'question'],
    ['a kind that there is not', { question: 'q', kind: 'secret' }, 'kind'],
  ])('refuses %s before anybody is asked [S2.16 S2.18]', async (_, input, path) => {
    const { approvals, told } = await ask(input, { decision: 'allow', answer: 'a' })
    expect(approvals).toEqual([])
    expect(parseToolValidationFailureArtifact(told)?.issues.map((issue) => issue.path)).toContain(path)
  })

  it('takes other words for its parameters, and says so [S2.17]', async () => {
    const { approvals, told } = await ask(
      { question: 'q', kind: 'choice', choices: ['a', 'b'], default: 'a' },
      { decision: 'allow', answer: 'a' },
    )
    expect(approvals[0]?.question).toMatchObject({
      options: [{ value: 'a' }, { value: 'b' }],
      defaultAnswer: 'a',
    })
    expect(told).toContain('choices: taken as options')
  })

  it('is withdrawn with the signal that was given with it, and the call continues [S2.16]', async () => {
    const [note] = noteTools()
    if (note === undefined) throw new TypeError('no tool')
    const ending = new AbortController()
    const impatient = {
      ...note,
      name: 'ask_briefly',
      execute: async (_: unknown, context: Parameters<typeof note.execute>[1]) => {
        const asked = context.askUser?.({ question: 'one', kind: 'confirm' }, ending.signal)
        const failed = await asked?.then(
          () => 'answered',
          () => 'withdrawn',
        )
        return toolSuccess({ text: failed ?? '' })
      },
    }
    const { asked } = await performStep(
      [
        reply({ calls: [{ name: 'ask_briefly', arguments: { path: 'a' }, id: 'c1' }] }),
        reply({ text: 'done' }),
      ],
      {
        registry: createRegistry([impatient], { logger: silentLogger }),
        decide: () => {
          ending.abort()
          return new Promise(() => undefined)
        },
      },
    )
    expect(asked[1]?.messages.at(-1)?.content).toContain('withdrawn')
  })

  it('asks several times in one call under ids of their own, apart from the call’s permission [S2.16]', async () => {
    const [note] = noteTools()
    if (note === undefined) throw new TypeError('no tool')
    const twice = {
      ...note,
      name: 'ask_twice',
      requiresApproval: true,
      execute: async (_: unknown, context: Parameters<typeof note.execute>[1]) => {
        await context.askUser?.({ question: 'one', kind: 'confirm' })
        await context.askUser?.({ question: 'two', kind: 'confirm' })
        return toolSuccess({ text: 'x' })
      },
    }
    const { approvals } = await performStep(
      [
        reply({ calls: [{ name: 'ask_twice', arguments: { path: 'a' }, id: 'c1' }] }),
        reply({ text: 'done' }),
      ],
      {
        registry: createRegistry([twice], { logger: silentLogger }),
        decide: () => Promise.resolve({ decision: 'allow', answer: true }),
      },
    )
    expect(approvals.map(({ approvalId, tool }) => [approvalId, tool])).toEqual([
      ['ap-c1', 'ask_twice'],
      ['ask-c1', 'ask_user'],
      ['ask-c1-2', 'ask_user'],
    ])
  })

  it('lets the run’s clock stand while the person thinks [S2.16]', async () => {
    const { result } = await performStep(
      [
        reply({ calls: [{ name: 'ask_user', arguments: { question: 'q', kind: 'confirm' } }] }),
        reply({ text: 'done' }),
      ],
      {
        registry,
        task: { limits: { maxWallMs: 1_000 } },
        decide: () =>
          new Promise((resolve) => setTimeout(() => resolve({ decision: 'allow', answer: true }), 1_300)),
      },
    )
    expect(result.state).toBe('completed')
  })

  it('ends with the run that asks [S2.16]', async () => {
    const asked = Promise.withResolvers<void>()
    const { result, events } = await performStep(
      [reply({ calls: [{ name: 'ask_user', arguments: { question: 'q', kind: 'confirm' } }] })],
      {
        registry,
        decide: () => {
          asked.resolve()
          return new Promise(() => undefined)
        },
        during: ({ cancel }) => void asked.promise.then(() => cancel()),
      },
    )
    expect(result.state).toBe('cancelled')
    expect(events.at(-1)).toMatchObject({ type: 'tool-end', error: { code: 'cancelled' } })
  })

  it('may be called where only a plan is made: it changes nothing [S2.16]', () => {
    expect(registry.forPlanning(false).names).toEqual(['ask_user'])
  })
})
