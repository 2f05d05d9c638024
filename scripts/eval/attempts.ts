/** What is known of each attempt at a task: lines of `attempts.jsonl` in the folder of an evaluation. */
import { readFileSync } from 'node:fs'
import * as z from 'zod'

const Count = z.number().int().nonnegative()
/** Reports print it. */
const Word = z.string().regex(/^[\x21-\x7e]{1,200}$/)

export const Attempt = z.strictObject({
  task: Word,
  /** From 1 on. */
  attempt: z.number().int().positive(),
  runId: Word,
  /** The model that the run began with. */
  model: Word,
  passed: z.boolean(),
  problems: z.array(z.string()),
  /** How the run ended, such as `completed` or `failed: budget_exhausted`. */
  end: z.string().regex(/^[a-z_: ]{1,100}$/),
  /** Requests to the model. */
  turns: Count,
  inputTokens: Count,
  outputTokens: Count,
  /** US dollars; null where a price is unknown. */
  costUsd: z.number().nonnegative().nullable(),
  durationMs: Count,
})
export type Attempt = z.infer<typeof Attempt>

/**
 * The attempts of a file; a last line without its end, which a stopped process leaves, does not count.
 * @throws {TypeError} for a line that is no attempt
 */
export function readAttempts(file: string): Attempt[] {
  const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1)
  return lines.map((line, index) => {
    try {
      return Attempt.parse(JSON.parse(line))
    } catch (error) {
      throw new TypeError(`${file}: line ${index + 1} is no attempt`, { cause: error })
    }
  })
}
