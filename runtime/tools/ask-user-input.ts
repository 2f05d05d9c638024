/**
 * `ask_user_input` of the library: typed questions to a person as a durable artifact. Does not wait: the application
 * shows the questions and later supplies the answers, which are checked by the form of their questions.
 */
import * as z from 'zod'
import { CaissonError, requireObject } from '#specs/errors.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import { isAnswerTo, UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import { Line } from '#specs/protocol/text.ts'
import { parseArtifact } from '#specs/protocol/validation-failure.ts'
import type { LLMChatMessage } from '../contract/contract.ts'
import { type BuiltIn, defineBuiltIn } from './built-in.ts'
import { parsePendingHumanRequest } from './human-request.ts'

const questionsMaxCount = 10
const { server: _server, ...fields } = UserQuestion.shape
const Id = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ -')

/** One question of {@link PendingUserInput}; `kind` determines the form of its answer. */
export const UserInputQuestion = z.strictObject({ id: Id, ...fields }).superRefine(addIssues)
export type UserInputQuestion = z.infer<typeof UserInputQuestion>

const Option = z.union([
  Line.min(1),
  z.strictObject({
    value: Line.min(1).describe('What the answer is when it is chosen'),
    label: Line.optional().describe('What the person reads; absent: the value'),
  }),
])

const AskedQuestion = z
  .strictObject({
    id: Id.describe('Names the answer'),
    question: fields.question.describe('The decision to make, with what the person must know to decide it'),
    kind: fields.kind.describe(
      'What an answer is; confirm: yes or no; choice: one of the options; choices: any of them',
    ),
    options: z.array(Option).min(2).max(20).optional().describe('Of choice and choices'),
    allowOther: fields.allowOther.describe('Of choice: whether another text may be answered; default false'),
    defaultAnswer: UserAnswer.optional().describe('The answer where the person gives none'),
  })
  .superRefine((asked, context) => addIssues(toQuestion(asked), context))

export const UserInputRequest = z
  .strictObject({ questions: z.array(AskedQuestion).min(1).max(questionsMaxCount) })
  .superRefine(({ questions }, context) => {
    if (new Set(questions.map(({ id }) => id)).size < questions.length)
      context.addIssue({ code: 'custom', path: ['questions'], message: 'two questions have the same id' })
  })

export const askUserInputTool: BuiltIn = defineBuiltIn({
  name: 'ask_user_input',
  description:
    'Asks a person one or several questions, each with the form of its answer. Use it only for decisions that are theirs; never for what you can find out. The answers come later.',
  parameters: UserInputRequest,
  readOnly: true,
  evidence: 'interaction',
  run: async (request, { toolCallId }) => ({ ok: false, content: toPending(request, toolCallId) }),
})

/** Questions without an answer yet: the result of executeTool for the call, as JSON. */
export const PendingUserInput = z.object({
  ok: z.literal(false),
  pending: z.literal(true),
  status: z.literal('pending'),
  /** The tool call's id. */
  requestId: z.string(),
  questions: z.array(UserInputQuestion).min(1).max(questionsMaxCount),
})
export type PendingUserInput = z.infer<typeof PendingUserInput>

/** The questions of `request` as an artifact under the id of their call. */
export function toPending(request: z.output<typeof UserInputRequest>, requestId: string): PendingUserInput {
  return {
    ok: false,
    pending: true,
    status: 'pending',
    requestId,
    questions: request.questions.map(toQuestion),
  }
}

/**
 * Parses pending questions from `value`, an object or its JSON, also the one of `human_intervention_request`; null for
 * everything else. Never throws.
 */
export function parsePendingUserInput(value: unknown): PendingUserInput | null {
  const pending = parseArtifact(PendingUserInput, value)
  if (pending !== null) return pending
  const request = parsePendingHumanRequest(value)
  if (request === null) return null
  const { requestId, question, options, defaultOption } = request
  return parseArtifact(PendingUserInput, {
    ok: false,
    pending: true,
    status: 'pending',
    requestId,
    questions: [
      {
        id: 'answer',
        question,
        ...(options.length < 2
          ? { kind: 'text' }
          : { kind: 'choice', options: options.map((option) => ({ value: option })) }),
        ...(defaultOption === undefined ? {} : { defaultAnswer: defaultOption }),
      },
    ],
  })
}

/**
 * The message that answers a pending call, to append to the transcript.
 * @param answers by the id of their question; an absent one becomes the question's default
 * @throws {CaissonError} `invalid_options` for an answer that is missing or has another form than its question requires
 */
export function createUserInputResult(
  pending: PendingUserInput,
  answers: Readonly<Record<string, UserAnswer>>,
): LLMChatMessage {
  requireObject('the answers', answers)
  const known = PendingUserInput.safeParse(pending)
  if (!known.success)
    throw new CaissonError(
      'invalid_options',
      'expected pending questions, as parsePendingUserInput and complete give them',
    )
  const { requestId, questions } = known.data
  const stray = Object.keys(answers).find((id) => !questions.some((question) => question.id === id))
  if (stray !== undefined)
    throw new CaissonError('invalid_options', `there is no question ${JSON.stringify(stray.slice(0, 100))}`)
  const given = questions.map((question) => [question.id, answerTo(question, answers)] as const)
  const content = JSON.stringify({ status: 'answered', answers: Object.fromEntries(given) })
  return { role: 'tool', tool_call_id: requestId, content }
}

function answerTo(question: UserInputQuestion, answers: Readonly<Record<string, UserAnswer>>): UserAnswer {
  const { id, defaultAnswer } = question
  const answer = Object.hasOwn(answers, id) ? answers[id] : defaultAnswer
  const parsed = UserAnswer.safeParse(answer)
  if (parsed.success && isAnswerTo(question, parsed.data)) return parsed.data
  const what = answer === undefined ? 'has no answer' : 'has an answer of another form'
  throw new CaissonError(
    'invalid_options',
    `the question ${id} ${what}; expected one of kind ${question.kind}`,
  )
}

function toQuestion({ options, ...rest }: z.output<typeof AskedQuestion>): UserInputQuestion {
  if (options === undefined) return rest
  return {
    ...rest,
    options: options.map((option) => (typeof option === 'string' ? { value: option } : option)),
  }
}

/** The rules between the fields of a question. */
function addIssues({ id: _id, ...question }: { id: string }, context: z.RefinementCtx): void {
  const read = UserQuestion.safeParse(question, plainMessages)
  for (const { path, message } of read.error?.issues ?? [])
    context.addIssue({ code: 'custom', path: [...path], message })
}
