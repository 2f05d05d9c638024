/** Puts one approval before the person at the terminal and reads the answer; takes the question back when it is withdrawn. */
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import { planOf } from '../../approvals/plan-question.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { type Question, questionLines, seeAllLabel, wholeQuestion } from '../render/approval-lines.ts'
import { colorsFor } from '../render/colors.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { promptAccess, promptHint } from './access-prompt.ts'
import { choose, columnsOf, showPages } from './ask.ts'
import { type PlanPromptIo, promptPlan } from './plan-prompt.ts'
import { promptQuestion } from './question-prompt.ts'
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
  for (;;) {
    const choice = await choose(io, 'Allow it? (Esc or Ctrl-C cancels the run)', [
      // A person's yes to a server is pinned (see ../../mcp/mcp-trust.ts): it holds for more than this once.
      {
        value: 'once',
        key: 'y',
        label: request.tool === mcpOfferTool ? 'yes, until it changes' : 'yes, this once',
      },
      { value: 'run', label: `yes, every ${sanitizeLine(request.tool, 60)} in this run` },
      { value: 'deny', key: 'n', label: 'no' },
      { value: 'hint', label: 'no, and tell the agent what to do instead' },
      ...(isCut ? [{ value: 'view' as const, label: seeAllLabel }] : []),
    ])
    if (choice === null) return null
    if (choice === 'once' || choice === 'run') return { decision: 'allow', scope: choice }
    if (choice === 'hint') return await promptHint(io)
    if (choice !== 'view') return { decision: 'deny', scope: 'once' }
    if (!(await showPages(wholeQuestion(request, colorsFor(io.output), columnsOf(io.output)), io)))
      return null
  }
}
