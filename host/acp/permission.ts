/** A question of a run as a request to the client, and the client's answer as that of the person. Pure. */
import type {
  CreateElicitationResponse,
  ElicitationPropertySchema,
  PermissionOption,
  PermissionOptionKind,
  RequestPermissionResponse,
} from '@agentclientprotocol/sdk'
import type { OfferedAnswer } from '#specs/protocol/approval.ts'
import type { ApprovalAnswer, UserAnswer, UserQuestion } from '../index.ts'
import { isAnswerTo } from '../index.ts'

/** What the client shows, and what each choice means. Whatever is no choice of these decides nothing. */
export interface Choice {
  readonly option: PermissionOption
  readonly answer: ApprovalAnswer
}

/** The answers that the question accepts. A question of the agent has its options, where they are enough. */
export function choicesOf(
  offered: readonly OfferedAnswer[],
  question: UserQuestion | undefined,
  show: (text: string) => string,
): readonly Choice[] {
  const direct = question === undefined ? [] : answersTo(question)
  const choices = offered
    .filter(({ needs }) => needs === undefined)
    .map(({ label, decision, scope, reach }) => ({
      name: label,
      kind: kindOf(decision, scope),
      answer: { decision, scope, ...(reach === undefined ? {} : { reach }) },
    }))
  return [...direct, ...choices].map(({ name, kind, answer }, at) => ({
    option: { optionId: `answer-${at + 1}`, name: show(name), kind },
    answer,
  }))
}

/** Whether a choice answers it; other questions need what a person types. */
export function hasChoices({ kind, allowOther = false }: UserQuestion): boolean {
  return kind === 'confirm' || (kind === 'choice' && !allowOther)
}

function answersTo(question: UserQuestion) {
  if (!hasChoices(question)) return []
  const values: { name: string; value: UserAnswer }[] =
    question.kind === 'confirm'
      ? [
          { name: 'Yes', value: true },
          { name: 'No', value: false },
        ]
      : (question.options ?? []).map(({ value, label }) => ({ name: label ?? value, value }))
  return values.map(({ name, value }) => ({
    name,
    kind: 'allow_once' as const,
    answer: { decision: 'allow', scope: 'once', answer: value } satisfies ApprovalAnswer,
  }))
}

function kindOf(decision: 'allow' | 'deny', scope: OfferedAnswer['scope']): PermissionOptionKind {
  if (decision === 'allow') return scope === 'once' ? 'allow_once' : 'allow_always'
  return scope === 'once' ? 'reject_once' : 'reject_always'
}

/** Undefined: nothing is decided. */
export function answerOf(
  choices: readonly Choice[],
  { outcome }: RequestPermissionResponse,
): ApprovalAnswer | undefined {
  if (outcome.outcome !== 'selected') return undefined
  return choices.find(({ option }) => option.optionId === outcome.optionId)?.answer
}

/** The field of a form for a question of the agent. */
export function fieldOf(question: UserQuestion, show: (text: string) => string): ElicitationPropertySchema {
  const { kind, options = [], defaultAnswer } = question
  const titled = options.map(({ value, label }) => ({ const: value, title: show(label ?? value) }))
  const preset = defaultAnswer === undefined ? {} : { default: defaultAnswer }
  switch (kind) {
    case 'confirm':
      return { type: 'boolean', ...preset } as ElicitationPropertySchema
    case 'number':
      return { type: 'number', ...preset } as ElicitationPropertySchema
    case 'choices':
      return { type: 'array', items: { anyOf: titled }, ...preset } as ElicitationPropertySchema
    case 'choice':
      if (question.allowOther !== true)
        return { type: 'string', oneOf: titled, ...preset } as ElicitationPropertySchema
  }
  return { type: 'string', ...preset } as ElicitationPropertySchema
}

/** The answer in a form; `undefined` where the person closed it, or what it has is no answer. */
export function answerInForm(
  question: UserQuestion,
  response: CreateElicitationResponse,
): ApprovalAnswer | undefined {
  if (response.action === 'decline') return { decision: 'deny', scope: 'once' }
  if (response.action !== 'accept') return undefined
  const content = 'content' in response ? (response.content as Record<string, unknown> | null) : null
  const value = content?.answer as UserAnswer | undefined
  if (value === undefined || !isAnswerTo(question, value)) return undefined
  return { decision: 'allow', scope: 'once', answer: value }
}

/** What a person typed as the answer to a question; undefined where it is none. */
export function answerInWords(question: UserQuestion, typed: string): ApprovalAnswer | undefined {
  const text = typed.trim()
  const values: Readonly<Record<UserQuestion['kind'], UserAnswer | undefined>> = {
    text,
    choice: text,
    number: text === '' ? Number.NaN : Number(text),
    confirm: /^y(?:es)?$/i.test(text) ? true : /^no?$/i.test(text) ? false : undefined,
    choices: text === '' ? [] : text.split(',').map((part) => part.trim()),
  }
  const value = values[question.kind]
  return value !== undefined && isAnswerTo(question, value)
    ? { decision: 'allow', scope: 'once', answer: value }
    : undefined
}
