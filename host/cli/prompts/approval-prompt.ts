/** Shows one approval or question of the agent at the terminal and reads the answer; ends the prompt when it is withdrawn. */
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import type { UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import { everyCall, sameCommand } from '../../approvals/offered-answers.ts'
import { planOf } from '../../approvals/plan-question.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { type Question, questionLines, seeAllLabel, wholeQuestion } from '../render/approval-lines.ts'
import { colorsFor } from '../render/colors.ts'
import { describeTyping, readTyped, showAnswer, userQuestionLines } from '../render/question-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { promptAccess, promptHint } from './access-prompt.ts'
import { choose, columnsOf, showPages, write } from './ask.ts'
import { type PlanPromptIo, promptPlan } from './plan-prompt.ts'
import { settleKeys } from './terminal-input.ts'

/** The answer, or null when the person pressed Esc or Ctrl-C, or the question was withdrawn. */
export async function promptApproval(request: Question, io: PlanPromptIo): Promise<ApprovalAnswer | null> {
  if (request.access !== undefined) return await promptAccess(request, request.access, io)
  if (request.question !== undefined) return await promptQuestion(request, request.question, io)
  const plan = planOf(request)
  if (plan !== undefined) return await promptPlan(plan, io)
  const { lines, isCut } = questionLines(request, colorsFor(io.output), columnsOf(io.output))
  io.output.write(`${lines.join('\n')}\n`)
  await settleKeys(io)
  const remembers = request.answers?.some(({ reach }) => reach === 'command') ?? false
  for (;;) {
    const choice = await choose(io, 'Allow it? (Esc or Ctrl-C cancels the run)', [
      // A person's yes to a server is pinned (see ../../mcp/mcp-trust.ts): it holds for more than this once.
      {
        value: 'once',
        key: 'y',
        label: request.tool === mcpOfferTool ? 'yes, until it changes' : 'yes, this once',
      },
      ...(remembers ? [{ value: 'command' as const, label: sameCommand }] : []),
      { value: 'run', label: `yes, ${everyCall(sanitizeLine(request.tool, 60))}` },
      { value: 'deny', key: 'n', label: 'no' },
      { value: 'hint', label: 'no, and tell the agent what to do instead' },
      ...(isCut ? [{ value: 'view' as const, label: seeAllLabel }] : []),
    ])
    if (choice === null) return null
    if (choice === 'once' || choice === 'run') return { decision: 'allow', scope: choice }
    if (choice === 'command') return { decision: 'allow', scope: 'run', reach: 'command' }
    if (choice === 'hint') return await promptHint(io)
    if (choice !== 'view') return { decision: 'deny', scope: 'once' }
    if (!(await showPages(wholeQuestion(request, colorsFor(io.output), columnsOf(io.output)), io)))
      return null
  }
}

/**
 * A question of the agent: one line, or what else can be done with it. Enter alone decides nothing; it offers choices
 * in words. Null as above, after Esc or Ctrl-C twice.
 */
async function promptQuestion(
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
