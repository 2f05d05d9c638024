/** Numbers of paths and queries, which come as texts. */
import * as z from 'zod'

/**
 * A whole number from its text. What is no number stays the text that it is, so that the refusal repeats it.
 * @param unit what it counts, for the refusal, such as `milliseconds`; absent: nothing
 */
export function wholeNumber({ min, max, unit }: { min: number; max?: number; unit?: string }) {
  const what = unit === undefined ? 'a whole number' : `a whole number of ${unit}`
  const number = z
    .int({
      error: ({ code, input }) =>
        code === 'invalid_type' ? `must be ${what}, got ${shown(input)}` : undefined,
    })
    .min(min)
  return z.preprocess(read, max === undefined ? number : number.max(max))
}

function read(given: unknown): unknown {
  if (typeof given !== 'string' || given.trim() === '') return given
  const number = Number(given)
  return Number.isFinite(number) ? number : given
}

function shown(input: unknown): string {
  return (JSON.stringify(input) ?? 'nothing').slice(0, 40).toWellFormed()
}
