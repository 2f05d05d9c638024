/** Compares a run that lost its agent, its VM or its host with one that nobody disturbed. */
import { createHash } from 'node:crypto'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { Host } from '../../host/host.ts'
import type { Kill } from './kills.ts'
import { expectedFiles, expectedOrders } from './scenario.ts'
import { hasEnded, type Outcome } from './world.ts'

/** One of the properties that a run must have wherever it was killed, and what was seen instead. */
export interface Breach {
  readonly property:
    | 'prefix continuation'
    | 'effects exactly once'
    | 'checkpoint validity'
    | 'consume once'
    | 'recovery determinism'
    | 'one end'
  readonly seen: string
}

export function hashOf(files: Readonly<Record<string, string>>): string {
  return createHash('sha256')
    .update(JSON.stringify(Object.entries(files).sort()))
    .digest('hex')
}

/** What of an undisturbed run is known beforehand. */
export function judge(outcome: Outcome, undisturbed: Outcome, kill?: Kill): Breach[] {
  return [
    ...judgePrefix(outcome, kill),
    ...judgeEffects(outcome, undisturbed, kill),
    ...judgeCheckpoints(outcome),
    ...judgeQuestions(outcome),
    ...judgeSteps(outcome, undisturbed),
    ...judgeEnd(outcome),
  ]
}

/** What the journal had is still there, and the run continues behind it; a history without its kill proves nothing. */
function judgePrefix({ killedAfter, lines, events }: Outcome, kill: Kill | undefined): Breach[] {
  const property = 'prefix continuation'
  if (kill === undefined || hasEnded(killedAfter)) return []
  if (killedAfter === undefined) return [{ property, seen: 'nobody was killed' }]
  const at = killedAfter.findIndex((line, index) => lines[index] !== line)
  if (at >= 0) return [{ property, seen: `line ${at + 1} is another one` }]
  const later = events.slice(killedAfter.length)
  // Each sleep is followed by a line of its own, unless it was the kill that ended it.
  const resumes = countOf(later, 'run-resume') - countOf(later, 'run-sleep')
  // A VM that was never heard of is replaced unseen. So is an agent that had not begun the task: the next agent of that VM
  // gets it. One that has done its work is not needed.
  const before = events.slice(0, killedAfter.length).map(({ event }) => event.type)
  const heard = before.slice(before.lastIndexOf('run-resume') + 1)
  const isUnseen = !heard.some((type) => continues.has(type) && (kill.victim === 'VM' || type !== 'vm-ready'))
  const isOver = isUnseen || isParted(later) || later.every(({ event }) => !continues.has(event.type))
  if (kill.victim === 'agent' || kill.victim === 'VM')
    return resumes === 1 || (resumes === 0 && isOver)
      ? []
      : [{ property, seen: `${resumes} times it continued` }]
  return resumes === 1 ? [] : [{ property, seen: `${resumes} times it continued` }]
}

/** Whether the run went to sleep next, and so had no more need of its VM; another agent may have begun to connect. */
function isParted(later: Outcome['events']): boolean {
  const next = later.find(({ event }) => event.type === 'run-resume' || event.type === 'run-sleep')
  return next?.event.type === 'run-sleep'
}

function countOf(events: Outcome['events'], type: string): number {
  return events.filter(({ event }) => event.type === type).length
}

/** Lines that only a run with an agent has. */
const continues = new Set(['vm-ready', 'model-start', 'tool-start', 'step-start', 'step-end', 'run-resume'])

function judgeEffects(outcome: Outcome, undisturbed: Outcome, kill: Kill | undefined): Breach[] {
  const property = 'effects exactly once'
  const breaches: Breach[] = []
  if (hashOf(outcome.files) !== hashOf(expectedFiles))
    breaches.push({ property, seen: `files ${JSON.stringify(outcome.files)}` })
  const unknown = unknownOrders(outcome.events)
  for (const id of expectedOrders) {
    const times = outcome.orders.filter((line) => line === `ordered ${id}`).length
    if (times !== 1 && !(times === 0 && unknown > 0))
      breaches.push({ property, seen: `${id} was ordered ${times} times` })
  }
  // The line of a program's connection has no barrier: a power failure may lose it.
  const named =
    kill?.victim === 'power' ||
    outcome.events.some(({ event }) => event.type === 'run-resume' && (event.reached ?? []).length > 0)
  if (outcome.outside !== 1 && !(outcome.outside === 2 && named))
    breaches.push({ property, seen: `${outcome.outside} requests came outside, unnamed` })
  const extra = outcome.paid - undisturbed.paid
  const open = openRequests(outcome)
  if (extra > open) breaches.push({ property, seen: `${extra} requests were paid again, ${open} were open` })
  return breaches
}

/** A call without a result that the model learned of as such. */
function unknownOrders(events: readonly JournalEvent[]): number {
  return events.filter(
    ({ event }) => event.type === 'tool-end' && event.error?.message.includes('result is not known') === true,
  ).length
}

/** Model requests that the victim left without an answer in the journal. */
export function openRequests({ events, killedAfter }: Outcome): number {
  const before = events.slice(0, killedAfter?.length ?? 0)
  const count = (type: string) => before.filter(({ event }) => event.type === type).length
  return count('model-start') - count('model-end') + requestsUnseen
}

/** A request may have been sent whose line is not written yet: one of each step at work. */
const requestsUnseen = 2

/** Each agent that continued did so from a checkpoint that the journal had, the last one. */
function judgeCheckpoints({ events }: Outcome): Breach[] {
  let last: string | null = null
  const breaches: Breach[] = []
  for (const { event, seq } of events) {
    if (event.type === 'checkpoint') last = event.checkpointId
    if (event.type === 'run-resume' && event.checkpointId !== last)
      breaches.push({
        property: 'checkpoint validity',
        seen: `line ${seq} continues from ${event.checkpointId}, the last is ${last}`,
      })
  }
  return breaches
}

/** A question that has its answer is not asked again. */
function judgeQuestions({ events, asked }: Outcome): Breach[] {
  const property = 'consume once'
  const decided = new Map<string, number>()
  // One that ended with its agent was withdrawn, and is asked again.
  for (const { event } of events)
    if (event.type === 'approval-decision' && event.by !== 'agent')
      decided.set(event.approvalId, (decided.get(event.approvalId) ?? 0) + 1)
  const twice = [...decided].filter(([, times]) => times > 1)
  const breaches = twice.map(
    ([id, times]) => ({ property, seen: `${id} was decided ${times} times` }) as const,
  )
  return asked > 2 ? [...breaches, { property, seen: `the person was asked ${asked} times` }] : breaches
}

function judgeSteps({ events }: Outcome, undisturbed: Outcome): Breach[] {
  const [seen, expected] = [events, undisturbed.events].map((lines) => JSON.stringify(stepsOf(lines)))
  return seen === expected ? [] : [{ property: 'recovery determinism', seen: `steps ${seen}` }]
}

function stepsOf(events: readonly JournalEvent[]): object {
  const { steps, agents, revision } = events
    .map((line) => ({ agentPath: 'agentPath' in line ? line.agentPath : 'root', event: line.event }))
    .reduce(reduceRun, initialRunState)
  return { steps, agents, revision }
}

function judgeEnd({ events, left, end, killedAfter }: Outcome): Breach[] {
  const property = 'one end'
  const ends = events.flatMap(({ event }) => (event.type === 'run-end' ? [event] : []))
  // A process that died behind its run's last line could not remove what the run needed; `caisson clean` does.
  const stays = hasEnded(killedAfter) ? [] : left
  const breaches: Breach[] = stays.map((what) => ({ property, seen: `${what} is left` }))
  if (ends.length !== 1) breaches.push({ property, seen: `${ends.length} ends` })
  if (!end.startsWith('completed')) breaches.push({ property, seen: end })
  return breaches
}

/** Paths with their differences, as a person reviews them. */
export async function changesOf(host: Host, runId: string): Promise<object[]> {
  const changes: object[] = []
  for await (const change of (await host.changes(runId)).reviewWithDiffs()) changes.push(change)
  return changes
}

/** What each step and each sub-agent did, in its order; steps side by side have no order among each other. */
export function workOf(events: readonly JournalEvent[]): Readonly<Record<string, readonly string[]>> {
  const work: Record<string, string[]> = {}
  for (const line of events) {
    if (line.source !== 'agent') continue
    const { event, agentPath } = line
    if (event.type !== 'tool-end' && event.type !== 'step-end' && event.type !== 'agent-end') continue
    const {
      durationMs: _,
      output: __,
      usage: ___,
      ...rest
    } = { durationMs: 0, output: '', usage: 0, ...event }
    const of = `${agentPath} ${'stepId' in event ? event.stepId : ''}`
    work[of] = [...(work[of] ?? []), JSON.stringify(rest)]
  }
  return work
}
