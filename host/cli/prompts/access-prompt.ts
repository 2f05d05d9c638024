/**
 * A question about network access at the terminal: what would be allowed, in the host's words, then for
 * how long and how far.
 */
import type { AccessQuestion } from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { formatCount } from '../../files/format.ts'
import { parseJson } from '../../files/json.ts'
import type { Question } from '../render/approval-lines.ts'
import { type Colors, colorsFor } from '../render/colors.ts'
import { fitLine } from '../render/fit.ts'
import { sanitizeLine, sanitizeRows } from '../render/sanitize.ts'
import { choose, columnsOf, type PromptIo, write } from './ask.ts'
import { settleKeys } from './terminal-input.ts'

const reasonMargin = '  │ '
const addressMargin = '  ┆ '
/** More would take the host's words off the screen; what is not shown is in the journal. */
const reasonMaxRows = 12
const addressMaxRows = 6

/** The question as rows. @param width cells of the terminal's rows */
export function accessLines(
  { agentPath, stepId, arguments: given }: Question,
  { from, address, because, offers }: AccessQuestion,
  colors: Colors,
  width: number,
): string[] {
  const [first] = offers
  const head = `Network access: allow ${sanitizeLine(first?.allows ?? address)}?`
  const asker =
    from === 'agent'
      ? `  asked by ${sanitizeLine(agentPath, 300)}, step ${sanitizeLine(stepId, 64)}; not allowed yet: ${sanitizeLine(because)}`
      : `  a program in the VM tries to connect; ${sanitizeLine(because)}`
  const reason = from === 'agent' ? reasonOf(given) : ''
  return [
    '',
    ...fitLine(head, width).map(colors.bold),
    ...fitLine(asker, width).map(colors.dim),
    ...firstRows(sanitizeRows(address, addressMargin, width), addressMaxRows, addressMargin),
    ...(reason === '' ? [] : [colors.dim('  the agent says:')]),
    ...firstRows(sanitizeRows(reason, reasonMargin, width), reasonMaxRows, reasonMargin),
  ]
}

/** The answer, or null when the person pressed Esc or Ctrl-C, or the question was withdrawn. */
export async function promptAccess(
  request: Question,
  access: AccessQuestion,
  io: PromptIo,
): Promise<ApprovalAnswer | null> {
  const rows = accessLines(request, access, colorsFor(io.output), columnsOf(io.output))
  io.output.write(`${rows.join('\n')}\n`)
  await settleKeys(io)
  const { offers } = access
  let reach: AccessReach | undefined = offers[0]?.reach
  for (;;) {
    const allows = offers.find((offer) => offer.reach === reach)?.allows ?? access.address
    const message = `Allow ${sanitizeLine(allows)}? (Esc or Ctrl-C cancels the run)`
    const choice = await choose(io, message, [
      { value: 'once', key: 'y', label: 'yes, the next connection only' },
      { value: 'run', label: 'yes, in this run' },
      { value: 'always', label: 'yes, permanently (revoke: caisson policy revoke)' },
      ...(offers.length > 1 ? [{ value: 'reach' as const, label: 'choose a wider or narrower rule' }] : []),
      { value: 'deny', key: 'n', label: 'no' },
      { value: 'deny-run', label: 'no, and do not ask again in this run' },
      { value: 'hint', label: 'no, and tell the agent what to do instead' },
    ])
    if (choice === null) return null
    const around = reach === undefined ? {} : { reach }
    if (choice === 'once' || choice === 'run' || choice === 'always')
      return { decision: 'allow', scope: choice, ...around }
    if (choice === 'deny') return { decision: 'deny', scope: 'once' }
    if (choice === 'deny-run') return { decision: 'deny', scope: 'run', ...around }
    if (choice === 'hint') return await promptHint(io)
    const chosen = await choose(
      io,
      'Allow what?',
      offers.map((offer) => ({ value: offer.reach, label: sanitizeLine(offer.allows) })),
    )
    if (chosen === null) return null
    reach = chosen
  }
}

/** A denial with what the agent should do instead; null when the person leaves. */
export async function promptHint(io: PromptIo): Promise<ApprovalAnswer | null> {
  const hint = await write(io, 'What should the agent do instead?')
  if (hint === null) return null
  return hint
    ? { decision: 'deny', scope: 'once', hint: hint.slice(0, 2_000) }
    : { decision: 'deny', scope: 'once' }
}

function firstRows(rows: readonly string[], maxRows: number, margin: string): string[] {
  if (rows.length <= maxRows) return [...rows]
  return [...rows.slice(0, maxRows), `${margin}… ${formatCount(rows.length - maxRows, 'more line')}`]
}

function reasonOf(json: string): string {
  const given = parseJson(json)
  const reason = typeof given === 'object' && given !== null && 'reason' in given ? given.reason : ''
  return typeof reason === 'string' ? reason : ''
}
