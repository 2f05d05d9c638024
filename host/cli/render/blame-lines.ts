/** The lines of a file with the calls that made them, as columns; and what is behind one line. All of it is untrusted. */
import type { Blame, BlamedLine, LineOrigin } from '../../blame/blame.ts'
import type { BlamedApproval, BlamedCall } from '../../blame/call-details.ts'
import { formatCount, formatTime } from '../../files/format.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'

/** Lines of each text behind a line, and candidates that are shown whole. */
const textMaxLines = 20
const candidatesShown = 5

/** @param width of the terminal */
export function blameLines(blame: Blame, width: number): string[] {
  const { lines, calls } = blame
  if (blame.deletion !== undefined)
    return [`The run deleted ${sanitizeLine(blame.path)}.`, ...originLines(blame, blame.deletion)]
  if (lines.length === 0) return [`${sanitizeLine(blame.path)} has no lines.`]
  const whos = lines.map(({ origin }) => short(origin, calls))
  // A narrow terminal leaves at least half of its width to the file.
  const room = Math.max(8, Math.min(40, Math.floor(width / 2) - 8))
  const column = Math.min(room, Math.max(...whos.map(({ length }) => length)))
  const digits = String(lines.length).length
  return lines.map(({ line, text }, index) => {
    const who = inCells(whos[index] ?? '', column)
    return `${who} ${String(line).padStart(digits)}) ${sanitizeLine(text.replaceAll('\t', '  '), 2_000)}`
  })
}

/** The call, the turn, the task and the approval behind a line. */
export function chainLines(blame: Blame, { line, text, origin }: BlamedLine): string[] {
  return [
    `${sanitizeLine(blame.path)}:${line} of ${blame.runId}`,
    sanitizeBlock(text, '  │ ', 1),
    ...originLines(blame, origin),
  ]
}

function originLines(blame: Blame, origin: LineOrigin): string[] {
  const callAt = (at: number) => {
    const call = blame.calls[at]
    return call === undefined ? [] : callLines(call, blame.prompt)
  }
  if (origin.kind === 'call') return callAt(origin.call)
  if (origin.kind === 'workspace') {
    const moved = origin.moved === undefined ? [] : ['The file was renamed since:', ...callAt(origin.moved)]
    return [`Line ${origin.line} of ${sanitizeLine(origin.path)}, as it went into the VM.`, ...moved]
  }
  const { calls, more, access } = origin
  const lines = calls.length === 0 && !access ? ['The journal does not say what made it.'] : []
  if (access) lines.push('A person had access to the VM and may have made it.')
  if (calls.length > 0)
    lines.push(`One of ${formatCount(calls.length + more, 'call')} made it; no diff says which:`)
  for (const at of calls.slice(0, candidatesShown)) lines.push(...callAt(at))
  const rest = calls.length + more - candidatesShown
  if (rest > 0) lines.push(`and ${formatCount(rest, 'earlier call')}`)
  return lines
}

function callLines(call: BlamedCall, prompt: string): string[] {
  const { turn, brief, messages, approval } = call
  const agent = call.agentPath === 'root' ? '' : ` of ${sanitizeLine(call.agentPath)}`
  const step = call.stepTitle === '' ? '' : `: ${sanitizeLine(call.stepTitle)}`
  return [
    '',
    `call      ${sanitizeLine(call.tool)} ${sanitizeLine(call.callId)}${agent}, ${formatTime(call.at)}`,
    ...block(call.arguments),
    ...(call.error === undefined ? [] : [`error     ${sanitizeLine(call.error)}`]),
    ...(call.output === '' ? [] : ['output', ...block(call.output)]),
    `step      ${sanitizeLine(call.stepId)}${step}`,
    ...(turn === undefined ? [] : [`turn      ${turn.turn}`, ...block(turn.text)]),
    ...(turn?.reasoning === undefined ? [] : ['reasoning', ...block(turn.reasoning)]),
    ...messages.flatMap(({ text, by }) => [`message   of ${sanitizeLine(by)}`, ...block(text)]),
    ...(brief === undefined ? [] : ['brief', ...block(brief)]),
    'task',
    ...block(prompt),
    `approval  ${approval === undefined ? 'none was asked' : approvalText(approval)}`,
  ]
}

function approvalText(approval: BlamedApproval): string {
  const { decision, scope, by, name, via, rule, hint } = approval
  const who = name === undefined ? by : sanitizeLine(name)
  const how = via === undefined ? '' : ` (${via})`
  const reason = [rule, hint].filter((text) => text !== undefined).map((text) => `; ${sanitizeLine(text)}`)
  return `${decision === 'allow' ? 'allowed' : 'denied'} by ${who}${how}, ${scopes[scope]}${reason.join('')}`
}

const scopes = { once: 'once', run: 'for the run', always: 'always' } as const

function block(text: string): string[] {
  return text === '' ? [] : [sanitizeBlock(text, '  │ ', textMaxLines)]
}

/** Who made a line, for a column: calls by number in the order of their start, agent and tool. */
function short(origin: LineOrigin, calls: readonly BlamedCall[]): string {
  if (origin.kind === 'workspace')
    return origin.moved === undefined ? '' : `from ${sanitizeLine(origin.path)}`
  if (origin.kind === 'call') return shortCall(calls[origin.call])
  const [first, ...others] = origin.calls
  if (first === undefined) return '?'
  const count = others.length + origin.more
  return `${count === 0 ? '' : `${count + 1}? `}${shortCall(calls[first])}${origin.access ? '?' : ''}`
}

function shortCall(call: BlamedCall | undefined): string {
  if (call === undefined) return '?'
  const agent = call.agentPath === 'root' ? '' : `${sanitizeLine(call.agentPath.slice('root/'.length))} `
  const turn = call.turn === undefined ? '' : `.${call.turn.turn}`
  return `${agent}${sanitizeLine(call.stepId)}${turn} ${sanitizeLine(call.tool)}`
}

function inCells(text: string, cells: number): string {
  return text.length <= cells ? text.padEnd(cells) : `${text.slice(0, cells - 1)}…`
}
