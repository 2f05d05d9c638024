/** The AG-UI side of the service: one request in, a stream of AG-UI events out. The run outlives both. */

import { setTimeout as sleep } from 'node:timers/promises'
import { type Event, EventType, type Interrupt, PROTOCOL_VERSION } from '@ag-ui/core'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { AgUiRequest } from '#specs/service/ag-ui-resources.ts'
import { ServiceError } from '../../client/index.ts'
import { type Question, questionsOf } from '../run-view/run-view.ts'
import { interruptOf } from './interrupts.ts'
import { KnownMessages } from './known-messages.ts'
import { RunEvents } from './run-events.ts'
import { openTurn, type ThreadParts, ThreadRefusal, type Turn, untilOver } from './thread.ts'

export interface AgUiParts extends ThreadParts {
  readonly clean: CleanText
  /** Whether the caller may answer questions. */
  readonly canAnswer: boolean
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal
}

/** Steps side by side often ask at once. */
const settleMs = 100

/**
 * Does what a request asks for, and gives its answer as server-sent events.
 * @throws {ServiceError} where a route refuses; then nothing was answered
 */
export async function answerAgUi(parts: AgUiParts, input: AgUiRequest): Promise<AsyncGenerator<string>> {
  try {
    const turn = await openTurn(parts, input)
    return framesOf(orError(followTurn(parts, input, turn)))
  } catch (error) {
    if (!(error instanceof ThreadRefusal)) throw error
    const { code, message } = error
    return framesOf(oneByOne([startOf(input), { type: EventType.RUN_ERROR, code, message }]))
  }
}

async function* followTurn(parts: AgUiParts, input: AgUiRequest, turn: Turn): AsyncGenerator<Event> {
  const { service, signal, canAnswer } = parts
  const { runId, seen } = turn
  const events = new RunEvents({ runId, seen, known: new KnownMessages(input.messages), state: input.state })
  yield startOf(input)
  yield* events.begin()
  const shown = new Set<string>()
  const told = new Set<string>()
  for await (const item of service.events(runId, { signal })) {
    yield* events.of(item)
    if (item.source !== 'host' || item.event.type !== 'approval-request') continue
    shown.add(item.event.request.approvalId)
    if (events.isMuted) continue
    const questions = await questionsNow(parts, runId, shown)
    if (canAnswer && questions.length > 0) {
      yield* interrupted(input, events, toInterrupts(parts, questions, events))
      return
    }
    const others = questions.filter(({ approval }) => !told.has(approval.approvalId))
    for (const { approval } of others) told.add(approval.approvalId)
    for (const interrupt of toInterrupts(parts, others, events)) yield events.waitsElsewhere(interrupt)
  }
  if (!signal.aborted) yield* await endOf(parts, input, runId, events)
}

/**
 * What the run waits for now; nothing while the events have not come to all of it, since what comes before the last question
 * would be lost. @param shown approvals that the events have come to
 */
async function questionsNow(
  { service, signal }: AgUiParts,
  runId: string,
  shown: ReadonlySet<string>,
): Promise<Question[]> {
  const isShown = ({ approval }: Question) => shown.has(approval.approvalId)
  const before = await questionsOf(service, runId, signal)
  if (before.length === 0 || !before.every(isShown)) return []
  await sleep(settleMs)
  const questions = await questionsOf(service, runId, signal)
  return questions.every(isShown) ? questions : []
}

function toInterrupts({ clean }: AgUiParts, questions: readonly Question[], events: RunEvents): Interrupt[] {
  return questions.map((question) =>
    interruptOf(question, events.toolCallOf(question.approval.agentPath, question.approval.callId), clean),
  )
}

function interrupted({ threadId, runId }: AgUiRequest, events: RunEvents, interrupts: Interrupt[]): Event[] {
  const outcome = { type: 'interrupt' as const, interrupts }
  return [...events.end(true), { type: EventType.RUN_FINISHED, threadId, runId, outcome }]
}

/** The run ended, or nobody carries it out. */
async function endOf(parts: AgUiParts, input: AgUiRequest, id: string, events: RunEvents): Promise<Event[]> {
  const { end, changes } = events.state
  const { threadId, runId } = input
  if (end === null) {
    const interrupts = toInterrupts(parts, await questionsOf(parts.service, id, parts.signal), events)
    if (interrupts.length > 0) return interrupted(input, events, interrupts)
    const message = `${id} is not at work any more and has not ended. Continue it: POST /v1/runs/${id}/resume`
    return [{ type: EventType.RUN_ERROR, code: 'run_not_at_work', message }]
  }
  // Whoever reads the end may continue the run at once.
  await untilOver(parts.service, id)
  const { model } = await parts.service.call('getRun', { params: { run: id } })
  const usage = events.usage(model)
  if (end.outcome === 'failed')
    return [{ type: EventType.RUN_ERROR, code: end.reason, message: end.message || end.reason, usage }]
  const outcome = { type: end.outcome === 'cancelled' ? ('cancelled' as const) : ('success' as const) }
  const result = {
    ...{ runId: id, outcome: end.outcome, summary: end.summary },
    changes: changes === null ? null : { entries: changes.entries, flagged: [...changes.flagged] },
  }
  return [...events.end(false), { type: EventType.RUN_FINISHED, threadId, runId, outcome, result, usage }]
}

function startOf({ threadId, runId, parentRunId }: AgUiRequest): Event {
  const parent = parentRunId === undefined ? {} : { parentRunId }
  return { type: EventType.RUN_STARTED, threadId, runId, protocolVersion: PROTOCOL_VERSION, ...parent }
}

/** A refusal in the middle of a stream is its end, and the run continues. */
async function* orError(events: AsyncIterable<Event>): AsyncGenerator<Event> {
  try {
    yield* events
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    const message = `${error.message} The run continues: send the same messages again to follow it.`
    yield { type: EventType.RUN_ERROR, code: error.code, message }
  }
}

async function* oneByOne(events: readonly Event[]): AsyncGenerator<Event> {
  yield* events
}

/** JSON has no raw line ends, so one line of data is enough. */
async function* framesOf(events: AsyncIterable<Event>): AsyncGenerator<string> {
  for await (const event of events) yield `data: ${JSON.stringify(event)}\n\n`
}
