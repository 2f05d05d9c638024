/** The answer of a person to one question: chosen from what the run accepts. A list that is closed answers nothing. */
import * as vscode from 'vscode'
import type { OfferedAnswer } from '#specs/protocol/approval.ts'
import { isAnswerTo, type UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
import type { ServiceCall, ServiceClient } from '../../client/index.ts'
import { type Question, untilOf } from '../../page/questions/question.ts'
import { plainLine, sentence } from '../session/text.ts'
import { bodyOf, headOf } from './describe-question.ts'

type Body = ServiceCall<'answerApproval'>['body']

/** Words of the answers to a wait of a workflow. */
const waitAnswers: readonly OfferedAnswer[] = [
  { label: 'continue now', decision: 'allow', scope: 'once' },
  { label: 'end the step', decision: 'deny', scope: 'once' },
]

export function answersOf({ approval, answers }: Question): readonly OfferedAnswer[] {
  return untilOf(approval) === undefined ? answers : waitAnswers
}

/** Lets the person choose an answer and sends it. @returns whether there was one */
export async function askPerson(client: ServiceClient, question: Question): Promise<boolean> {
  const items = answersOf(question).map((offered) => ({
    label: sentence(offered.label),
    offered,
    ...(offered.scope === 'once'
      ? {}
      : { description: offered.scope === 'run' ? 'for this run' : 'for all runs' }),
  }))
  const chosen = await vscode.window.showQuickPick(items, {
    title: headOf(question),
    placeHolder: plainLine(bodyOf(question), 300),
    ignoreFocusOut: true,
  })
  return chosen === undefined ? false : await send(client, question, chosen.offered)
}

/** Sends one of the offered answers, after asking for what it needs. @returns false: the person closed the form */
export async function send(
  client: ServiceClient,
  question: Question,
  { decision, scope, reach, needs }: OfferedAnswer,
): Promise<boolean> {
  const asked = question.approval.question
  const answer = needs === 'answer' && asked !== undefined ? await readAnswer(asked) : undefined
  if (needs === 'answer' && answer === undefined) return false
  const hint =
    decision === 'deny' && untilOf(question.approval) === undefined && asked === undefined
      ? await readHint()
      : ''
  if (hint === undefined) return false
  const body: Body = {
    ...{ decision, scope, digest: question.digest },
    ...(reach === undefined ? {} : { reach }),
    ...(hint === '' ? {} : { hint }),
    ...(answer === undefined ? {} : { answer }),
  }
  await client.call('answerApproval', {
    params: { run: question.runId, approval: question.approval.approvalId },
    body,
  })
  return true
}

async function readHint(): Promise<string | undefined> {
  const text = await vscode.window.showInputBox({
    title: 'No',
    prompt: 'What the agent should do instead. Enter alone: a plain no. Escape: no answer.',
    ignoreFocusOut: true,
  })
  return text?.trim()
}

/** In the form that the question requires; undefined when the person closes it. */
async function readAnswer(question: UserQuestion): Promise<UserAnswer | undefined> {
  const { kind, options = [], allowOther = false } = question
  const title = plainLine(question.question, 300)
  const picking = { title, ignoreFocusOut: true }
  if (kind === 'text' || kind === 'number') return await readTyped(question)
  if (kind === 'confirm') {
    const yesNo = [
      { label: 'Yes', value: true },
      { label: 'No', value: false },
    ]
    return (await vscode.window.showQuickPick(yesNo, picking))?.value
  }
  const items = options.map(({ value, label }) => ({
    label: plainLine(label ?? value),
    value,
    ...(label === undefined || label === value ? {} : { description: plainLine(value) }),
  }))
  if (kind === 'choices') {
    const chosen = await vscode.window.showQuickPick(items, { ...picking, canPickMany: true })
    return chosen?.map(({ value }) => value)
  }
  const other = { label: 'Something else…', value: undefined }
  const chosen = await vscode.window.showQuickPick<{ label: string; value: string | undefined }>(
    allowOther ? [...items, other] : items,
    picking,
  )
  return chosen === other ? await readTyped(question) : chosen?.value
}

async function readTyped(question: UserQuestion): Promise<UserAnswer | undefined> {
  const { kind, defaultAnswer } = question
  const typedAs = (text: string): UserAnswer => (kind === 'number' ? Number(text) : text)
  const text = await vscode.window.showInputBox({
    // A prompt gives way to what is wrong with the answer.
    title: plainLine(question.question, 300),
    prompt: 'Your answer. Escape: no answer.',
    ignoreFocusOut: true,
    ...(defaultAnswer === undefined ? {} : { value: String(defaultAnswer) }),
    validateInput: (given) => {
      if (kind === 'number' && given.trim() === '') return 'Type a number.'
      return isAnswerTo(question, typedAs(given)) ? null : 'This is no answer in the required form.'
    },
  })
  return text === undefined ? undefined : typedAs(text)
}
