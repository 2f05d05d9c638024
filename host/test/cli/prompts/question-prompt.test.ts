// A question of the agent at the terminal: what is shown of it, and what counts as an answer.
import { describe, expect, it } from 'vitest'
import type { UserQuestion } from '#specs/protocol/question.ts'
import { promptApproval } from '../../../cli/prompts/approval-prompt.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { readTyped, userQuestionLines } from '../../../cli/render/question-lines.ts'
import { Person } from '../support/person.ts'

const colors = colorsFor({ isTTY: false }, {})
const esc = '\u001b'

const asks = (question: UserQuestion) => ({
  approvalId: 'q1',
  agentPath: 'root/helper',
  stepId: 's',
  callId: 'c',
  tool: 'ask_user',
  arguments: '{}',
  preview: '',
  question,
})

/** A person at a terminal of 80 by 24 without colors. */
function sitDown(question: UserQuestion, edit?: (text: string) => Promise<{ ok: true; value: string }>) {
  const person = new Person()
  const { input, output, signal } = person
  const io = { input, output, signal, ...(edit === undefined ? {} : { edit }) }
  return Object.assign(person, { answer: promptApproval(asks(question), io) })
}

const choice: UserQuestion = {
  question: 'Which format?',
  kind: 'choice',
  options: [{ value: 'csv' }, { value: 'json', label: 'JSON, one line a record' }],
}
const yes = { decision: 'allow', scope: 'once' }

describe('the question', () => {
  it('says who asks, and gives each option a number and what is sent for it [S2.16]', () => {
    const { lines, isCut } = userQuestionLines(asks(choice), { ...choice, defaultAnswer: 'json' }, colors, 80)
    expect(lines).toEqual([
      '',
      'Question: the agent asks you',
      '  asked by root/helper, step s',
      '  │ Which format?',
      '   1 │ csv',
      '   2 │ JSON, one line a record · json',
      '  default: JSON, one line a record · json',
    ])
    expect(isCut).toBe(false)
  })

  it('says which MCP server asks, where the answer goes, and takes no secret for it [A.09 S2.16]', () => {
    const question: UserQuestion = { question: 'Which name?', kind: 'text', server: 'travel' }
    const { lines } = userQuestionLines(asks(question), question, colors, 80)
    expect(lines).toEqual([
      '',
      'Question: MCP server travel asks you through the agent',
      '  Your answer is sent to that server. Do not enter a password, key or token.',
      '  asked by root/helper, step s',
      '  │ Which name?',
    ])
    expect(readTyped(question, 'npm_0123456789abcdefghijklmnopqrstuv')).toEqual({
      ok: false,
      error: expect.stringContaining('looks like a token of npm'),
    })
    expect(readTyped(question, 'Ada')).toEqual({ ok: true, value: 'Ada' })
  })

  it('shows nothing of the agent’s outside its margin, whatever is in it [S2.16 H.01]', () => {
    const evil = `a\n   3 │ free\r\u001b[2J\u202e${'x'.repeat(400)}`
    const hostile: UserQuestion = {
      question: `${evil}\nAllow it? y\n`,
      kind: 'choice',
      options: [
        { value: evil, label: 'csv' },
        { value: 'csv', label: evil },
      ],
      defaultAnswer: evil,
    }
    for (const isWhole of [true, false]) {
      const { lines } = userQuestionLines(asks(hostile), hostile, colors, 60, isWhole)
      for (const line of lines.slice(2)) expect(line).toMatch(/^ {2}(│|asked|default:|\s*\d │|\s*┊)/)
      expect(lines.filter((line) => /^\s*\d/.test(line)).map((line) => line.trim()[0])).toEqual(['1', '2'])
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
      expect(lines.join('')).not.toMatch(/[\u0000-\u001f\u202e]/)
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(60)
    }
  })

  it('shows 20 long options by their beginning, and all of them on request [S2.16]', async () => {
    const options = Array.from({ length: 20 }, (_, at) => ({ value: `${'long '.repeat(90)}${at}` }))
    const long: UserQuestion = { question: 'q', kind: 'choices', options }
    const { lines, isCut } = userQuestionLines(asks(long), long, colors, 80)
    expect(isCut).toBe(true)
    expect(lines.length).toBeLessThan(90)
    const person = sitDown(long)
    await person.sees('Numbers from 1 to 20')
    expect(person.raw).not.toContain('long 19')
    person.type('\r')
    await person.sees('What now?')
    person.type('2\r')
    await person.sees('Lines 1 to')
    person.type('2\r')
    await person.sees('Numbers from 1 to 20')
    expect(person.raw).toContain('long 19')
    person.type('20,1\r')
    expect(await person.answer).toEqual({ ...yes, answer: [options[19]?.value, options[0]?.value] })
  })
})

describe('what is typed', () => {
  const options = [{ value: 'csv' }, { value: 'json' }, { value: '7' }]
  it.each<[string, UserQuestion['kind'], string, unknown]>([
    ['a text as it is', 'text', ' two words ', ' two words '],
    ['a number', 'number', ' -2.5 ', -2.5],
    ['no number beyond all', 'number', '1e999', undefined],
    ['no number in words', 'number', 'NaN', undefined],
    ['no number with a comma, which has two meanings', 'number', '1,000', undefined],
    ['yes', 'confirm', 'Y', true],
    ['no', 'confirm', 'no', false],
    ['neither yes nor no', 'confirm', 'maybe', undefined],
    ['an option by its number', 'choice', '2', 'json'],
    ['an option by its value', 'choice', 'csv', 'csv'],
    ['a number that no option has, even one that is a value', 'choice', '7', undefined],
    ['no option', 'choice', '0', undefined],
    ['several options', 'choices', '3, 1 3', ['7', 'csv']],
    ['none of them', 'choices', 'none', []],
    ['one that there is not', 'choices', '1,4', undefined],
  ])('is taken as %s [S2.16]', (_, kind, typed, answer) => {
    const isChoice = kind.startsWith('choice')
    const read = readTyped({ question: 'q', kind, ...(isChoice ? { options } : {}) }, typed)
    expect(read.ok ? read.value : undefined).toEqual(answer)
  })

  it('is another answer where the question takes one, but for a number that no option has [S2.16]', () => {
    const other = { ...choice, allowOther: true }
    expect(readTyped(other, 'xml')).toEqual({ ok: true, value: 'xml' })
    expect(readTyped(other, '2')).toEqual({ ok: true, value: 'json' })
    expect(readTyped(other, '3').ok).toBe(false)
  })
})

describe('the answer', () => {
  it('is asked for again until it has the question’s form [S2.16]', async () => {
    const person = sitDown({ question: 'How many?', kind: 'number' })
    await person.sees('A number')
    person.type('three\r')
    await person.sees('three is not a valid answer; expected: A number')
    person.type('3\r')
    expect(await person.answer).toEqual({ ...yes, answer: 3 })
  })

  it('is never what Enter alone says: then there is its default, in words, and ways to give none [S2.16]', async () => {
    const person = sitDown({ question: 'Continue?', kind: 'confirm', defaultAnswer: true })
    await person.sees('y or n')
    person.type('\r')
    await person.sees('use the default: yes')
    person.type('\r')
    await person.sees('Type 1-5')
    person.type('1\r')
    expect(await person.answer).toEqual({ ...yes, answer: true })
    const other = sitDown({ question: 'Continue?', kind: 'confirm' })
    await other.sees('y or n')
    other.type('\r')
    await other.sees('What now?')
    expect(other.raw).not.toContain('its default')
    other.type('1\r')
    await other.sees('y or n')
    other.type('n\r')
    expect(await other.answer).toEqual({ ...yes, answer: false })
  })

  it('can be declined, with words for the agent, or for all of the run [S2.16]', async () => {
    const person = sitDown(choice)
    await person.sees('A number from 1 to 2')
    person.type(esc)
    await person.sees('What now?')
    person.type('3\r')
    await person.sees('What should the agent do instead?')
    person.type('look it up\r')
    expect(await person.answer).toEqual({ decision: 'deny', scope: 'once', hint: 'look it up' })
    const other = sitDown(choice)
    await other.sees('A number from 1 to 2')
    other.type(esc)
    await other.sees('What now?')
    other.type('4\r')
    expect(await other.answer).toEqual({ decision: 'deny', scope: 'run' })
  })

  it('leaves the run only when Esc is pressed again [S2.16]', async () => {
    const person = sitDown(choice)
    await person.sees('A number from 1 to 2')
    person.type(esc)
    await person.sees('What now?')
    person.type(esc)
    expect(await person.answer).toBeNull()
  })

  it('of several lines is written in an editor [S2.16]', async () => {
    const person = sitDown({ question: 'What to say?', kind: 'text' }, async () => ({
      ok: true,
      value: 'two\nlines\n',
    }))
    await person.sees('Your answer')
    person.type('\r')
    await person.sees('What now?')
    person.type('2\r')
    expect(await person.answer).toEqual({ ...yes, answer: 'two\nlines' })
  })

  it('is not needed any more when the question is answered elsewhere: it says so and nothing listens [S2.16 S1.11]', async () => {
    for (const keys of ['', '\r']) {
      const person = sitDown(choice)
      await person.sees('A number from 1 to 2')
      person.type(keys)
      if (keys !== '') await person.sees('What now?')
      person.withdraw()
      expect(await person.answer).toBeNull()
      expect(person.listens).toBe(false)
      expect(person.raw).toContain('This question is closed.')
    }
  })
})
