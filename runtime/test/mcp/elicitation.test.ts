// What a server asks the person while it is called: each field a question with a form of answer, and what is put to nobody.
import type { ElicitRequestFormParams } from '@modelcontextprotocol/client'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import fc from 'fast-check'
import { describe, expect, it, vi } from 'vitest'
import { type UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import { type AskPerson, answerElicitation, ElicitationRefusal } from '../../mcp/elicitation.ts'
import { LinkedServer } from './support/linked-server.ts'

type Fields = ElicitRequestFormParams['requestedSchema']['properties']
const never = new AbortController().signal

const form = (properties: object, required?: string[]): ElicitRequestFormParams => ({
  message: 'Where to?',
  requestedSchema: {
    type: 'object',
    properties: properties as Fields,
    ...(required === undefined ? {} : { required }),
  },
})

/** A person who answers in this order, and then no more. */
function person(...answers: (UserAnswer | null)[]) {
  const questions: UserQuestion[] = []
  const ask: AskPerson = (question) => {
    questions.push(question)
    return Promise.resolve(answers[questions.length - 1] ?? null)
  }
  return { questions, ask }
}

const answer = (params: ElicitRequestFormParams, ask: AskPerson) => answerElicitation(params, ask, never)

describe('a form of a server', () => {
  it('is asked field by field, each with its kind, its options, its default and its bounds [A.09] [S2.16]', async () => {
    const { questions, ask } = person('Bern', 3, true, 'w', ['a', 'b'], 'x')
    const params = form(
      {
        city: { type: 'string', title: 'City', description: 'of arrival', default: 'Basel', minLength: 2 },
        nights: { type: 'integer', minimum: 1, maximum: 9 },
        alone: { type: 'boolean', default: false },
        seat: {
          type: 'string',
          oneOf: [
            { const: 'w', title: 'Window' },
            { const: 'i', title: 'Aisle' },
          ],
        },
        meals: { type: 'array', items: { type: 'string', enum: ['a', 'b', 'c'] }, maxItems: 2 },
        class: { type: 'string', enum: ['x', 'y'], enumNames: ['First', 'Second'] },
      },
      ['city', 'nights'],
    )
    expect(await answer(params, ask)).toEqual({
      action: 'accept',
      content: { city: 'Bern', nights: 3, alone: true, seat: 'w', meals: ['a', 'b'], class: 'x' },
    })
    expect(questions[0]).toEqual({
      question: 'Where to?\n\n1 of 6. City: of arrival (at least 2 characters)',
      kind: 'text',
      defaultAnswer: 'Basel',
    })
    expect(questions.slice(1)).toMatchObject([
      { kind: 'number', question: expect.stringContaining('nights (a whole number, at least 1, at most 9)') },
      { kind: 'confirm', defaultAnswer: false, question: expect.stringContaining('may be left unanswered') },
      { kind: 'choice', options: [{ value: 'w', label: 'Window' }, { value: 'i' }] },
      { kind: 'choices', options: [{ value: 'a' }, { value: 'b' }, { value: 'c' }] },
      { kind: 'choice', options: [{ value: 'x', label: 'First' }, { value: 'y' }] },
    ])
  })

  it('without fields is a yes or a no [A.09]', async () => {
    const yes = person(true)
    expect(await answer(form({}), yes.ask)).toEqual({ action: 'accept', content: {} })
    expect(yes.questions).toEqual([{ question: 'Where to?', kind: 'confirm' }])
    expect(await answer(form({}), person(false).ask)).toEqual({ action: 'decline' })
    expect(await answer(form({}), person(null).ask)).toEqual({ action: 'decline' })
  })

  it('leaves out what may be, and is declined where an answer is needed and none is given [A.09]', async () => {
    const fields = { city: { type: 'string' }, note: { type: 'string' } }
    const partly = await answer(form(fields, ['city']), person('Bern', null).ask)
    expect(partly).toEqual({ action: 'accept', content: { city: 'Bern' } })
    const refusing = person(null, 'x')
    expect(await answer(form(fields, ['city']), refusing.ask)).toEqual({ action: 'decline' })
    expect(refusing.questions).toHaveLength(1)
    expect(await answer(form(fields), person(null, null).ask)).toEqual({ action: 'decline' })
  })

  it('asks again where an answer is not what the server takes, three times at most [A.09]', async () => {
    const fields = { day: { type: 'string', format: 'date' } }
    const slow = person('31.1.2026', '2026-02-31', '2026-02-28')
    expect(await answer(form(fields, ['day']), slow.ask)).toMatchObject({ content: { day: '2026-02-28' } })
    expect(slow.questions[0]?.question).not.toContain('not taken')
    expect(slow.questions[1]?.question).toContain('was not taken: expected a date such as 2026-01-31')
    expect(await answer(form(fields, ['day']), person('a', 'b', 'c', '2026-02-28').ask)).toEqual({
      action: 'decline',
    })
  })

  it.each([
    ['email', 'a@b', 'ab'],
    ['uri', 'https://example.org/x', 'example'],
    ['date-time', '2026-01-31T12:00:00Z', '2026-01-31'],
  ])('takes only what has the format %s [A.09]', async (format, right, wrong) => {
    const asked = person(wrong, right)
    const params = form({ it: { type: 'string', format } }, ['it'])
    expect(await answer(params, asked.ask)).toMatchObject({ content: { it: right } })
  })

  it('has no default that its own bounds refuse [A.09]', async () => {
    const asked = person(5, 'a')
    const bad = {
      size: { type: 'integer', maximum: 9, default: 10 },
      pick: { type: 'string', enum: ['a', 'b'], default: 'c' },
    }
    await answer(form(bad), asked.ask)
    expect(asked.questions.map(({ defaultAnswer }) => defaultAnswer)).toEqual([undefined, undefined])
  })
})

describe('what is put to nobody', () => {
  const text = (more: object = {}) => ({ type: 'string', ...more })
  it.each<[string, object, string?]>([
    ['a password', { password: text() }],
    ['a key, by its name', { openaiApiKey: text() }],
    ['a token, by its title', { value: text({ title: 'GitHub access token' }) }],
    ['a token, by its own name', { token: text() }],
    ['a secret, by its description', { x: text({ description: 'Your client_secret' }) }],
    ['a PIN', { code: { type: 'integer', title: 'PIN' } }],
    ['a password, by the message', { value: text() }, 'Please enter your password'],
    ['one field among others', { city: text(), pass_phrase: text() }],
  ])('is a question for %s [A.09]', async (_, fields, message = 'Please') => {
    const asked = person('x', 'x')
    const refused = answer({ ...form(fields), message }, asked.ask)
    await expect(refused).rejects.toThrow(ElicitationRefusal)
    await expect(refused).rejects.toThrow('no password, key or token')
    expect(asked.questions).toEqual([])
  })

  it.each<[string, object]>([
    ['max_tokens', { max_tokens: { type: 'integer' } }],
    ['a keyboard and a monkey', { keyboard: text(), monkey: text() }],
    ['whether a secret may be made', { secret: { type: 'boolean' } }],
  ])('is not a question about %s [A.09]', async (_, fields) => {
    const asked = person()
    await answer(form(fields), asked.ask)
    expect(asked.questions.length).toBeGreaterThan(0)
  })

  it.each<[string, object, string]>([
    ['nine fields', Object.fromEntries([...'abcdefghi'].map((name) => [name, text()])), 'at most 8 fields'],
    ['one option', { a: text({ enum: ['x'] }) }, '2 to 20 options'],
    ['an option twice', { a: text({ enum: ['x', 'x'] }) }, 'no such options'],
    ['an option as long as a book', { a: text({ enum: ['x', 'y'.repeat(501)] }) }, 'no such options'],
  ])('is %s [A.09]', async (_, fields, words) => {
    const asked = person('x')
    await expect(answer(form(fields), asked.ask)).rejects.toThrow(words)
    expect(asked.questions).toEqual([])
  })

  it('is an address to be opened [A.09]', async () => {
    const params = { mode: 'url' as const, message: 'Sign in', url: 'https://x.example', elicitationId: '1' }
    await expect(answerElicitation(params, person(true).ask, never)).rejects.toThrow('opens no addresses')
  })

  it('is anything that is no whole question, whatever the form holds [A.09]', async () => {
    const word = fc.string({ unit: 'binary', maxLength: 30 })
    const maybe = <T>(of: fc.Arbitrary<T>) => fc.option(of, { nil: undefined })
    const field = fc.oneof(
      fc.record({ type: fc.constant('boolean'), title: maybe(word), default: maybe(fc.boolean()) }),
      fc.record({
        type: fc.constantFrom('number', 'integer'),
        minimum: maybe(fc.double({ noNaN: true, noDefaultInfinity: true })),
        default: maybe(fc.double({ noNaN: true, noDefaultInfinity: true })),
      }),
      fc.record({
        type: fc.constant('string'),
        description: maybe(word),
        minLength: maybe(fc.integer()),
        format: maybe(fc.constantFrom('email', 'uri', 'date', 'date-time')),
        default: maybe(word),
      }),
      fc.record({
        type: fc.constant('string'),
        enum: fc.array(word, { maxLength: 22 }),
        enumNames: maybe(fc.array(word)),
        default: maybe(word),
      }),
      fc.record({
        type: fc.constant('array'),
        items: fc.record({ type: fc.constant('string'), enum: fc.array(word, { maxLength: 22 }) }),
        default: maybe(fc.array(word)),
      }),
    )
    const params = fc.record({
      message: fc.string({ unit: 'binary', maxLength: 6_000 }),
      properties: fc.dictionary(word, field, { maxKeys: 9 }),
    })
    const said = fc.array(fc.oneof(word, fc.double(), fc.boolean(), fc.array(word), fc.constant(null)))
    await fc.assert(
      fc.asyncProperty(params, said, async ({ message, properties }, answers) => {
        const parsed = ElicitRequestSchema.parse({
          method: 'elicitation/create',
          params: { message, requestedSchema: { type: 'object', properties } },
        })
        const { questions, ask } = person(...answers)
        const result = await answerElicitation(parsed.params, ask, never).catch((cause: unknown) => cause)
        if (!(result instanceof ElicitationRefusal)) expect(result).toHaveProperty('action')
        for (const question of questions) expect(UserQuestion.safeParse(question).error).toBeUndefined()
      }),
      { numRuns: 300, seed: 9 },
    )
  })
})

describe('a server that asks', () => {
  const elicit = { message: 'Which?', requestedSchema: form({ it: { type: 'string' } }).requestedSchema }

  it('learns that it may, is answered within a call, and is refused in words out of one [A.09] [S2.12]', async () => {
    await using server = new LinkedServer(60_000, { hasPerson: true })
    await server.start()
    const call = server.connection.callTool('work', {}, never, undefined, person('this').ask)
    await server.called()
    expect(server.capabilities).toEqual({ elicitation: { form: {} } })
    expect(await server.ask('elicitation/create', elicit)).toEqual({
      action: 'accept',
      content: { it: 'this' },
    })
    await server.answer('done')
    expect((await call).ok).toBe(true)
    expect(await server.ask('elicitation/create', elicit)).toMatchObject({
      code: -32_602,
      message: expect.stringContaining('only while a tool is called'),
    })
  })

  it('is refused where nobody is offered, and told of no such ability [A.09]', async () => {
    await using server = new LinkedServer(60_000)
    await server.start()
    const call = server.connection.callTool('work', {}, never, undefined, person('this').ask)
    await server.called()
    expect(server.capabilities).toEqual({})
    expect(await server.ask('elicitation/create', elicit)).toMatchObject({ code: -32_601 })
    await server.answer('done')
    await call
  })

  it('has all the time of the person for its call, however short that of the call is [A.09]', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    try {
      await using server = new LinkedServer(1_000, { hasPerson: true })
      await server.start()
      const asked = Promise.withResolvers<void>()
      const ask = () => {
        asked.resolve()
        return new Promise<UserAnswer>((resolve) => setTimeout(() => resolve('at last'), 3_600_000))
      }
      const call = server.connection.callTool('work', {}, never, undefined, ask)
      await server.called()
      const answered = server.ask('elicitation/create', elicit)
      await asked.promise
      await vi.advanceTimersByTimeAsync(3_600_000)
      expect(await answered).toMatchObject({ content: { it: 'at last' } })
      await vi.advanceTimersByTimeAsync(1_000)
      expect((await call).content).toContain('no answer within 1000 ms')
    } finally {
      vi.useRealTimers()
    }
  })

  it('asks one thing at a time, and floods nobody [A.09]', async () => {
    await using server = new LinkedServer(60_000, { hasPerson: true })
    await server.start()
    let open = 0
    const ask: AskPerson = async () => {
      expect(++open).toBe(1)
      await new Promise((resolve) => setImmediate(resolve))
      open -= 1
      return 'x'
    }
    const call = server.connection.callTool('work', {}, never, undefined, ask)
    await server.called()
    const answers = await Promise.all(
      Array.from({ length: 9 }, () => server.ask('elicitation/create', elicit)),
    )
    expect(answers.filter((one) => (one as { action?: string }).action === 'accept')).toHaveLength(4)
    expect(answers.at(-1)).toMatchObject({
      message: expect.stringContaining('more than 4 questions at once'),
    })
    await server.answer('done')
    await call
  })

  it.each(['takes it back', 'ends the call'])('and %s has its question withdrawn [A.09]', async (how) => {
    await using server = new LinkedServer(60_000, { hasPerson: true })
    await server.start()
    const asked = Promise.withResolvers<AbortSignal>()
    const ask: AskPerson = (_, withdrawn) => {
      asked.resolve(withdrawn)
      return new Promise((_, reject) => withdrawn.addEventListener('abort', () => reject(withdrawn.reason)))
    }
    const call = server.connection.callTool('work', {}, never, undefined, ask)
    await server.called()
    void server.ask('elicitation/create', elicit)
    const withdrawn = await asked.promise
    expect(withdrawn.aborted).toBe(false)
    if (how === 'takes it back') await server.withdraw()
    await server.answer('done')
    await call
    expect(withdrawn.aborted).toBe(true)
  })

  it('shows nothing of what its configuration keeps to itself [A.09]', async () => {
    const asked = person('x')
    await using server = new LinkedServer(60_000, { hasPerson: true }, { KEY: 'hunter2-hunter2' })
    await server.start()
    const call = server.connection.callTool('work', {}, never, undefined, asked.ask)
    await server.called()
    await server.ask('elicitation/create', { ...elicit, message: 'I have hunter2-hunter2' })
    expect(asked.questions[0]?.question).toContain('I have [secret]')
    await server.answer('done')
    await call
  })
})
