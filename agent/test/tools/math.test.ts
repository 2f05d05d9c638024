import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createMath } from '../../tools/math.ts'
import { call } from '../support/tools.ts'

async function math(expression: string): Promise<string> {
  const result = await call(createMath(), { expression })
  if (!result.ok) return `${result.error.code}: ${result.error.message}`
  return result.value.exact ? result.value.result : `~${result.value.result}`
}

describe('math', () => {
  it('works out whole numbers exactly and the rest as doubles [S4.04]', async () => {
    const expected = {
      '1 + 2 * 3': '7',
      '(1+2)*3': '9',
      '2**3**2': '512',
      '-2**2': '-4',
      '2^-1': '~0.5',
      '2**100 + 1': '1267650600228229401496703205377',
      '10 / 4': '~2.5',
      '10 / 5': '2',
      '-7 % 3': '-1',
      '0.1 + 0.2': '~0.30000000000000004',
      '1.5e3': '~1500',
      '.5 + 1.': '~1.5',
      'sqrt(144)': '12',
      'sqrt(2)': `~${Math.SQRT2}`,
      'sqrt(10**40)': `1${'0'.repeat(20)}`,
      'round(2.5) + round(-2.5)': '0',
      'round(3.14159, 2)': '~3.14',
      'floor(-1.5) * ceil(1.2)': '-4',
      'max(1, 2.5, -3) - min(4, 3)': '~-0.5',
      'abs(-3)': '3',
      'log(1000) + log(8, 2) + ln(e)': '~7',
      'sin(0) + cos(0) + exp(0)': '~2',
      'SQRT(9) * Pi': `~${3 * Math.PI}`,
      '10**500 / (8 * 10**499)': '~1.25',
      '3**800 / (3**800 + 1)': '~1',
      '0 * -1.0': '~0',
      '\t1\n+\r1': '2',
    }
    const found: Record<string, string> = {}
    for (const expression of Object.keys(expected)) found[expression] = await math(expression)
    expect(found).toEqual(expected)
  })

  it('refuses what is no expression, without running anything of it [S4.04]', async () => {
    const hostile = {
      'process.exit()': '"process"',
      __proto__: '"__proto__"',
      'constructor(1)': '"constructor"',
      'toString()': '"toString"',
      'sqrt.constructor("return 1")()': 'U+002E',
      'this[0]': '"this"',
      '`${1}`': 'U+0060',
      '"1" + "1"': 'U+0022',
      '1; 2': 'U+003B',
      '1 == 1': 'U+003D',
      'x => x': '"x"',
      '١ + ١': 'U+0661',
      '１+１': 'U+FF11',
      '1−1': 'U+2212',
      '\u202e1': 'U+202E',
      '1,000': 'an operator',
      '2 pi': 'an operator',
      '2(3)': 'an operator',
      '1 +': 'the expression ends',
      '(1': 'for the "(" at 1',
      '1)': 'an operator',
      'sqrt 4': '"(" behind sqrt',
      'sqrt()': 'a number',
      'sqrt(1, 2)': 'takes 1 numbers',
      '1e309': 'too large',
      '1e-400': 'too small',
      '1 / 0': 'division by zero',
      '1 % 0': 'division by zero',
      '0 ** -1': 'division by zero',
      '0.0 ** -1': 'division by zero',
      '(-8) ** (1/3)': 'no real number',
      'sqrt(-1)': 'square root',
      'log(0)': 'logarithm',
      'log(2, 1)': 'base 1',
      'round(1.5, 99)': 'places',
      '9**9**9**9': 'digits',
      '10**10000': 'digits',
      '2**99999999999999999999': 'digits',
      '10**400 * 0.5': 'too large',
      ' ': 'the expression ends',
      NaN: '"NaN"',
      Infinity: '"Infinity"',
    }
    for (const [expression, reason] of Object.entries(hostile)) {
      const said = await math(expression)
      expect([expression, said]).toEqual([expression, expect.stringContaining('invalid_input')])
      expect(said.toLowerCase()).toContain(reason.toLowerCase())
    }
  })

  it('ends soon, however deep, long or large an expression is [S4.04]', async () => {
    expect(await math(`${'('.repeat(5_000)}1${')'.repeat(5_000)}`)).toContain('levels deep')
    expect(await math(`${'-'.repeat(5_000)}1`)).toContain('levels deep')
    expect(await math(Array.from({ length: 5_000 }, () => '2').join('**'))).toContain('levels deep')
    expect(await math('abs('.repeat(3_000))).toContain('levels deep')
    expect(await math(Array.from({ length: 9_000 }, () => '1').join('+'))).toBe('9000')
    expect(await math(`${'9'.repeat(9_000)} * ${'9'.repeat(9_000)}`)).toContain('digits')
    expect(await math(Array.from({ length: 90 }, () => '(9**9000)').join('-'))).toMatch(/^-?\d+$/)
    expect(await math(Array.from({ length: 1_000 }, () => 'sqrt(9**9000)').join('*'))).toContain('digits')
  })

  it('agrees with whole numbers reckoned another way, for any expression [S4.04]', async () => {
    interface Sum {
      readonly text: string
      readonly value: bigint
    }
    const { tree } = fc.letrec<{ tree: Sum; leaf: Sum; node: Sum }>((tie) => ({
      leaf: fc.bigInt({ min: 0n, max: 10n ** 30n }).map((value) => ({ text: String(value), value })),
      node: fc
        .tuple(tie('tree'), fc.constantFrom('+', '-', '*', '%', 'neg', 'pow', 'abs', 'max'), tie('tree'))
        .map(([a, op, b]): Sum => {
          if (op === '+') return { text: `(${a.text} + ${b.text})`, value: a.value + b.value }
          if (op === '-') return { text: `(${a.text}-${b.text})`, value: a.value - b.value }
          if (op === '*')
            return {
              text: `${a.text} * (${b.text})`.replace(/^(.*) \* /s, '($1) * '),
              value: a.value * b.value,
            }
          if (op === '%' && b.value !== 0n)
            return { text: `((${a.text}) % (${b.text}))`, value: a.value % b.value }
          if (op === 'neg') return { text: `(-(${a.text}))`, value: -a.value }
          if (op === 'pow') return { text: `((${a.text})**3)`, value: a.value ** 3n }
          if (op === 'abs') return { text: `abs(${a.text})`, value: a.value < 0n ? -a.value : a.value }
          return { text: `max(${a.text}, ${b.text})`, value: a.value > b.value ? a.value : b.value }
        }),
      tree: fc.oneof({ maxDepth: 4, withCrossShrink: true }, tie('leaf'), tie('node')),
    }))
    await fc.assert(
      fc.asyncProperty(tree, async ({ text, value }) => {
        fc.pre(text.length < 20_000)
        expect(await math(`(${text})`)).toBe(String(value))
      }),
      { numRuns: 300, seed: 9 },
    )
  })

  it('agrees with JavaScript on decimals [S4.04]', async () => {
    const number = fc
      .double({ min: -1e9, max: 1e9, noNaN: true })
      .filter((value) => value === 0 || Math.abs(value) > 1e-9)
    await fc.assert(
      fc.asyncProperty(number, number, fc.constantFrom('+', '-', '*', '/'), async (a, b, op) => {
        fc.pre(b !== 0)
        const value = { '+': a + b, '-': a - b, '*': a * b, '/': a / b }[op]
        const written = (each: number) => `(${each.toExponential()})`
        expect(await math(`${written(a)} ${op} ${written(b)}`)).toBe(`~${value === 0 ? 0 : value}`)
      }),
      { numRuns: 300, seed: 10 },
    )
  })

  it('is refused where it is work for minutes, and not where large numbers are few [S4.04]', async () => {
    const many = (one: string, sign: string, count: number) =>
      Array.from({ length: count }, () => one).join(sign)
    const refusal = 'more than 100 powers and roots of hundreds of digits'
    for (const heavy of [
      many('9^9999', '-', 2_800),
      many('9^10000', '%', 2_400),
      many('9^9999/9^9999', '+', 1_400),
      many('sqrt(9^9998)', '+', 1_500),
    ])
      expect(await math(heavy)).toContain(refusal)
    expect(await math(many('9^10000', '-', 100))).toBe(String(9n ** 10_000n * -98n))
    expect(await math(many('sqrt(16)', '+', 2_000))).toBe('8000')
    expect(await math(many('2^10', '+', 3_000))).toBe('3072000')
  })

  it('ends with a value or a reason for any text [S1.09]', async () => {
    const piece = fc.constantFrom(
      '1',
      '0',
      '2.5',
      '.',
      'e',
      '1e9',
      '+',
      '-',
      '*',
      '**',
      '^',
      '/',
      '%',
      '(',
      ')',
      ',',
      'pi',
      'sqrt',
      'min',
      'log',
      'round',
      ' ',
      '_',
      '__proto__',
      '9'.repeat(400),
      'é',
      '\0',
    )
    const text = fc.oneof(
      fc.string({ unit: 'binary', minLength: 1 }),
      fc.array(piece, { minLength: 1, maxLength: 25 }).map((pieces) => pieces.join('')),
    )
    await fc.assert(
      fc.asyncProperty(text, async (expression) => {
        expect(await math(expression)).toMatch(/^(~?-?\d[\d.e+-]*$|invalid_input: )/)
      }),
      { numRuns: 300, seed: 12 },
    )
  })
})
