/** Questions of the agent to the person, with the required form of the answer. */
import * as z from 'zod'
import { McpServerName } from './extension.ts'
import { Line, Text } from './text.ts'

/** The tool by which the agent asks, also named in its approval requests. */
export const askTool = 'ask_user'

const Choice = z.strictObject({ value: Line.min(1), label: Line.optional() })

/** One question; `kind` determines the form of the answer. */
export const UserQuestion = z
  .strictObject({
    /** The agent's or the server's text. */
    question: Text.min(1),
    /** The MCP server that asks through the agent and receives the answer; absent: the agent itself. */
    server: McpServerName.optional(),
    /** `text`: a string; `number`; `confirm`: yes or no; `choice`: one of the options' values; `choices`: any number of them. */
    kind: z.enum(['text', 'number', 'confirm', 'choice', 'choices']),
    /** Of `choice` and `choices`, at least two; absent with the others. */
    options: z.array(Choice).min(2).max(20).optional(),
    /** Whether other text than an option is allowed; only with `choice`. Absent: false. */
    allowOther: z.boolean().optional(),
    /** Default answer when nobody is there, unless a server asks; absent: the question is then refused. */
    defaultAnswer: z.union([Text, z.number(), z.boolean(), z.array(Line).max(20)]).optional(),
  })
  .superRefine((question, context) => {
    const isChoice = question.kind === 'choice' || question.kind === 'choices'
    if (isChoice !== (question.options !== undefined))
      context.addIssue({
        code: 'custom',
        path: ['options'],
        message: isChoice ? 'options are needed for a choice' : 'options go with choice and choices alone',
      })
    const values = question.options?.map(({ value }) => value) ?? []
    if (new Set(values).size < values.length)
      context.addIssue({ code: 'custom', path: ['options'], message: 'two options have the same value' })
    if (question.allowOther === true && question.kind !== 'choice')
      context.addIssue({ code: 'custom', path: ['allowOther'], message: 'goes with choice alone' })
    if (question.defaultAnswer !== undefined && !isAnswerTo(question, question.defaultAnswer))
      context.addIssue({ code: 'custom', path: ['defaultAnswer'], message: 'is no answer to this question' })
  })
export type UserQuestion = z.infer<typeof UserQuestion>

/** A value in the form of the question's kind. */
export const UserAnswer = z.union([Text, z.number(), z.boolean(), z.array(Line).max(20)])
export type UserAnswer = z.infer<typeof UserAnswer>

/** Whether `answer` has the form that the question requires. */
export function isAnswerTo(
  { kind, options = [], allowOther = false }: Pick<UserQuestion, 'kind' | 'options' | 'allowOther'>,
  answer: UserAnswer,
): boolean {
  const values = new Set(options.map(({ value }) => value))
  switch (kind) {
    case 'text':
      return typeof answer === 'string'
    case 'number':
      return typeof answer === 'number' && Number.isFinite(answer)
    case 'confirm':
      return typeof answer === 'boolean'
    case 'choice':
      return typeof answer === 'string' && (allowOther || values.has(answer))
    case 'choices':
      return (
        Array.isArray(answer) &&
        new Set(answer).size === answer.length &&
        answer.every((value) => values.has(value))
      )
  }
}
