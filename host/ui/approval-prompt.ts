/** Puts one approval before the person at the terminal and reads the answer; takes the question back when it is withdrawn. */
import type { ApprovalAnswer } from '../approvals/queue.ts'
import { promptAccess, promptHint } from './access-prompt.ts'
import { type Question, questionLines, seeAllLabel, wholeQuestion } from './approval-lines.ts'
import { choose, columnsOf, type PromptIo } from './ask.ts'
import { coloursFor } from './colours.ts'
import { foreignLine } from './foreign.ts'
import { discardTypeAhead } from './type-ahead.ts'

/** The answer, or null when the person pressed Esc or Ctrl-C, or the question was withdrawn. */
export async function promptApproval(request: Question, io: PromptIo): Promise<ApprovalAnswer | null> {
  if (request.access !== undefined) return await promptAccess(request, request.access, io)
  const { lines, isCut } = questionLines(request, coloursFor(io.output), columnsOf(io.output))
  io.output.write(`${lines.join('\n')}\n`)
  await discardTypeAhead(io.input)
  for (;;) {
    const choice = await choose(io, 'Allow it? (Esc or Ctrl-C cancels the run)', 'deny', [
      { value: 'once', label: 'yes, this once' },
      { value: 'run', label: `yes, every ${foreignLine(request.tool, 60)} in this run` },
      { value: 'deny', label: 'no' },
      { value: 'hint', label: 'no, and tell the agent what to do instead' },
      ...(isCut ? [{ value: 'view' as const, label: seeAllLabel }] : []),
    ])
    if (choice === null) return null
    if (choice === 'once' || choice === 'run') return { decision: 'allow', scope: choice }
    if (choice === 'hint') return await promptHint(io)
    if (choice !== 'view') return { decision: 'deny', scope: 'once' }
    if (!(await showPages(request, io))) return null
  }
}

/** Shows all of the question, a screen at a time. False when the person pressed Esc or Ctrl-C, or it was withdrawn. */
async function showPages(request: Question, io: PromptIo): Promise<boolean> {
  const rows = wholeQuestion(request, coloursFor(io.output), columnsOf(io.output))
  // The question below a page takes some rows, too.
  const pageRows = Math.max(5, (io.output.rows || 24) - 8)
  for (let from = 0; from < rows.length; ) {
    io.output.write(`${rows.slice(from, from + pageRows).join('\n')}\n`)
    from += pageRows
    if (from >= rows.length) return true
    const next = await choose(io, `Lines 1 to ${from} of ${rows.length}`, 'more', [
      { value: 'more', label: 'more' },
      { value: 'rest', label: 'all the rest' },
      { value: 'back', label: 'back to the question' },
    ])
    if (next === null) return false
    if (next === 'back') return true
    if (next === 'rest') {
      io.output.write(`${rows.slice(from).join('\n')}\n`)
      return true
    }
  }
  return true
}
