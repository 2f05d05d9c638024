/** The artifact of a question that a person is still to answer, for the application that shows it. */
import * as z from 'zod'

/** What executeTool gives for the call, as JSON: a question that is still to be answered. */
export const PendingHumanRequest = z.object({
  ok: z.literal(false),
  pending: z.literal(true),
  status: z.literal('pending'),
  /** The id of the tool call. */
  requestId: z.string(),
  question: z.string(),
  options: z.array(z.string()),
  /** One of the options; absent: none. */
  defaultOption: z.string().optional(),
  /** How long the model would wait; absent: as long as it takes. */
  timeoutMs: z.number().optional(),
})
export type PendingHumanRequest = z.infer<typeof PendingHumanRequest>

/** The pending question in `value`, an object or its JSON; null for everything else. Never throws. */
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
