/**
 * `human_intervention_request` of the library: a question to a person as a durable artifact. Does not wait: the
 * application shows the question and later supplies the answer as the call's result.
 */
import * as z from 'zod'
import { parseArtifact } from '#specs/protocol/validation-failure.ts'
import { type BuiltIn, defineBuiltIn } from './built-in.ts'

const Option = z.string().min(1).max(500)

const parameters = z
  .strictObject({
    question: z.string().min(1).max(4_000).describe('What the person is asked'),
    options: z.array(Option).min(1).max(20).describe('The answers to choose from'),
    defaultOption: Option.optional().describe('The option to take when nobody answers in time'),
    timeoutMs: z.int().min(1).optional().describe('Milliseconds to wait for an answer'),
  })
  .superRefine(({ options, defaultOption }, context) => {
    if (new Set(options).size !== options.length)
      context.addIssue({ code: 'custom', path: ['options'], message: 'no option may stand there twice' })
    if (defaultOption !== undefined && !options.includes(defaultOption))
      context.addIssue({ code: 'custom', path: ['defaultOption'], message: 'must be one of the options' })
  })

export const humanRequestTool: BuiltIn = defineBuiltIn({
  name: 'human_intervention_request',
  description:
    'Asks a person a question with options to choose from. The result says that it is pending; the answer comes later.',
  parameters,
  readOnly: true,
  evidence: 'interaction',
  run: async ({ question, options, defaultOption, timeoutMs }, { toolCallId }) => {
    const content: PendingHumanRequest = {
      ok: false,
      pending: true,
      status: 'pending',
      requestId: toolCallId,
      question,
      options,
      ...(defaultOption === undefined ? {} : { defaultOption }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    }
    return { ok: false, content }
  },
})

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
  return parseArtifact(PendingHumanRequest, value)
}
