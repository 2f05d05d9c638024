/**
 * The tool `ask_user`: asks the person a question with a given form of answer and returns the answer. The host
 * decides whether anyone is asked and validates the answer.
 */
import * as z from 'zod'
import { block } from '#specs/node/prompt-block.ts'
import { askTool, UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import { Line, Text } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'

const Option = z.union([
  Line.min(1),
  z.strictObject({
    value: Line.min(1).describe('What you are given when it is chosen'),
    label: Line.optional().describe('What the user reads; absent: the value'),
  }),
])

const inputSchema = z
  .strictObject({
    question: Text.min(1).describe('The decision to make, with what the user must know to decide it'),
    kind: z
      .enum(['text', 'number', 'confirm', 'choice', 'choices'])
      .describe('What an answer is; confirm: yes or no; choice: one of the options; choices: any of them'),
    options: z.array(Option).min(2).max(20).optional().describe('Of choice and choices'),
    allowOther: z
      .boolean()
      .optional()
      .describe('Of choice: whether another text may be answered; default false'),
    defaultAnswer: UserAnswer.optional().describe(
      'What is taken when nobody is there to answer, such as true for confirm or a value of the options; without it the call is denied then',
    ),
  })
  .superRefine((input, context) => {
    const read = UserQuestion.safeParse(toQuestion(input))
    for (const { path, message } of read.error?.issues ?? [])
      context.addIssue({ code: 'custom', path: [...path], message })
  })

const outputSchema = z.strictObject({ answer: UserAnswer, note: Text.optional() })

export function createAskTool(): Tool {
  return defineTool({
    name: askTool,
    description:
      'Asks the user one question and waits for the answer. Use it only for a decision that is theirs and changes what you do; never for what you can find out, for permission to call a tool, or to report. Give a default where you could continue without an answer: maybe nobody is there.',
    inputSchema,
    outputSchema,
    inPrograms: false,
    // The person sees the question itself.
    requiresApproval: false,
    readOnly: true,
    execute: async (input, { askUser }) => {
      if (askUser === undefined)
        return toolFailure('unavailable', 'nobody can be asked here: decide yourself')
      const reply = await askUser(UserQuestion.parse(toQuestion(input)))
      return reply.ok ? toolSuccess({ ...reply.value }) : reply
    },
    render: ({ answer, note }) => {
      const given = block('answer', describe(answer))
      return note === undefined
        ? `The user answered:\n${given}`
        : `The answer:\n${given}\nWith it was said: ${note}`
    },
  })
}

type AskInput = Omit<UserQuestion, 'options'> & { readonly options?: z.output<typeof Option>[] | undefined }

function toQuestion({ options, ...rest }: AskInput): UserQuestion {
  if (options === undefined) return rest
  return {
    ...rest,
    options: options.map((option) => (typeof option === 'string' ? { value: option } : option)),
  }
}

function describe(answer: UserAnswer): string {
  if (typeof answer === 'boolean') return answer ? 'yes' : 'no'
  return typeof answer === 'string' ? answer : JSON.stringify(answer)
}
