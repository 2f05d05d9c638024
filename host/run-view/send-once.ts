/** What a client does to a run at work, without doing it twice: messages and answers that may be sent again. */
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import { type JournalEvent, ServiceError } from '../../client/index.ts'
import type { Answer } from './question-form.ts'
import { isGone, type Question, type RouteCaller } from './run-view.ts'

const eventsOfPage = 2_000

/** Messages under way, by run and name. The journal has none of them yet. */
const sending = new Map<string, Promise<void>>()

/** Sends a message to the agent unless one of this name was sent. @param by names the message, for the journal */
export async function sendOnce(service: RouteCaller, runId: string, text: string, by: string): Promise<void> {
  const key = `${runId} ${by}`
  // Another one waits for the same, and each looks again: the first may have failed.
  while (sending.has(key)) await sending.get(key)?.catch(() => undefined)
  const sent = sendUnlessSent(service, runId, text, by)
  sending.set(key, sent)
  try {
    await sent
  } finally {
    sending.delete(key)
  }
}

async function sendUnlessSent(service: RouteCaller, runId: string, text: string, by: string): Promise<void> {
  for await (const event of eventsOf(service, runId)) if (isMessageOf(event, by)) return
  await service.call('sendMessage', { params: { run: runId }, body: { text, by } })
}

/** Whether a message of this name entered the conversation of the run's agent. */
export async function wasTaken(service: RouteCaller, runId: string, by: string): Promise<boolean> {
  const sent = new Set<string>()
  for await (const line of eventsOf(service, runId)) {
    const { event } = line
    if (event.type === 'steer-request' && isMessageOf(line, by)) sent.add(event.messageId)
    if (event.type === 'steer-seen' && event.messageIds.some((id) => sent.has(id))) return true
  }
  return false
}

/**
 * The first answer counts, so a later one changes nothing, as one to a question that changed meanwhile. @param by who answers,
 * for the journal
 */
export async function giveAnswer(
  service: RouteCaller,
  question: Question,
  answer: Answer,
  by: string,
): Promise<void> {
  const { runId, approval } = question
  const digest = digestOfQuestion(question)
  const params = { run: runId, approval: approval.approvalId }
  try {
    await service.call('answerApproval', { params, body: { ...answer, digest, by } })
  } catch (error) {
    if (!(error instanceof ServiceError && isGone(error))) throw error
  }
}

async function* eventsOf(service: RouteCaller, runId: string): AsyncGenerator<JournalEvent> {
  for (let from = 1; ; ) {
    const query = { from, limit: eventsOfPage }
    const page = await service.call('listEvents', { params: { run: runId }, query })
    yield* page.events
    if (page.events.length === 0) return
    from = page.next
  }
}

function isMessageOf({ event }: JournalEvent, by: string): boolean {
  return event.type === 'steer-request' && (event.by === by || event.by.endsWith(`: ${by}`))
}
