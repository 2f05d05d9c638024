/**
 * A plan before it is carried out, put before the person at the terminal: a yes, a no, or the plan as they change it. What
 * they wrote is read like any plan from outside; until it fits they learn what is wrong and may continue.
 */
import type { Result } from '#specs/protocol/error.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { readPlanText } from '../../approvals/plan-question.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { formatCount } from '../../files/format.ts'
import { seeAllLabel } from '../render/approval-lines.ts'
import { type Colors, colorsFor } from '../render/colors.ts'
import { fitLine } from '../render/fit.ts'
import { toPlainJson } from '../render/json-lines.ts'
import { planChanges, planRows } from '../render/plan-lines.ts'
import { sanitizeRows } from '../render/sanitize.ts'
import { promptHint } from './access-prompt.ts'
import { choose, columnsOf, type PromptIo, showPages } from './ask.ts'
import { settleKeys } from './terminal-input.ts'

export interface PlanPromptIo extends PromptIo {
  /** Lets the person change a text, in a file of that name; absent: there is no way to. The error says why it was not changed. */
  readonly edit?: (text: string, fileName?: string) => Promise<Result<string, string>>
  /** What keeps a plan from being the next one. */
  readonly findPlanProblems?: (plan: Plan) => readonly string[]
  /** The plan in force: of another one is said what it changes. */
  readonly current?: Plan | null
}

/** Rows of the plan that come with the question. */
const planMaxRows = 60

/** The answer, or null when the person pressed Esc or Ctrl-C, or the question was withdrawn. */
export async function promptPlan(plan: Plan, io: PlanPromptIo): Promise<ApprovalAnswer | null> {
  const colors = colorsFor(io.output)
  const rows = planRows(plan, columnsOf(io.output))
  const isCut = rows.length > planMaxRows
  io.output.write(`${questionRows(plan, rows, io, colors).join('\n')}\n`)
  await settleKeys(io)
  for (;;) {
    const choice = await choose(io, 'Run this plan? (Esc or Ctrl-C cancels the run)', [
      { value: 'once', key: 'y', label: 'yes' },
      { value: 'run', label: 'yes, and every later plan of this run' },
      ...(io.edit === undefined ? [] : [{ value: 'edit' as const, label: 'edit it first' }]),
      { value: 'deny', key: 'n', label: 'no' },
      { value: 'hint', label: 'no, and tell the agent what to do instead' },
      ...(isCut ? [{ value: 'view' as const, label: seeAllLabel }] : []),
    ])
    if (choice === null) return null
    if (choice === 'once' || choice === 'run') return { decision: 'allow', scope: choice }
    if (choice === 'hint') return await promptHint(io)
    if (choice === 'deny') return { decision: 'deny', scope: 'once' }
    if (choice === 'edit') {
      const edited = await editPlan(plan, io, colors)
      if (edited === 'left') return null
      if (edited !== 'unchanged') return { decision: 'allow', scope: 'once', plan: edited }
    } else if (!(await showPages(rows, io))) return null
  }
}

function questionRows(
  plan: Plan,
  rows: readonly string[],
  { output, current }: PlanPromptIo,
  colors: Colors,
): string[] {
  const width = columnsOf(output)
  // Where the agent announced it before it asked, it is in force already.
  const isOther = current != null && JSON.stringify(current) !== JSON.stringify(plan)
  const changes = !isOther
    ? []
    : [colors.dim('  changes:'), ...planChanges(current, plan, colors), colors.dim('  full plan:')]
  const more = rows.length - planMaxRows
  return [
    '',
    colors.bold('Plan: the agent asks for approval'),
    ...changes.flatMap((line) => fitLine(line, width)),
    ...rows.slice(0, planMaxRows),
    ...(more > 0 ? [colors.yellow(`  │ … ${formatCount(more, 'more line')}: choose “${seeAllLabel}”`)] : []),
  ]
}

/** Until the text is a plan that may be the next one, or the person leaves it as it was. */
async function editPlan(plan: Plan, io: PlanPromptIo, colors: Colors): Promise<Plan | 'unchanged' | 'left'> {
  const original = toPlainJson(plan)
  let text = original
  for (;;) {
    const edited = (await io.edit?.(text)) ?? { ok: true, value: original }
    // A key too many for the editor is no answer to what comes next.
    await settleKeys(io)
    if (io.signal.aborted) return 'left'
    if (edited.ok && edited.value.trim() === original.trim()) return 'unchanged'
    if (edited.ok) text = edited.value
    const read = edited.ok ? readPlanText(text) : edited
    const problems = read.ok ? (io.findPlanProblems?.(read.value) ?? []) : [read.error]
    if (read.ok && problems.length === 0) {
      const next = await confirm(plan, read.value, io, colors)
      if (next !== 'again') return next === 'yes' ? read.value : next
      continue
    }
    const rows = problems.flatMap((problem) => sanitizeRows(problem, '  │ ', columnsOf(io.output)))
    io.output.write(`${[colors.yellow('This plan is not valid:'), ...rows].join('\n')}\n`)
    const next = await choose(io, 'What now?', [
      { value: 'again', label: 'edit it again' },
      { value: 'unchanged', label: 'keep the plan of the agent' },
    ])
    if (next !== 'again') return next ?? 'left'
  }
}

async function confirm(
  before: Plan,
  after: Plan,
  io: PlanPromptIo,
  colors: Colors,
): Promise<'yes' | 'again' | 'unchanged' | 'left'> {
  const lines = planChanges(before, after, colors).flatMap((line) => fitLine(line, columnsOf(io.output)))
  io.output.write(`${lines.join('\n')}\n`)
  const choice = await choose(io, 'Run the edited plan?', [
    { value: 'yes', key: 'y', label: 'yes' },
    { value: 'again', label: 'edit it again' },
    { value: 'unchanged', label: 'keep the plan of the agent' },
  ])
  return choice ?? 'left'
}
