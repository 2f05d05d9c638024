/**
 * Compares two journals event by event. What has an order of its own is compared in it: the events of a step, of a call,
 * of a question. What runs side by side may come in any order. Times, durations, drawn ids and what an answer cost do not
 * count.
 */
import type { JournalEvent } from '#specs/protocol/event.ts'
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import { readPastLines } from './past-lines.ts'

/** The first place where a replay is another than the run. */
export interface ReplayDifference {
  /** Line of the run's journal; null: the run has no such event. */
  readonly line: number | null
  /** Line of the replay's journal; null: the replay has no such event. */
  readonly replayLine: number | null
  /** The agent that it is of, and its step. Absent: of none. */
  readonly agentPath?: string
  readonly stepId?: string
  /** Type of the event; `changes` for a path of the change set. */
  readonly type: string
  /** What of it differs, such as `output` or `calls.0.tool`; empty for a missing or additional event. */
  readonly field: string
  /** Untrusted text; empty where the run has nothing there. */
  readonly expected: string
  /** Untrusted text; empty where the replay has nothing there. */
  readonly seen: string
}

export interface Comparison {
  /** Events of the run that were compared. */
  readonly events: number
  readonly difference: ReplayDifference | null
  /** Whether something outside of the run ended it: its changes are no result of what it did. */
  readonly isCutOff: boolean
}

/** Events of the machine, of the network and of people who watch; the replay answers what they caused. */
const notCompared: ReadonlySet<string> = new Set([
  'queue-start',
  'queue-end',
  'vm-ready',
  'vm-sleep',
  'vm-wake',
  'vm-kept',
  'vm-keep-failed',
  'vm-end',
  'vm-access',
  'checkpoint',
  'run-sleep',
  'run-interrupt',
  'run-take',
  'run-resume',
  'session-start',
  'session-end',
  'disk-wait',
  'egress-denied',
  'egress-start',
  'egress-end',
  // The turns have what the answers were.
  'model-start',
  'model-retry',
  'model-end',
  'steer-request',
  'approval-revoke',
  'agent-cancel-request',
  'pause-request',
  'resume-request',
  'pause-start',
  'pause-end',
  'cancel-request',
])

/** Fields that are others each time, or that depend on the machine. */
const volatileFields: ReadonlySet<string> = new Set([
  'durationMs',
  'queuedMs',
  'delayMs',
  'usage',
  'costUsd',
  'context',
  'provider',
  'metadata',
  'continues',
  'replays',
  'imageKey',
  'agentDigest',
  // Of a workflow: follows from it.
  'outline',
  'approvalId',
  'messageIds',
  'noteId',
  'replaces',
  'digest',
  'cut',
  'failed',
  // What is left of a budget.
  'maxWallMs',
  'maxTokens',
  'maxCostUsd',
])
const volatileOf: Readonly<Record<string, readonly string[]>> = {
  // Of the model, which a replay does not ask.
  'run-start': ['notes'],
  // The paths are compared one by one.
  'changes-ready': ['sha256'],
  // Who decided is the recording; rules of today may word a question in another way.
  'approval-decision': ['by', 'name', 'via', 'rule', 'until', 'earlierId'],
  'approval-request': ['because', 'answers', 'preview'],
}

/** How long something took, in the words of the agent's tools. */
const elapsed = /\[([^[\]\n]{0,80}), after [\d.]{1,10} m?s\]/g

/** An event in the form in which it is compared. */
interface Compared {
  readonly line: JournalEvent
  readonly form: Readonly<Record<string, unknown>>
}

/** @param run the journal of the run @param replay that of its replay */
export function compareJournals(run: readonly JournalEvent[], replay: readonly JournalEvent[]): Comparison {
  const expected = toLanes(run)
  const seen = toLanes(replay)
  const found: ReplayDifference[] = []
  for (const [name, lane] of expected.lanes) {
    const difference = compareLane(lane, seen.lanes.get(name) ?? [], expected.isCutOff)
    if (difference !== undefined) found.push(difference)
  }
  for (const [name, lane] of seen.lanes) {
    const [first] = lane
    if (expected.lanes.has(name) || expected.isCutOff || first === undefined) continue
    found.push(differenceOf(undefined, first, ''))
  }
  found.sort((a, b) => placeOf(a) - placeOf(b))
  return {
    events: [...expected.lanes.values()].reduce((sum, lane) => sum + lane.length, 0),
    difference: found[0] ?? null,
    isCutOff: expected.isCutOff,
  }
}

const placeOf = ({ line, replayLine }: ReplayDifference): number => line ?? replayLine ?? 0

function compareLane(
  run: readonly Compared[],
  replay: readonly Compared[],
  isCutOff: boolean,
): ReplayDifference | undefined {
  for (let at = 0; at < Math.max(run.length, replay.length); at += 1) {
    const [expected, seen] = [run[at], replay[at]]
    if (expected === undefined && isCutOff) return undefined
    if (expected === undefined || seen === undefined) return differenceOf(expected, seen, '')
    const field = findField(withDiffsOf(expected.form, seen.form), withDiffsOf(seen.form, expected.form))
    if (field !== undefined) return differenceOf(expected, seen, field)
  }
  return undefined
}

/** An agent leaves out the diff of an edit that takes too long to compute: those that both forms have are compared. */
function withDiffsOf({ diffs, ...form }: Compared['form'], other: Compared['form']): Compared['form'] {
  const paths = new Set(listOf(other.diffs).map(({ path }) => path))
  const common = listOf(diffs).filter(({ path }) => paths.has(path))
  return common.length === 0 ? form : { ...form, diffs: common }
}

function listOf(diffs: unknown): readonly { readonly path?: unknown }[] {
  return Array.isArray(diffs) ? diffs : []
}

function differenceOf(
  expected: Compared | undefined,
  seen: Compared | undefined,
  field: string,
): ReplayDifference {
  const { event, ...line } = (expected ?? seen ?? never()).line
  const of = placeIn(event)
  const agentPath = line.source === 'agent' ? line.agentPath : of.agentPath
  const [left, right] = [textAt(expected?.form, field), textAt(seen?.form, field)]
  const from = firstOther(left, right)
  return {
    line: expected?.line.seq ?? null,
    replayLine: seen?.line.seq ?? null,
    ...(agentPath === undefined ? {} : { agentPath }),
    ...(of.stepId === undefined ? {} : { stepId: of.stepId }),
    type: event.type,
    field,
    expected: excerpt(left, from),
    seen: excerpt(right, from),
  }
}

function never(): never {
  throw new TypeError('a difference is of at least one event')
}

interface Lanes {
  readonly lanes: ReadonlyMap<string, Compared[]>
  readonly isCutOff: boolean
}

function toLanes(journal: readonly JournalEvent[]): Lanes {
  const { lines, callNames, isCutOff } = readPastLines(journal)
  const lanes = new Map<string, Compared[]>()
  const skipped = new Set<string>()
  const questions = new Map<string, string>()
  const runId = journal[0]?.runId ?? ''
  for (const line of lines) {
    const { event } = line
    if (event.type === 'approval-request' && isOfMachine(event)) skipped.add(event.request.approvalId)
    if (notCompared.has(event.type) || skipped.has(approvalOf(event))) continue
    const name = laneOf(line, callNames, questions)
    const lane = lanes.get(name)
    const compared = { line, form: formOf(line, { callNames, runId }) }
    if (lane === undefined) lanes.set(name, [compared])
    else lane.push(compared)
  }
  return { lanes, isCutOff }
}

/** Questions that a replay has no cause for, or always has: connections, and servers that were known. */
function isOfMachine({
  access,
  request,
}: Extract<JournalEvent['event'], { type: 'approval-request' }>): boolean {
  return access?.from === 'connection' || request.tool === mcpOfferTool
}

function approvalOf(event: JournalEvent['event']): string {
  if (event.type === 'approval-request') return event.request.approvalId
  return event.type === 'approval-decision' ? event.approvalId : ''
}

function placeIn(event: JournalEvent['event']): { agentPath?: string; stepId?: string; callId?: string } {
  const place = event.type === 'approval-request' ? event.request : event
  const text = (key: string) => {
    const value: unknown = (place as Record<string, unknown>)[key]
    return typeof value === 'string' ? { [key]: value } : {}
  }
  return { ...text('agentPath'), ...text('stepId'), ...text('callId') }
}

/** Events of one lane have one order. */
function laneOf(
  line: JournalEvent,
  callNames: ReadonlyMap<string, string>,
  questions: Map<string, string>,
): string {
  const { event } = line
  const { stepId = '', callId, agentPath } = placeIn(event)
  const of = line.source === 'agent' ? line.agentPath : (agentPath ?? '')
  const call = callId === undefined ? '' : (callNames.get(callId) ?? callId)
  switch (event.type) {
    case 'tool-start':
    case 'tool-end':
      return `call ${of} ${call}`
    case 'host-tool-start':
      questions.set(`host ${event.callId}`, `host tool ${call}`)
      return `host tool ${call}`
    case 'host-tool-end':
      return questions.get(`host ${event.callId}`) ?? `host tool ${call}`
    case 'approval-request': {
      const name = `question ${of} ${stepId} ${event.request.tool} ${call}`
      questions.set(event.request.approvalId, name)
      return name
    }
    case 'approval-decision':
      return questions.get(event.approvalId) ?? 'question'
    case 'hook-end':
      return `hook ${event.point} ${of} ${stepId} ${call}`
    case 'memory-propose':
    case 'note-propose':
      return `notes ${of}`
    case 'note':
      return `remarks ${of}`
    default:
      return line.source === 'agent' ? `agent ${of} ${stepId}` : 'run'
  }
}

interface FormParts {
  readonly callNames: ReadonlyMap<string, string>
  readonly runId: string
}

function formOf({ event, ...line }: JournalEvent, parts: FormParts): Readonly<Record<string, unknown>> {
  const dropped = new Set(volatileOf[event.type] ?? [])
  // The time of a wait follows from when it began.
  if (event.type === 'approval-request' && event.request.tool === waitTool) dropped.add('arguments')
  const form = plain(withoutLineCounts(event), parts) as Record<string, unknown>
  const kept = Object.entries(form).map(([key, value]) => [
    key,
    key === 'request' && event.type === 'approval-request' ? omit(value as object, dropped) : value,
  ])
  return {
    ...omit(Object.fromEntries(kept), dropped),
    ...(line.source === 'agent' ? { agentPath: line.agentPath } : {}),
  }
}

/** The lines of a change are counted against the directory of the host, whose files may be others by now. */
function withoutLineCounts(event: JournalEvent['event']): JournalEvent['event'] {
  if (event.type !== 'changes-ready' || event.paths === undefined) return event
  return { ...event, paths: event.paths.map(({ added: _, removed: __, ...path }) => path) }
}

function omit(value: object, names: ReadonlySet<string>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([key]) => !names.has(key)))
}

/** Without volatile fields, and with calls by their names. */
function plain(value: unknown, parts: FormParts): unknown {
  if (typeof value === 'string') return value.replaceAll(parts.runId, 'RUN').replace(elapsed, '[$1]')
  if (Array.isArray(value)) return value.map((one) => plain(one, parts))
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).flatMap(([key, one]): [string, unknown][] => {
    if (volatileFields.has(key)) return []
    if ((key === 'callId' || key === 'parentCallId') && typeof one === 'string')
      return [[key, parts.callNames.get(one) ?? one]]
    return [[key, plain(one, parts)]]
  })
  return Object.fromEntries(entries)
}

/** Path of the first part that differs; undefined: none does. */
function findField(expected: unknown, seen: unknown): string | undefined {
  if (Object.is(expected, seen)) return undefined
  if (!isTree(expected) || !isTree(seen) || Array.isArray(expected) !== Array.isArray(seen)) return ''
  for (const key of new Set([...Object.keys(expected), ...Object.keys(seen)])) {
    const below = findField(expected[key], seen[key])
    if (below !== undefined) return below === '' ? key : `${key}.${below}`
  }
  return undefined
}

function isTree(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

function textAt(form: unknown, field: string): string {
  let value = form
  for (const key of field === '' ? [] : field.split('.')) value = isTree(value) ? value[key] : undefined
  if (value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}

const excerptChars = 200
/** Characters before the first difference. */
const leadChars = 40

function firstOther(left: string, right: string): number {
  let at = 0
  while (at < left.length && at < right.length && left[at] === right[at]) at += 1
  return at
}

function excerpt(text: string, from: number): string {
  const start = Math.max(0, from - leadChars)
  const piece = text.slice(start, start + excerptChars).toWellFormed()
  return `${start > 0 ? '…' : ''}${piece}${start + excerptChars < text.length ? '…' : ''}`
}
