/** Puts one approval before the person at the terminal and reads the answer. */
import type { Readable, Writable } from 'node:stream'
import { isCancel, select, text } from '@clack/prompts'
import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import type { ApprovalAnswer } from '../approvals/queue.ts'
import type { Colours } from './colours.ts'
import { foreignBlock, foreignLine } from './foreign.ts'
import { discardTypeAhead } from './type-ahead.ts'

/** The question as lines; everything in it is the agent's claim. */
export function approvalLines(request: Omit<ApprovalRequest, 'runId'>, colours: Colours): string[] {
  const { agentPath, stepId, tool, arguments: given, preview } = request
  return [
    '',
    colours.bold(`Approval: the agent says it wants to call ${foreignLine(tool, 60)}`),
    colours.dim(`  asked by ${foreignLine(agentPath, 300)}, step ${foreignLine(stepId, 64)}`),
    foreignBlock(prettyArguments(given), '  │ ', 40),
    ...(preview === '' ? [] : [colours.dim('  its preview:'), foreignBlock(preview, '  ┆ ', 60)]),
  ]
}

/** The answer, or null when the person pressed Ctrl-C or the question was withdrawn. */
export async function promptApproval(
  request: Omit<ApprovalRequest, 'runId'>,
  io: { input: Readable; output: Writable; signal: AbortSignal },
): Promise<ApprovalAnswer | null> {
  await discardTypeAhead(io.input)
  const choice = await select({
    message: 'Allow it? (Esc or Ctrl-C cancels the run)',
    options: [
      { value: 'once', label: 'yes, this once' },
      { value: 'run', label: `yes, every ${foreignLine(request.tool, 60)} in this run` },
      { value: 'deny', label: 'no' },
      { value: 'hint', label: 'no, and tell the agent what to do instead' },
    ],
    initialValue: 'deny',
    ...io,
  })
  if (isCancel(choice)) return null
  if (choice === 'once' || choice === 'run') return { decision: 'allow', scope: choice }
  if (choice === 'deny') return { decision: 'deny', scope: 'once' }
  const hint = await text({ message: 'What should it do instead?', ...io })
  if (isCancel(hint)) return null
  return hint
    ? { decision: 'deny', scope: 'once', hint: hint.slice(0, 2_000) }
    : { decision: 'deny', scope: 'once' }
}

function prettyArguments(json: string): string {
  try {
    const value: unknown = JSON.parse(json)
    if (typeof value !== 'object' || value === null) return json
    return Object.entries(value)
      .map(([name, given]) => {
        const shown = typeof given === 'string' ? given : (JSON.stringify(given) ?? '')
        return shown.includes('\n') ? `${name}:\n${shown.replaceAll(/^/gm, '  ')}` : `${name}: ${shown}`
      })
      .join('\n')
  } catch {
    return json
  }
}
