/** `math`: evaluates an expression, so that a model need not calculate or start a program. */
import * as z from 'zod'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { evaluateMath } from './math-parse.ts'
import { formatValue, MathError, maxDigits } from './math-values.ts'

const inputSchema = z.strictObject({
  expression: z
    .string()
    .min(1)
    .max(20_000)
    .describe('Such as (3 + 4) * 2**10 / sqrt(16); numbers without separators, "." as the decimal point'),
})

const outputSchema = z.strictObject({
  result: z.string(),
  /** Whether every digit is correct; otherwise a double with about 15 correct digits. */
  exact: z.boolean(),
})

export function createMath(): Tool<typeof inputSchema, typeof outputSchema> {
  return defineTool({
    name: 'math',
    description: `Works out an arithmetic expression: + - * / % (remainder, sign of the left side), ** or ^ (power), brackets, abs, ceil, cos, exp, floor, ln, log (base 10, or log(x, base)), max, min, round (or round(x, places)), sin, sqrt, tan (radians), pi, e. Whole numbers are exact, up to ${maxDigits} digits; decimals are doubles. Use it instead of reckoning yourself; for more than an expression use run_python.`,
    inputSchema,
    outputSchema,
    requiresApproval: false,
    readOnly: true,
    async execute({ expression }) {
      try {
        const value = evaluateMath(expression)
        return toolSuccess({ result: formatValue(value), exact: typeof value === 'bigint' })
      } catch (thrown) {
        if (!(thrown instanceof MathError)) throw thrown
        return toolFailure('invalid_input', `The expression has no value: ${thrown.message}.`)
      }
    },
    render: ({ result, exact }) => (exact ? result : `${result} (a decimal, right to about 15 digits)`),
  })
}
