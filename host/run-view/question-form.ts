/**
 * A question of a run as a form for the person at a client of another protocol, and the form's content as an answer. Shared
 * by the surfaces that ask in forms, so that each offers the same and accepts the same.
 */
import * as z from 'zod'
import { OfferedAnswer } from '#specs/protocol/approval.ts'
import { isAnswerTo, UserAnswer } from '#specs/protocol/question.ts'
import { type CleanText, nameOfAsker, noKeysHere } from '#specs/protocol/shown-text.ts'
import type { AnswerRequest } from '#specs/service/approval-resources.ts'
import type { Question } from './run-view.ts'

/** What one form shows of arguments and preview; a longer question is answered where all of it can be read. */
const shownMaxChars = 8_000
const hintMaxChars = 2_000
const answerMaxChars = 8_000

type Property = Readonly<Record<string, unknown>>
export interface QuestionForm {
  readonly message: string
  readonly requestedSchema: {
    readonly type: 'object'
    readonly properties: Record<string, Property>
    readonly required: string[]
  }
}
export type Answer = z.input<typeof AnswerRequest>

/** Whether a form can show all of it, with an answer to choose. */
export function fitsForm(asked: Question): boolean {
  const { preview, arguments: given, question, access } = asked.approval
  const shown = [
    preview,
    given,
    question === undefined ? '' : JSON.stringify(question),
    access === undefined ? '' : JSON.stringify(access),
  ]
  return shown.join('').length <= shownMaxChars && (question !== undefined || offersOf(asked).length > 0)
}

/** @param again what was wrong with the answer before */
export function formOf(question: Question, clean: CleanText, again?: string): QuestionForm {
  const { properties, required } =
    question.approval.question === undefined
      ? decisionFields(question)
      : answerField(question.approval.question)
  const message = [...(again === undefined ? [] : [again, '']), ...messageOf(question, clean)].join('\n')
  return { message, requestedSchema: { type: 'object', properties, required } }
}

/** The answer that a filled form means; a text that says what is wrong with it otherwise. */
export function readForm(question: Question, content: unknown): Answer | string {
  const asked = question.approval.question
  if (asked !== undefined) {
    const given = z.strictObject({ answer: UserAnswer }).safeParse(content)
    if (!given.success || !isAnswerTo(asked, given.data.answer))
      return 'The answer does not have the form that the question needs.'
    return { decision: 'allow', answer: given.data.answer }
  }
  const given = z
    .strictObject({ decision: z.string(), hint: z.string().max(hintMaxChars).optional() })
    .safeParse(content)
  const chosen = given.success
    ? offersOf(question).find(({ label }) => label === given.data.decision)
    : undefined
  if (!given.success || chosen === undefined) return 'The decision is none of those that the question offers.'
  const { decision, scope, reach } = chosen
  const { hint = '' } = given.data
  return {
    ...{ decision, scope },
    ...(reach === undefined ? {} : { reach }),
    ...(decision === 'deny' && hint !== '' ? { hint } : {}),
  }
}

/**
 * What a person may choose at such a client: this call, the same command or the named hosts for this run, or no. Neither a
 * yes to all calls of a tool nor anything permanent: those are given where Caisson itself shows what they cover.
 */
function offersOf({ approval }: Question): OfferedAnswer[] {
  const offered = z.array(OfferedAnswer).safeParse(approval.answers).data ?? []
  return offered.filter(
    ({ decision, scope, reach }) =>
      scope === 'once' || (decision === 'allow' && scope === 'run' && reach !== undefined),
  )
}

function decisionFields(question: Question) {
  const labels = [...new Set(offersOf(question).map(({ label }) => label))]
  return {
    properties: {
      decision: { type: 'string', title: 'Decision', enum: labels },
      hint: {
        ...{ type: 'string', title: 'What to do instead', maxLength: hintMaxChars },
        description: 'With a no: advice for the agent',
      },
    },
    required: ['decision'],
  }
}

function answerField(asked: NonNullable<Question['approval']['question']>) {
  const values = asked.options?.map(({ value }) => value) ?? []
  const forms: Readonly<Record<typeof asked.kind, Property>> = {
    text: { type: 'string', maxLength: answerMaxChars },
    number: { type: 'number' },
    confirm: { type: 'boolean' },
    choice:
      asked.allowOther === true
        ? { type: 'string', maxLength: answerMaxChars }
        : { type: 'string', enum: values },
    choices: { type: 'array', items: { type: 'string', enum: values } },
  }
  return { properties: { answer: { title: 'Answer', ...forms[asked.kind] } }, required: ['answer'] }
}

function messageOf({ runId, approval }: Question, clean: CleanText): string[] {
  const { question, access, tool, preview, arguments: given, kind, agentPath, because } = approval
  const who = nameOfAsker({ agentPath, server: question?.server }, clean)
  if (question !== undefined) {
    const options =
      question.options?.map(({ value, label }) =>
        clean.block(label === undefined ? value : `${value}: ${label}`),
      ) ?? []
    return [`Caisson, ${runId}: ${who} asks you. ${noKeysHere}`, clean.block(question.question), ...options]
  }
  const claim = kind === 'cooperative' ? ' What follows is what the agent says.' : ''
  return [
    `Caisson, ${runId}: ${who} asks whether it may ${access === undefined ? `call ${clean.line(tool, 100)}` : 'reach the network'}.${claim}`,
    ...(because === undefined ? [] : [`Why it is asked: ${clean.line(because)}`]),
    ...(access === undefined ? [] : [clean.block(addressOf(access))]),
    ...(preview === '' ? [] : [clean.block(preview)]),
    ...(given === '{}' ? [] : ['Arguments:', clean.block(given)]),
  ]
}

function addressOf(access: unknown): string {
  const address = z.looseObject({ address: z.string() }).safeParse(access).data?.address
  return address ?? JSON.stringify(access)
}
