/** The artifact of a question that awaits a person's answer, for the application that shows it. */
import * as z from 'zod'

/** Result of executeTool for the call, as JSON: a question without an answer yet. */
export const PendingHumanRequest = z.object({
  ok: z.literal(false),
  pending: z.literal(true),
  status: z.literal('pending'),
  /** The tool call's id. */
  requestId: z.string(),
  question: z.string(),
  options: z.array(z.string()),
  /** Options to choose from; absent: none. */
  defaultOption: z.string().optional(),
  /** How long the model would wait; absent: indefinitely. */
  timeoutMs: z.number().optional(),
})
export type PendingHumanRequest = z.infer<typeof PendingHumanRequest>

/** Parses a pending question from `value`, an object or its JSON; null for everything else. Never throws. */
export function parsePendingHumanRequest(value: unknown): PendingHumanRequest | null {
  const parsed = PendingHumanRequest.safeParse(typeof value === 'string' ? parseJson(value) : value)
  return parsed.success ? parsed.data : null
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
