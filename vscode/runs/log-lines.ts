/** Plan and log of a run as plain text: the document that VS Code shows. Pure. */

import {
  clock,
  count,
  dollars,
  duration,
  lastLines,
  mainArgument,
  tokens,
  visible,
  visibleLine,
} from '../../page/parts/text.ts'
import type { Entry, EntryOf, RunHistory } from '../../page/run/history.ts'
import type { RunLive } from '../../page/run/live.ts'
import { labelOf } from '../../page/run/workflow-words.ts'

/** Entries that the document has: the last ones. */
const maxEntries = 1_000
/** Lines of the output of one call, and characters of one text. */
const outputLines = 12
const textMaxChars = 8_000

const marks: Readonly<Record<string, string>> = {
  ...{ pending: '·', running: '▸', completed: '✓', failed: '✗', skipped: '–', cancelled: '–' },
}

export interface Shown {
  readonly history: RunHistory
  readonly live: RunLive
  /** What is wrong with the connection; empty: nothing. */
  readonly trouble: string
}

export function logText({ history, live, trouble }: Shown): string {
  const hidden = history.entries.length - maxEntries
  return [
    ...headOf(history),
    ...(trouble === '' ? [] : ['', `! ${trouble}`]),
    ...planOf(history),
    '',
    'LOG',
    ...(hidden > 0 ? [`  (${count(hidden, 'earlier entry', 'earlier entries')}: see the web page)`] : []),
    ...history.entries.slice(-maxEntries).flatMap((entry) => linesOf(entry, history)),
    ...nowOf(live),
    '',
  ].join('\n')
}

function headOf({ start, state }: RunHistory): string[] {
  if (start === null) return ['The run has no events yet.']
  const { usage, costUsd, phase, end, toolCalls } = state
  const figures = [
    end === null ? phase : end.outcome,
    count(toolCalls, 'tool call'),
    `${tokens(usage.inputTokens + usage.outputTokens)} tokens`,
    ...(costUsd === null ? [] : [dollars(costUsd)]),
    visibleLine(start.model, 100),
    visibleLine(start.directory, 200),
  ]
  return [visibleLine(start.prompt, 200), figures.join(' · ')]
}

function planOf({ state }: RunHistory): string[] {
  if (state.plan === null) return []
  const steps = state.plan.steps.map(({ id, title }) => {
    const step = Object.hasOwn(state.steps, id) ? state.steps[id]?.state : undefined
    return `  ${marks[step ?? 'pending'] ?? '·'} ${visibleLine(title, 160)}`
  })
  const agents = Object.entries(state.agents).map(
    ([path, { state: at, brief }]) =>
      `  ${marks[at] ?? '·'} sub-agent ${visibleLine(path.slice(5), 80)}: ${visibleLine(brief, 120)}`,
  )
  return ['', 'PLAN', ...steps, ...agents]
}

function linesOf(entry: Entry, { state }: RunHistory): string[] {
  // A turn that only called tools.
  if (entry.kind === 'text' && entry.event.text.trim() === '') return []
  const { at, agentPath, stepId } = entry
  const inner = stepId === undefined ? undefined : labelOf(stepId, state.plan)
  const who = [
    ...(agentPath === 'root' ? [] : [visibleLine(agentPath.slice(5), 60)]),
    ...(inner === undefined ? [] : [inner]),
  ]
  const [first = '', ...more] = bodyOf(entry)
  const from = who.length === 0 ? '' : `[${who.join(' · ')}] `
  return [`${clock(at)}  ${from}${first}`, ...more.map((line) => `          ${line}`)]
}

function bodyOf(entry: Entry): string[] {
  switch (entry.kind) {
    case 'prompt':
      return block('Task', entry.text)
    case 'text':
      return block('Agent', entry.event.text)
    case 'call':
      return callLines(entry)
    case 'question':
      return questionLines(entry)
    case 'step':
      return [visibleLine(`${stepWords[entry.event.type]}: ${entry.title}`, 300)]
    case 'plan':
      return [`Plan, revision ${entry.event.revision}: ${count(entry.event.plan.steps.length, 'step')}`]
    case 'agent':
      return [
        entry.event.type === 'agent-start'
          ? `Sub-agent starts: ${visibleLine(entry.event.brief, 200)}`
          : `Sub-agent ends: ${entry.event.state}`,
      ]
    case 'message':
      return block('You', entry.event.text)
    case 'network':
      return [visibleLine(networkWords(entry), 300)]
    case 'host':
      return [`${entry.level === 'warn' ? '! ' : ''}${visibleLine(entry.text, 400)}`]
    case 'end': {
      const { outcome, message, summary } = entry.event
      const said = entry.repeats || summary === '' ? [] : block('Answer', summary)
      return [`The run ended: ${outcome}${message === '' ? '' : ` (${visibleLine(message, 300)})`}`, ...said]
    }
  }
}

const stepWords = {
  'step-start': 'Step starts',
  'step-end': 'Step ends',
  'step-retry': 'Step again',
} as const

function callLines({ event, end }: EntryOf<'call'>): string[] {
  const what = `${visibleLine(event.tool, 60)} ${argumentsLine(event.arguments)}`
  if (end === undefined) return [`▸ ${what}`]
  const { durationMs, error, exitCode, output } = end.event
  const isBad = error !== undefined || (exitCode ?? 0) !== 0
  const how = exitCode === undefined || exitCode === 0 ? '' : `, exit ${exitCode}`
  const text = error === undefined ? (output ?? '') : `${error.code}: ${error.message}`
  const lines =
    text.trim() === '' ? [] : visible(lastLines(text.slice(-textMaxChars), outputLines)).split('\n')
  return [`${isBad ? '✗' : '✓'} ${what} (${duration(durationMs)}${how})`, ...lines.map((line) => `  ${line}`)]
}

/** A long text, such as that of a new file, does not hide its path. */
function argumentsLine(json: string): string {
  const main = mainArgument(json)
  if (main === null) return visibleLine(json, 200)
  const value = visibleLine(main.value, 200)
  return main.rest === '{}' ? value : `${value} ${visibleLine(main.rest, 200)}`
}

function questionLines({ event, decision }: EntryOf<'question'>): string[] {
  const { request } = event
  const asked = request.question?.question ?? `${request.tool} ${request.arguments}`
  const line = `? ${visibleLine(asked, 300)}`
  if (decision === undefined) return [line, 'waits for an answer']
  const { decision: answer, name, by } = decision.event
  return [line, `${answer === 'allow' ? 'allowed' : 'denied'} by ${visibleLine(name ?? by, 80)}`]
}

function networkWords({ event }: EntryOf<'network'>): string {
  return event.type === 'egress-end'
    ? `Network: ${event.target} (${event.rule})`
    : `! Network access refused: ${event.target} (${event.reason})`
}

function nowOf({ texts, prepare }: RunLive): string[] {
  const writing = [...texts.values()].flatMap(({ text, reasoning }) => {
    const said = text === '' ? reasoning : text
    return said.trim() === '' ? [] : visible(said.slice(-textMaxChars)).split('\n')
  })
  const waits = prepare === null ? [] : ['The VM is being prepared.']
  const lines = [...waits, ...writing]
  return lines.length === 0 ? [] : ['', 'NOW', ...lines.map((line) => `  ${line}`)]
}

function block(who: string, text: string): string[] {
  const cut = text.length > textMaxChars ? `${text.slice(0, textMaxChars)}…` : text
  const lines = visible(cut.trim()).split('\n')
  return lines.length === 1 ? [`${who}: ${lines[0]}`] : [`${who}:`, ...lines.map((line) => `  ${line}`)]
}
