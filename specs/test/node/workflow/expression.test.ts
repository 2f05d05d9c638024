import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type ExpressionValues, parseExpression } from '#specs/node/workflow/expression.ts'
import { parseTemplate } from '#specs/node/workflow/template.ts'
import { limits } from '#specs/protocol/limits.ts'

const values: ExpressionValues = {
  input: { n: 5, part: 1.5, name: 'a', list: [1, 2, 3], nothing: { x: null } },
  steps: {
    '1. Architect': { state: 'completed', output: { ok: true } },
    two: { state: 'failed', output: null },
  },
  item: 'entry',
  index: 2,
}

function evaluate(source: string, given = values): unknown {
  const read = parseExpression(source)
  if (!read.ok) return `refused: ${read.error}`
  const result = read.value.evaluate(given)
  return result.ok ? result.value : `failed: ${result.error}`
}

describe('an expression of a workflow', () => {
  it.each<[string, unknown]>([
    ['input.n == 5 && input.name == "a"', true],
    ['input.n + 1', 6],
    ['input.part * 2', 3],
    ['2 * input.part', 3],
    ['input.list[input.n - 5]', 1],
    ['input.list.map(x, x * 2)', [2, 4, 6]],
    ['input.list.filter(x, x > 1).size()', 2],
    ['steps["1. Architect"].output.ok', true],
    ['steps.two.state', 'failed'],
    ['has(input.missing) ? input.missing : "none"', 'none'],
    ['input.?missing.orValue(3)', 3],
    ['input.nothing.x == null', true],
    ['item + string(index)', 'entry2'],
    ['{"name": input.name, "all": input.list}', { name: 'a', all: [1, 2, 3] }],
    ['input', values.input],
  ])('%s gives a value [S3.09]', (source, expected) => {
    expect(evaluate(source)).toEqual(expected)
  })

  it.each([
    ['input.missing', 'failed: No such key: missing'],
    ['input.constructor', 'failed: No such key: constructor'],
    ['input.list.constructor', 'failed: No such key: constructor'],
    ['"a".constructor', "refused: Cannot index type 'string'"],
    ['input["__proto__"]', 'failed: No such key: __proto__'],
    ['__proto__', 'refused: Reserved identifier: __proto__'],
    ['constructor', 'refused: Unknown variable: constructor'],
    ['process.exit(1)', 'refused: Unknown variable: process'],
    ['input.n = 3', 'refused: '],
    ['input.name.matches("(a+)+$")', 'refused: matches() is not available'],
    ['cel.bind(x, input.name + input.name, x + x)', 'refused: cel.bind() is not available'],
    ['steps', 'refused: name one step'],
    ['steps[input.name].output', 'refused: name one step'],
    ['1 / 0', 'failed: division by zero'],
    ['1.0 / 0.0', 'failed: gives Infinity'],
    ['9007199254740993', 'failed: gives 9007199254740993, which is too large'],
    ['duration("1h")', 'failed: gives a value that JSON does not have'],
    ['', 'refused: is empty'],
    ['1'.repeat(2_001), 'refused: has 2001 characters; at most 2000 are allowed'],
    [`${'('.repeat(100)}1${')'.repeat(100)}`, 'refused: '],
    ['input.list.map(a, [a].map(b, [b].map(c, c)))', 'refused: has more than 2 of map'],
  ])('%s gives an error in one line', (source, expected) => {
    const got = String(evaluate(source))
    expect(got).toContain(expected)
    expect(got).toMatch(/^(refused|failed): [^\n]{1,300}$/)
  })

  it('names the steps that it reads', () => {
    const read = parseExpression('steps.a.output + steps["b c"].output + steps.a.state + string(item)')
    expect(read).toMatchObject({ ok: true, value: { steps: ['a', 'b c'], readsItem: true } })
  })

  it('ends soon, whatever lists it reads', () => {
    const list = Array.from({ length: 1_001 }, (_, index) => index)
    const nested = 'input.map(a, input.filter(b, a == b).size())'
    expect(evaluate(nested, { input: list, steps: {} })).toContain('a list of 1001 entries inside another')
    expect(evaluate('input.size()', { input: Array(30_000).fill(0), steps: {} })).toContain(
      'reads more than 20000 values',
    )
    const long = { input: Array(200).fill('x'.repeat(2_000)), steps: {} }
    expect(evaluate('input.map(x, x + x)', long)).toContain('gives more than 262144 characters')
  })

  it('never throws, and its result is JSON', () => {
    const word = fc.constantFrom(
      ...'input steps item index .n .list ["a"] [0] ( ) [ ] { } , : ? + - * / % == != < && || ! .map( .all( x true null 1 2.5 "s" has( size( string( in'.split(
        ' ',
      ),
    )
    fc.assert(
      fc.property(fc.array(word, { maxLength: 14 }), (words) => {
        const read = parseExpression(words.join(' '))
        const result = read.ok ? read.value.evaluate(values) : read
        expect(result.ok ? JSON.parse(JSON.stringify(result.value ?? null)) : typeof result.error).toEqual(
          result.ok ? result.value : 'string',
        )
      }),
      { numRuns: 2_000 },
    )
  })
})

describe('a template of a workflow', () => {
  it.each([
    ['Hello {{ input.name }}: {{input.list}}', 'Hello a: [1,2,3]'],
    ['no expression', 'no expression'],
    [`$${'{{ github.sha }}'} and {{"{{"}}`, `$${'{{ github.sha }}'} and {{`],
    ['{{ {"a": 1} }}', '{"a":1}'],
    [`$${'{{{input.name}}'}`, `$${'{a'}`],
    ['{{input.name}} {{', 'a {{'],
  ])('%s becomes text', (text, expected) => {
    const read = parseTemplate(text)
    expect(read.ok && read.value.render(values)).toEqual({ ok: true, value: expected })
  })

  it('is text where nothing closes its braces, however many there are', () => {
    const text = '{{'.repeat(limits.documentMaxChars / 2)
    const read = parseTemplate(text)
    expect(read.ok && read.value.render(values)).toEqual({ ok: true, value: text })
  })

  it('says which expression fails', () => {
    expect(parseTemplate('{{ nobody }}')).toEqual({
      ok: false,
      error: '{{ nobody }}: Unknown variable: nobody',
    })
    const read = parseTemplate('{{input.missing}}')
    expect(read.ok && read.value.render(values)).toEqual({
      ok: false,
      error: '{{input.missing}}: No such key: missing',
    })
    expect(parseTemplate('{{1}}'.repeat(65))).toMatchObject({ ok: false })
  })
})
