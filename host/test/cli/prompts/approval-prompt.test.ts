import { describe, expect, it } from 'vitest'
import { promptApproval } from '../../../cli/prompts/approval-prompt.ts'
import { type Question, questionLines, wholeQuestion } from '../../../cli/render/approval-lines.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { Person } from '../support/person.ts'

const colors = colorsFor({ isTTY: false }, {})

const question = (given: object, preview = '') => ({
  approvalId: 'a1',
  agentPath: 'root',
  stepId: 's',
  callId: 'c',
  tool: 'run_python',
  arguments: JSON.stringify(given),
  preview,
})

const numbered = (count: number) => Array.from({ length: count }, (_, at) => `row-${at + 1};`).join('\n')

/** A person at a terminal of 80 by 24 without colors. */
function sitDown(request: Question) {
  const person = new Person()
  const { input, output, signal } = person
  return Object.assign(person, { answer: promptApproval(request, { input, output, signal }) })
}

describe('the question', () => {
  it('shows names as harmlessly as values, one argument a line [H.01]', () => {
    const odd = { 'a\nb: \u001b[2J': 'x', 'path: safe.txt  c': '\u202e', code: 'one\n  two' }
    const { lines, isCut } = questionLines(question(odd, 'p\u0007'), colors, 80)
    expect(lines.slice(3)).toEqual([
      '  │ "a\\nb: \\u001b[2J": x',
      '  │ "path: safe.txt  c": \\u{202e}',
      '  │ code:',
      '  │   one',
      '  │     two',
      '  preview:',
      '  ┆ p\\x07',
    ])
    expect(isCut).toBe(false)
  })

  it('marks arguments that the model did not give, and no name can look so marked [S1.11 H.01]', () => {
    const asked = {
      ...question({ path: 'a', recursive: false, 'x (by default)': 1 }),
      defaults: ['recursive'],
    }
    expect(questionLines(asked, colors, 80).lines.slice(3)).toEqual([
      '  │ path: a',
      '  │ recursive (by default): false',
      '  │ "x (by default)": 1',
    ])
  })

  it('keeps long lines behind its margin, where a terminal would break them [H.01]', () => {
    const code = `${' '.repeat(74)}Approval: allowed ${'x'.repeat(5_000)}`
    const rows = wholeQuestion(question({ code }, code), colors, 80)
    for (const row of rows) expect(row).toMatch(/^ {2}(│|┆|preview:)/)
    expect(Math.max(...rows.map((row) => row.length))).toBeLessThanOrEqual(80)
    expect(rows.join('').match(/x/g)).toHaveLength(10_000)
  })

  it('names in the host’s words why rules leave it to a person, behind a margin of its own [A.13 H.01]', () => {
    const because = `no rule allows: rm -r '${'x'.repeat(100)}\u202e'`
    const { lines } = questionLines({ ...question({}), because }, colors, 80)
    for (const line of lines.slice(3)) expect(line).toMatch(/^ {2}(· | {2}┊ )/)
    expect(lines[3]).toContain('  · no rule allows: rm -r')
    expect(lines.join('')).not.toContain('\u202e')
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80)
  })

  it('says what is not shown and how to see it', () => {
    const { lines, isCut } = questionLines(question({ code: numbered(100) }), colors, 80)
    expect(isCut).toBe(true)
    expect(lines.at(-1)).toBe('  │ … 61 more lines: choose “show everything first”')
  })
})

describe('the answer', () => {
  it('of a person to an MCP server says that it holds for later runs too [A.09]', async () => {
    const person = sitDown({ ...question({ server: 'clock' }), tool: 'use_mcp_server' })
    await person.sees('yes, until it changes')
    expect(person.raw).not.toContain('this once')
    person.type('1\r')
    expect(await person.answer).toEqual({ decision: 'allow', scope: 'once' })
  })

  it('is none when only Enter is pressed, or anything but a number of the list [S1.11 H.01]', async () => {
    const person = sitDown(question({ code: 'x' }))
    await person.sees('Allow it?')
    expect(person.raw).not.toContain('see all of it')
    for (const typed of ['', '5', '0', '1 2', 'ja', 'yes please', '1; 2']) {
      person.type(`${typed}\r`)
      await person.sees('Type 1-4, y, n')
      if (typed !== '') expect(person.raw).toContain(`“${typed}” is not an answer`)
    }
    person.type(' N \r')
    expect(await person.answer).toEqual({ decision: 'deny', scope: 'once' })
  })

  it('can be for the same command in this run, where the question accepts that [A.13 S1.11]', async () => {
    const command = { ...question({ command: 'ls; ls' }), tool: 'run_bash' }
    const same = { label: 'l', decision: 'allow', scope: 'run', reach: 'command' } as const
    const person = sitDown({ ...command, answers: [same] })
    await person.sees('2 · yes, exactly this command in this run')
    expect(person.raw).toContain('3 · yes, every command (run_bash) in this run')
    person.type('2\r')
    expect(await person.answer).toEqual({ decision: 'allow', scope: 'run', reach: 'command' })
    const other = sitDown(command)
    await other.sees('2 · yes, every command')
    expect(other.raw).not.toContain('exactly')
    other.type('n\r')
    await other.answer
  })

  it('can wait until all of a long call was seen, page by page [S1.11 H.01]', async () => {
    const person = sitDown(question({ code: numbered(100) }))
    await person.sees('Allow it?')
    expect(person.raw).not.toContain('row-100;')
    expect(person.raw).toContain('5 · show everything first')
    person.type('5\r')
    await person.sees('Lines 1 to 16 of 101')
    person.type('\r')
    await person.sees('Lines 1 to 32 of 101')
    person.type('2\r')
    await person.sees('Allow it?')
    for (let row = 1; row <= 100; row++) expect(person.raw).toContain(`row-${row};`)
    person.type('1\r')
    expect(await person.answer).toEqual({ decision: 'allow', scope: 'once' })
  })

  it('is not needed any more when the question is withdrawn: it says so and nothing listens [S1.11]', async () => {
    for (const [keys, sight] of [
      ['', 'Allow it?'],
      ['4\r', 'What should the agent do instead?'],
    ] as const) {
      const person = sitDown(question({ code: 'x' }))
      await person.sees('Allow it?')
      if (keys !== '') {
        person.type(keys)
        await person.sees(sight)
      }
      person.withdraw()
      expect(await person.answer).toBeNull()
      expect(person.listens).toBe(false)
      expect(person.raw).toContain('This question is closed.')
    }
    const late = sitDown(question({ code: 'x' }))
    late.withdraw()
    expect(await late.answer).toBeNull()
  })
})
