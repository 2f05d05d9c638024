/**
 * A question of the agent, or of an MCP server by way of it, as rows for a terminal, and what a person types
 * as its answer. All words but ours are theirs, behind a margin.
 */
import type { Result } from '#specs/protocol/error.ts'
import { UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
import { findSecretFor } from '../../approvals/user-question.ts'
import { formatCount } from '../../files/format.ts'
import type { Question } from './approval-lines.ts'
import type { Colors } from './colors.ts'
import { fitLine } from './fit.ts'
import { sanitizeLine, sanitizeRows } from './sanitize.ts'

const margin = '  │ '
/** Rows of the question that come with it. */
const questionMaxRows = 40
/** Characters of an option that come with it. */
const optionMaxChars = 200
const answerMaxChars = 200

/** The question with its options, numbered. @param isWhole whether nothing of it is cut */
export function userQuestionLines(
  { agentPath, stepId }: Pick<Question, 'agentPath' | 'stepId'>,
  question: UserQuestion,
  colors: Colors,
  width: number,
  isWhole = false,
): { readonly lines: string[]; readonly isCut: boolean } {
  const rows = sanitizeRows(question.question, margin, width)
  const shown = isWhole ? rows : rows.slice(0, questionMaxRows)
  const options = question.options ?? []
  const names = options.map(nameOfOption)
  const { server } = question
  const isCut = !isWhole && (shown.length < rows.length || names.some((name) => name.length > optionMaxChars))
  const lines = [
    '',
    colors.bold(
      server === undefined
        ? 'Question: the agent asks you'
        : `Question: MCP server ${sanitizeLine(server, 64)} asks you through the agent`,
    ),
    ...(server === undefined
      ? []
      : fitLine('  Your answer is sent to that server. Do not enter a password, key or token.', width).map(
          colors.yellow,
        )),
    ...fitLine(`  asked by ${sanitizeLine(agentPath, 300)}, step ${sanitizeLine(stepId, 64)}`, width).map(
      colors.dim,
    ),
    ...shown,
    ...(shown.length < rows.length
      ? [colors.yellow(`${margin}… ${formatCount(rows.length - shown.length, 'more line')}`)]
      : []),
    ...names.flatMap((name, index) =>
      fitLine(
        `${String(index + 1).padStart(4)} │ ${sanitizeLine(name, isWhole ? name.length : optionMaxChars)}`,
        width,
      ),
    ),
    ...(question.defaultAnswer === undefined
      ? []
      : fitLine(`  default: ${showAnswer(question, question.defaultAnswer)}`, width).map(colors.dim)),
  ]
  return { lines, isCut }
}

/** An answer for people, on one line and as the question words it. @param maxChars of each text in it */
export function showAnswer(
  { options = [] }: Pick<UserQuestion, 'options'>,
  answer: UserAnswer,
  maxChars = answerMaxChars,
): string {
  const nameOf = (value: string) => {
    const known = options.find((option) => option.value === value)
    return sanitizeLine(known === undefined ? value : nameOfOption(known), maxChars)
  }
  if (typeof answer === 'boolean') return answer ? 'yes' : 'no'
  if (typeof answer === 'number') return String(answer)
  if (typeof answer === 'string') return answer === '' ? '(an empty text)' : nameOf(answer)
  return answer.length === 0 ? '(none of them)' : answer.map(nameOf).join(', ')
}

/** What the person has to type. */
export function describeTyping({ kind, options = [], allowOther }: UserQuestion): string {
  const range = `1 to ${options.length}`
  switch (kind) {
    case 'text':
      return 'Your answer'
    case 'number':
      return 'A number'
    case 'confirm':
      return 'y or n'
    case 'choice':
      return `A number from ${range}${allowOther === true ? ', or another answer in your own words' : ''}`
    case 'choices':
      return `Numbers from ${range}, such as 1,2; or none`
  }
}

/** What was typed, as an answer of the question's form; the error says what is expected. */
export function readTyped(question: UserQuestion, typed: string): Result<UserAnswer, string> {
  const { kind, options = [], allowOther = false } = question
  const text = typed.trim()
  const problem = (seen: string) =>
    ({ ok: false, error: `${seen} is not a valid answer; expected: ${describeTyping(question)}` }) as const
  switch (kind) {
    case 'text': {
      const read = UserAnswer.safeParse(typed)
      if (!read.success) return problem('A text of that length')
      const secret = findSecretFor(question, read.data)
      return secret === undefined
        ? { ok: true, value: read.data }
        : {
            ok: false,
            error: `That looks like ${secret}, which is not sent to MCP servers; answer without it`,
          }
    }
    case 'number':
      return /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text) && Number.isFinite(Number(text))
        ? { ok: true, value: Number(text) }
        : problem(sanitizeLine(text, 60))
    case 'confirm':
      if (/^y(es)?$/i.test(text)) return { ok: true, value: true }
      return /^no?$/i.test(text) ? { ok: true, value: false } : problem(sanitizeLine(text, 60))
    case 'choice': {
      const value = pick(options, text)
      // A number that no option has is a mistake rather than an answer.
      const isOther = allowOther && !/^\d+$/.test(text)
      if (value === undefined && !isOther) return problem(sanitizeLine(text, 60))
      return { ok: true, value: value ?? text }
    }
    case 'choices': {
      if (/^none$/i.test(text)) return { ok: true, value: [] }
      const picked = text
        .split(/[\s,;]+/)
        .filter((word) => word !== '')
        .map((word) => pick(options, word) ?? word)
      const unknown = picked.find((value) => !options.some((option) => option.value === value))
      return unknown === undefined
        ? { ok: true, value: [...new Set(picked)] }
        : problem(sanitizeLine(unknown, 60))
    }
  }
}

/** The value of the option by its number, else by its value. */
function pick(options: NonNullable<UserQuestion['options']>, word: string): string | undefined {
  const byNumber = /^\d{1,2}$/.test(word) ? options[Number(word) - 1]?.value : undefined
  return byNumber ?? (/^\d+$/.test(word) ? undefined : options.find(({ value }) => value === word)?.value)
}

/** What the person reads, and beside it what the agent gets where that is another text. */
function nameOfOption({
  value,
  label,
}: {
  readonly value: string
  readonly label?: string | undefined
}): string {
  return label === undefined || label.trim() === '' || label === value ? value : `${label} · ${value}`
}
