/**
 * Puts a question of the agent before the person at the terminal and reads the answer: one line, or what else can be done with
 * the question. Nothing decides by Enter alone but what stands behind it in words.
 */
import type { UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import type { ApprovalAnswer } from '../../approvals/approval-types.ts'
import { type Question, seeAllLabel } from '../render/approval-lines.ts'
import { colorsFor } from '../render/colors.ts'
import { describeTyping, readTyped, showAnswer, userQuestionLines } from '../render/question-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { promptHint } from './access-prompt.ts'
import { choose, columnsOf, showPages, write } from './ask.ts'
import type { PlanPromptIo } from './plan-prompt.ts'
import { settleKeys } from './terminal-input.ts'

/** The answer, or null when the person pressed Esc or Ctrl-C twice, or the question was withdrawn. */
export async function promptQuestion(
  request: Question,
  question: UserQuestion,
  io: PlanPromptIo,
): Promise<ApprovalAnswer | null> {
  const colors = colorsFor(io.output)
  const { lines, isCut } = userQuestionLines(request, question, colors, columnsOf(io.output))
  io.output.write(`${lines.join('\n')}\n`)
  await settleKeys(io)
  const message = `${describeTyping(question)} (Enter alone: more options)`
  for (;;) {
    const typed = await write(io, message)
    if (io.signal.aborted) return null
    if (typed !== null && typed.trim() !== '') {
      const read = readTyped(question, typed)
      if (read.ok) return answered(read.value)
      io.output.write(`${colors.yellow(read.error)}\n`)
      await settleKeys(io)
      continue
    }
    const other = await doOther(request, question, io, isCut)
    if (other !== 'back') return other
  }
}

/** What can be done but to type an answer. */
async function doOther(
  request: Question,
  question: UserQuestion,
  io: PlanPromptIo,
  isCut: boolean,
): Promise<ApprovalAnswer | 'back' | null> {
  const { defaultAnswer } = question
  const hasEditor = question.kind === 'text' && io.edit !== undefined
  const choice = await choose(io, 'What now? (Esc or Ctrl-C cancels the run)', [
    ...(defaultAnswer === undefined
      ? []
      : [
          {
            value: 'default' as const,
            label: `use the default: ${showAnswer(question, defaultAnswer, 60)}`,
          },
        ]),
    { value: 'back', label: 'back to the question' },
    ...(hasEditor ? [{ value: 'edit' as const, label: 'write the answer in an editor' }] : []),
    ...(isCut ? [{ value: 'view' as const, label: seeAllLabel }] : []),
    { value: 'deny', label: 'decline to answer' },
    { value: 'hint', label: 'decline, and tell the agent what to do instead' },
    { value: 'deny-run', label: 'decline this and all further questions in this run' },
  ])
  switch (choice) {
    case 'default':
      return defaultAnswer === undefined ? 'back' : answered(defaultAnswer)
    case 'deny':
      return { decision: 'deny', scope: 'once' }
    case 'deny-run':
      return { decision: 'deny', scope: 'run' }
    case 'hint':
      return (await promptHint(io)) ?? (io.signal.aborted ? null : 'back')
    case 'edit':
      return await editAnswer(question, io)
    case 'view': {
      const { output } = io
      const { lines } = userQuestionLines(request, question, colorsFor(output), columnsOf(output), true)
      return (await showPages(lines, io)) ? 'back' : null
    }
    default:
      return choice
  }
}

async function editAnswer(question: UserQuestion, io: PlanPromptIo): Promise<ApprovalAnswer | 'back' | null> {
  const edited = await io.edit?.('', 'answer.txt')
  if (io.signal.aborted) return null
  const read = edited?.ok === true ? readTyped(question, edited.value.replace(/\n$/, '')) : edited
  if (read?.ok === true) return read.value === '' ? 'back' : answered(read.value)
  io.output.write(`${sanitizeLine(read?.error ?? 'no editor is set; set EDITOR')}\n`)
  return 'back'
}

function answered(answer: UserAnswer): ApprovalAnswer {
  return { decision: 'allow', scope: 'once', answer }
}
