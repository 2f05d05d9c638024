/** What a client does to a run at work, without doing it twice: messages and answers that may be sent again. */
import { type JournalEvent, ServiceError } from '../../client/index.ts'
import type { Answer } from './question-form.ts'
import { isGone, type Question, type RouteCaller } from './run-view.ts'

const eventsOfPage = 10_000

/** Sends a message to the agent unless one of this name was sent. @param by names the message, for the journal */
export async function sendOnce(service: RouteCaller, runId: string, text: string, by: string): Promise<void> {
  for (let from = 1, isLast = false; !isLast; ) {
    const query = { from, limit: eventsOfPage }
    const page = await service.call('listEvents', { params: { run: runId }, query })
    if (page.events.some((event) => isMessageOf(event, by))) return
    from = page.next
    isLast = page.events.length === 0
  }
  await service.call('sendMessage', { params: { run: runId }, body: { text, by } })
}

/** The first answer counts, so a later one changes nothing. @param by who answers, for the journal */
export async function giveAnswer(
  service: RouteCaller,
  { runId, approval }: Question,
  answer: Answer,
  by: string,
): Promise<void> {
  const params = { run: runId, approval: approval.approvalId }
  try {
    await service.call('answerApproval', { params, body: { ...answer, by } })
  } catch (error) {
    if (!(error instanceof ServiceError && isGone(error))) throw error
  }
}

function isMessageOf({ event }: JournalEvent, by: string): boolean {
  return event.type === 'steer-request' && (event.by === by || event.by.endsWith(`: ${by}`))
}
