/** How and why a run was interrupted: what was under way, and what to do. Pure; sanitizes all untrusted text. */
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { formatDuration, formatTime } from '../../files/format.ts'
import { nameOf } from './agent-lines.ts'
import { describeArguments, describeQuestion } from './call-lines.ts'
import { stepTitle } from './event-lines.ts'
import { sanitizeLine } from './sanitize.ts'

/** Of calls, requests and questions each. */
const underWayMax = 5

type Of<T extends JournalEvent['event']['type']> = Extract<JournalEvent['event'], { type: T }>

/** What can still be done with the run. */
interface Left {
  /** A later run can continue in its VM. */
  readonly keepsVm: boolean
  /** Another process can continue it. */
  readonly canResume: boolean
}

/** @param events all events of a run that no process works on */
export function interruptedLines(
  runId: string,
  events: readonly JournalEvent[],
  state: RunState,
  left: Left = { keepsVm: false, canResume: false },
): string[] {
  const { end, unfinished } = state
  const last = events.at(-1)
  return [
    ...(end === null ? stoppedLines(runId, events, last?.at, state, left) : []),
    ...(unfinished === null
      ? []
      : [
          `The last ${unfinished} was interrupted. Continue: caisson workspace ${unfinished} ${runId}${unfinished === 'apply' ? ' --all' : ''}. ` +
            `Undo everything: caisson workspace undo ${runId}`,
        ]),
  ]
}

/** What an interrupted run was doing, in a few words for a list. */
export function interruptedWhile({ phase }: Pick<RunState, 'phase'>): string {
  return {
    preparing: 'before the agent began',
    planning: 'while planning',
    working: 'during the work',
    ended: '',
  }[phase]
}

function stoppedLines(
  runId: string,
  events: readonly JournalEvent[],
  lastAt: number | undefined,
  state: RunState,
  left: Left,
): string[] {
  const sleeping = events.findLast(({ event: { type } }) => type === 'run-sleep' || type === 'run-resume')
  if (sleeping?.event.type !== 'run-sleep') return diedLines(runId, events, lastAt, state, left)
  const isPaused = sleeping.event.paused === true
  return [
    `Sleeping since ${formatTime(sleeping.at)}: the run ${isPaused ? 'is paused' : 'waits for answers'}, without a VM`,
    ...firstOf(Object.values(state.pendingApprovals).map((request) => describeQuestion({ request }))).map(
      (line) => `  ${line}`,
    ),
    isPaused || Object.keys(state.pendingApprovals).length === 0
      ? `  continue it: caisson runs resume ${runId}`
      : `  answer: caisson approvals list ${runId}`,
  ]
}

function diedLines(
  runId: string,
  events: readonly JournalEvent[],
  lastAt: number | undefined,
  state: RunState,
  left: Left,
): string[] {
  const under = lastAt === undefined ? [] : underWay(events, lastAt, state)
  return [
    ...whyLines(events),
    ...(lastAt === undefined ? [] : [`  last event: ${formatTime(lastAt)}, ${interruptedWhile(state)}`]),
    ...(under.length === 0 ? [] : ['  under way at that time:', ...under.map((line) => `    ${line}`)]),
    ...whatNow(runId, events, state, left).map((line) => `  ${line}`),
  ]
}

/** By the word of the process that left the run; one that died said nothing. */
function whyLines(events: readonly JournalEvent[]): string[] {
  const said = events.findLast(({ event: { type } }) => type === 'run-interrupt' || type === 'run-resume')
  if (said?.event.type === 'run-interrupt') {
    const [why = ''] = said.event.message.split('\n')
    return [`Interrupted: ${sanitizeLine(why, 1_000)}`]
  }
  return [
    'Interrupted: the host process of this run died (killed, crashed, or the machine stopped) before the run ended',
  ]
}

function underWay(events: readonly JournalEvent[], lastAt: number, state: RunState): string[] {
  const calls: string[] = []
  const requests: string[] = []
  const questions: string[] = []
  for (const line of events) {
    const { event, at } = line
    const since = `${formatDuration(Math.max(0, lastAt - at))} before the last event`
    if (event.type === 'tool-start' && Object.hasOwn(state.openCalls, event.callId))
      calls.push(`${callWords(event, line.source === 'agent' ? line.agentPath : 'root')} · started ${since}`)
    if (event.type === 'model-start' && Object.hasOwn(state.openRequests, event.requestId))
      requests.push(`${requestWords(event, state)} · sent ${since}`)
    if (event.type === 'approval-request' && Object.hasOwn(state.pendingApprovals, event.request.approvalId))
      questions.push(`approval without an answer: ${describeQuestion(event)} · asked ${since}`)
  }
  const running = Object.entries(state.steps).filter(([, step]) => step.state === 'running')
  return [
    ...running.map(([stepId]) => `step ${stepTitle(state, stepId)}`),
    ...[calls, requests, questions].flatMap((lines) => firstOf(lines)),
    ...(state.paused ? ['the agent was paused'] : []),
  ]
}

function callWords({ tool, arguments: given }: Of<'tool-start'>, agentPath: string): string {
  const who = agentPath === 'root' ? '' : `[${nameOf(agentPath)}] `
  return `call ${who}${sanitizeLine(tool, 60)} ${describeArguments(given)}`
}

function requestWords(
  { requestId, agentPath = 'root', stepId, model, stepModel }: Of<'model-start'>,
  state: RunState,
): string {
  const who = agentPath === 'root' ? '' : ` of [${nameOf(agentPath)}]`
  const what =
    stepId === undefined ? '' : stepId === 'plan' ? ' for the plan' : ` for ${stepTitle(state, stepId)}`
  const other = model ?? stepModel
  const to = other === undefined ? '' : ` to ${sanitizeLine(other, 100)}`
  return `model request ${requestId}${to}${who}${what}`
}

function firstOf(lines: readonly string[]): string[] {
  const rest = lines.length - underWayMax
  return rest <= 0 ? [...lines] : [...lines.slice(0, underWayMax), `… ${rest} more`]
}

function whatNow(
  runId: string,
  events: readonly JournalEvent[],
  { changes, plan }: RunState,
  { keepsVm, canResume }: Left,
): string[] {
  const inVm = keepsVm ? [`continue in its VM: caisson run --continue ${runId} "TASK"`] : []
  if (changes !== null && !canResume)
    return [`its changes were collected; review them: caisson workspace diff ${runId}`, ...inVm]
  const begun = events.find(({ event }) => event.type === 'run-start')?.event
  const where = begun?.type === 'run-start' ? ` in ${sanitizeLine(begun.directory)}` : ''
  const resumed = canResume ? [`continue it from where it was: caisson runs resume ${runId}`] : []
  return [
    ...resumed,
    `no changes were collected, and nothing${where} was changed${keepsVm ? '' : '; its VM ended with it'}`,
    ...inVm,
    plan === null
      ? 'run the task again: caisson run "TASK"'
      : `run the task again, with the same plan: caisson run --plan-from ${runId}`,
  ]
}
