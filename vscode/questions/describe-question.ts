/** A question of a run in words: for a row, a notification and its document. Pure. */
import { dateTime, prettyJson, visible } from '../../page/parts/text.ts'
import { type Question, titleOf, untilOf } from '../../page/questions/question.ts'
import { plainLine } from '../session/text.ts'

/** Characters and lines of what is asked that a notification shows whole. */
const shownMaxChars = 240
const shownMaxLines = 3

/** `Allow run_bash?`, `The agent asks you`. */
export function headOf(question: Question): string {
  const { approval, access, plan } = question
  const isCall =
    access === undefined &&
    plan === undefined &&
    approval.question === undefined &&
    untilOf(approval) === undefined
  return isCall ? `Allow ${plainLine(approval.tool, 60)}?` : titleOf(question)
}

/** What is asked about, as the agent or the host has it. Untrusted. */
export function bodyOf({ approval, access, plan }: Question): string {
  if (access !== undefined) return `${access.address}: ${access.because}`
  if (approval.question !== undefined) return approval.question.question
  if (plan !== undefined) return plan.goal
  if (untilOf(approval) !== undefined) return 'The clock answers this question.'
  return approval.preview === '' ? approval.arguments : approval.preview
}

export interface NoticeWords {
  readonly text: string
  /** Whether the notification shows all that is asked, so that a yes there is a yes to it. */
  readonly isWhole: boolean
}

/** @param prompt of the run */
export function noticeOf(question: Question, prompt: string): NoticeWords {
  const { approval, plan, answers } = question
  const body = bodyOf(question)
  const isShort = body.length <= shownMaxChars && body.trim().split('\n').length <= shownMaxLines
  const isWhole =
    isShort &&
    approval.question === undefined &&
    plan === undefined &&
    answers.some(({ needs }) => needs === undefined)
  const from = prompt === '' ? question.runId : prompt
  return { text: `${headOf(question)} ${plainLine(body, shownMaxChars)} (${plainLine(from, 60)})`, isWhole }
}

/** All of a question, for a document of plain text. */
export function questionText(question: Question, prompt: string): string {
  const { approval, access, plan, runId, at } = question
  const source = approval.kind === 'cooperative' ? 'in the words of the agent' : 'asked by the host'
  const more = [
    ...(approval.agentPath === 'root' ? [] : [`sub-agent ${visible(approval.agentPath.slice(5))}`]),
    ...(approval.parentCallId === undefined ? [] : ['a program calls it']),
    ...(approval.question?.server === undefined
      ? []
      : [`for the MCP server ${visible(approval.question.server)}`]),
  ]
  const steps = plan?.steps.flatMap(({ id, title, instructions, needs, writes }) => [
    '',
    `${visible(id)}: ${visible(title)}${needs.length === 0 ? '' : ` (after ${visible(needs.join(', '))})`}`,
    ...(writes.length === 0 ? [] : [`  writes ${visible(writes.join(', '))}`]),
    ...visible(instructions)
      .split('\n')
      .map((line) => `  ${line}`),
  ])
  return [
    headOf(question),
    [source, ...more, dateTime(at)].join(' · '),
    `Run: ${visible(prompt)} (${runId})`,
    ...(approval.because === undefined ? [] : ['', `Why it is asked: ${visible(approval.because)}`]),
    '',
    visible(bodyOf(question)),
    ...(steps ?? []),
    ...(access === undefined && approval.question === undefined && plan === undefined
      ? ['', 'Arguments', visible(prettyJson(approval.arguments))]
      : []),
    '',
  ].join('\n')
}
