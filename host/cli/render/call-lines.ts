/** A call, a question and a decision on one line each, for the log of a run. Pure; untrusted text goes through sanitize.ts. */

import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import type { UserQuestion } from '#specs/protocol/question.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { planOf } from '../../approvals/plan-question.ts'
import { formatCount, formatTime } from '../../files/format.ts'
import { withFlags } from '../options.ts'
import { nameOf } from './agent-lines.ts'
import type { Colors } from './colors.ts'
import { parseObject } from './json-lines.ts'
import { showAnswer } from './question-lines.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'

/** Arguments of a call that are shown. */
const argumentsMax = 6
/** Options of a question that are. */
const optionsMax = 6
/** Lines of what an MCP server offers. */
const offerMaxLines = 40
/** Those that say what a call is about stand first; the others as they come, which is by name. */
const leadingArguments = ['path', 'from', 'to', 'command', 'code', 'query', 'url', 'name']

type Asked = Pick<Of<'approval-request'>, 'access' | 'request'> & {
  readonly kind?: Of<'approval-request'>['kind'] | undefined
}
type Of<T extends string> = Extract<HostEvent, { type: T }>

/** What is asked, on one line. */
export function describeQuestion({ access, kind, request }: Asked): string {
  const plan = access === undefined ? planOf(request) : undefined
  if (plan !== undefined) return `asks for approval of its plan: ${sanitizeLine(plan.goal, 200)}`
  if (request.question !== undefined) return askedLine(request.agentPath, request.question)
  const who = request.agentPath === 'root' ? '' : `[${nameOf(request.agentPath)}] `
  return who + describeCall({ access, kind, request })
}

/**
 * What stands below the question about an MCP server, which its arguments do not say: its words, those of
 * before, and those of now.
 */
export function offerLines({ tool, preview }: Pick<ApprovalRequest, 'tool' | 'preview'>): string[] {
  return tool === mcpOfferTool && preview !== ''
    ? sanitizeBlock(preview, '  ┆ ', offerMaxLines).split('\n')
    : []
}

function describeCall({ access, kind, request }: Asked): string {
  const isInner = request.parentCallId !== undefined
  if (access === undefined && kind === 'enforced')
    return `the host asks about ${sanitizeLine(request.tool, 60)} ${describeArguments(request.arguments, request.defaults)}${isInner ? ' (a program calls it)' : ''}`
  if (access === undefined)
    return `${isInner ? 'a program ' : ''}asks to call ${sanitizeLine(request.tool, 60)} ${describeArguments(request.arguments, request.defaults)}`
  const what = sanitizeLine(access.offers[0]?.allows ?? access.address)
  return access.from === 'agent'
    ? `asks for network access: ${what} · ${describeArguments(request.arguments)}`
    : `network access requested: ${what}`
}

function askedLine(agentPath: string, question: UserQuestion): string {
  const who = agentPath === 'root' ? '' : `[${nameOf(agentPath)}] `
  const options = question.options ?? []
  const names = options.slice(0, optionsMax).map(({ value }) => sanitizeLine(value, 40))
  if (options.length > optionsMax) names.push(`… (${options.length - optionsMax} more)`)
  const asker = question.server === undefined ? '' : `MCP server ${sanitizeLine(question.server, 64)} `
  return `${who}${asker}asks: ${firstOf(question.question)}${names.length === 0 ? '' : ` (${names.join(', ')})`}`
}

/**
 * Who decided what, on one line.
 * @param before the state before it, which still has the question
 */
export function decisionLine(event: Of<'approval-decision'>, colors: Colors, before?: RunState): string {
  if (event.by === 'agent')
    return colors.yellow(`  Question withdrawn by the agent: ${sanitizeLine(event.rule ?? '')}`)
  const pending = before?.pendingApprovals ?? {}
  const asked = Object.hasOwn(pending, event.approvalId) ? pending[event.approvalId]?.question : undefined
  const whom = {
    person: personOf(event),
    rule: 'a rule',
    mode: 'the approval mode',
    cancel: 'the end of the run',
  }[event.by]
  const isReported = event.by === 'person' || event.reach !== undefined
  const run = event.reach === 'command' ? ' for this command in this run' : ' for this run'
  const until = event.until === undefined ? '' : ` until ${formatTime(event.until)}`
  const scope = isReported ? { once: '', run: `${run}${until}`, always: ' permanently' }[event.scope] : ''
  const rule = event.rule === undefined ? '' : `: ${sanitizeLine(withFlags(event.rule))}`
  // A mode's hint is for the agent and says the same as its rule.
  const hint = event.hint === undefined || event.by === 'mode' ? '' : ` · ${sanitizeLine(event.hint)}`
  if (event.answer !== undefined)
    return `  ${colors.green('Answered')} by ${whom}${rule}: ${showAnswer(asked ?? {}, event.answer)}${hint}`
  if (asked !== undefined) return `  ${colors.red('No answer')} by ${whom}${scope}${rule}${hint}`
  const word = event.decision === 'allow' ? colors.green('Allowed') : colors.red('Denied')
  const edited = event.plan === undefined ? '' : ', with changes'
  return `  ${word} by ${whom}${scope}${edited}${rule}${hint}`
}

function personOf({ via, name = '' }: Of<'approval-decision'>): string {
  const who = sanitizeLine(name, 100)
  if (via === 'control') return `${who} (from another process)`
  if (via === 'library')
    return /^(the application)?$/.test(who) ? 'the application' : `${who} (through the application)`
  return 'you'
}

/**
 * A call's arguments as `name: value`; of a text of several lines only the first, the rest would fill the screen.
 * @param defaults names of those that the model did not give: they stand last, and say so
 */
export function describeArguments(json: string, defaults: readonly string[] = []): string {
  const given = parseObject(json)
  if (given === null) return sanitizeLine(json, 160)
  const entries = Object.entries(given).filter(
    ([, value]) => value !== false && !(Array.isArray(value) && value.length === 0),
  )
  const isDefault = (name: string): boolean => defaults.includes(name)
  entries.sort(
    ([first], [second]) =>
      Number(isDefault(first)) - Number(isDefault(second)) || rankOf(first) - rankOf(second),
  )
  const shown = entries
    .slice(0, argumentsMax)
    .map(
      ([name, value]) =>
        `${shownName(name)}${isDefault(name) ? ' (by default)' : ''}: ${describeValue(value)}`,
    )
  if (entries.length > argumentsMax) shown.push(`… (${entries.length - argumentsMax} more)`)
  return shown.join(' · ')
}

/** A name with anything but letters in quotes: it could end as a name that was not given does. */
function shownName(name: string): string {
  return sanitizeLine(/^[\w.-]+$/.test(name) ? name : JSON.stringify(name), 40)
}

function rankOf(name: string): number {
  const rank = leadingArguments.indexOf(name)
  return rank < 0 ? leadingArguments.length : rank
}

function describeValue(value: unknown): string {
  return typeof value === 'string' ? firstOf(value) : sanitizeLine(JSON.stringify(value) ?? '', 100)
}

/** A text, or of several lines the first. */
function firstOf(text: string): string {
  const [first = '', ...more] = text.trim().split('\n')
  return more.length === 0
    ? sanitizeLine(text, 160)
    : `${sanitizeLine(first, 80)} … (${formatCount(more.length, 'more line')})`
}
