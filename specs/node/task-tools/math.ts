/** The tool `math`, in the VM and without one: its words for the model, its arguments, its result. */
import * as z from 'zod'
import type { Result } from '../../protocol/error.ts'
import { evaluateMath } from './math-parse.ts'
import { formatValue, MathError, maxDigits } from './math-values.ts'

export const mathDescription = `Works out an arithmetic expression: + - * / % (remainder, sign of the left side), ** or ^ (power), brackets, abs, ceil, cos, exp, floor, ln, log (base 10, or log(x, base)), max, min, round (or round(x, places)), sin, sqrt, tan (radians), pi, e. Whole numbers are exact, up to ${maxDigits} digits; decimals are doubles. Use it instead of reckoning yourself`

export const MathInput = z.strictObject({
  expression: z
    .string()
    .min(1)
    .max(20_000)
    .describe('Such as (3 + 4) * 2**10 / sqrt(16); numbers without separators, "." as the decimal point'),
})

export const MathOutput = z.strictObject({
  result: z.string(),
  /** Whether every digit is correct; otherwise a double with about 15 correct digits. */
  exact: z.boolean(),
})

/** The value, or why there is none, for the model. */
export function workOut({
  expression,
}: z.output<typeof MathInput>): Result<z.output<typeof MathOutput>, string> {
  try {
    const value = evaluateMath(expression)
    return { ok: true, value: { result: formatValue(value), exact: typeof value === 'bigint' } }
  } catch (thrown) {
    if (!(thrown instanceof MathError)) throw thrown
    return { ok: false, error: `The expression has no value: ${thrown.message}.` }
  }
}

export function renderMath({ result, exact }: z.output<typeof MathOutput>): string {
  return exact ? result : `${result} (a decimal, right to about 15 digits)`
}
