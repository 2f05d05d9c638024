/** What the compatible routes take and give: `POST /run`, `/api/v1/run-task`, `/api/v1/governance-notes`, `/api/v1/health`. */
import * as z from 'zod'
import { ProposalId } from '../protocol/extension.ts'
import { Document, Line } from '../protocol/text.ts'

/** A fact for the model: a text as it is, any other value as JSON. */
const Fact = z.unknown().transform((value, context) => {
  try {
    return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
  } catch {
    context.addIssue({ code: 'custom', message: 'expected a value that is not nested so deeply' })
    return z.NEVER
  }
})

export const ChatRequest = z.strictObject({
  /** The only mode: one message, one answer. */
  mode: z.literal('chat'),
  /** The task for the agent. */
  message: Document.min(1),
  /** Further facts for the model, by name. */
  context: z.record(Line.min(1), Fact.pipe(Document)).default({}),
})
export type ChatRequest = z.infer<typeof ChatRequest>

export const TaskRequest = z.strictObject({
  /** The task for the agent. */
  goal: Document.min(1),
  /** A further fact for the model. */
  context: Document.optional(),
  /** Names of the allowed tools. Absent: all. */
  tools: z.array(Line.min(1)).max(256).optional(),
})
export type TaskRequest = z.infer<typeof TaskRequest>

/** One tool call of a run. */
export const TraceEntry = z.strictObject({
  /** From 1, in the order of their starts. */
  step: z.int().min(1),
  tool: Line,
  /** The arguments. Untrusted. */
  input: z.unknown(),
  /** Of `math` its result and expression, of any other tool `{ text }`; null for a call that failed. Untrusted. */
  output: z.unknown(),
  /** Why the call failed; null when it did not. */
  error: z.string().nullable(),
  /** When the call began, as ISO 8601. */
  timestamp: z.iso.datetime(),
})
export type TraceEntry = z.infer<typeof TraceEntry>

/** What a tool returned, for the trace. */
export function describeOutput({ tool, input }: Pick<TraceEntry, 'tool' | 'input'>, text: string): unknown {
  const number = Number(text)
  if (tool !== 'math' || !isArguments(input)) return { text }
  // A JSON number has about 15 digits; a longer one stays a text.
  return { result: String(number) === text ? number : text, expression: input.expression }
}

function isArguments(input: unknown): input is { readonly expression: unknown } {
  return typeof input === 'object' && input !== null && 'expression' in input
}

export const TaskAnswer = z.strictObject({
  /** `success` when the run completed. */
  status: z.enum(['success', 'error']),
  /** The agent's answer, or why the run ended. Untrusted text. */
  output: z.string(),
  trace: z.array(TraceEntry),
})
export type TaskAnswer = z.infer<typeof TaskAnswer>

export const ProposalNotes = z.strictObject({
  proposal_id: ProposalId,
  /** Kept notes, oldest first. */
  notes: z.array(z.string()),
})

export const ServiceHealth = z.strictObject({
  status: z.literal('healthy'),
  service: z.literal('caisson'),
  version: z.string(),
})

export const ProposalParams = z.strictObject({ proposal: ProposalId })
