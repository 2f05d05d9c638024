/** Streams a run to one client from its start, and accepts its answers; the first answer to a question decides. */
import type { FramedStream } from '#specs/node/framed-stream.ts'
import type { FeedItem } from '../journal/run-feed.ts'
import { type ControlFailure, WatchInput, type WatchOutput } from './messages.ts'
import type { RunService } from './services.ts'

export async function serveWatch(run: RunService, client: FramedStream): Promise<ControlFailure | null> {
  const items = run.watch()
  let hasLeft = false
  void takeInput(run, client)
    .catch(() => client.destroy('it does not speak this protocol'))
    .finally(() => {
      hasLeft = true
      return items.return?.()
    })
  for await (const item of items) await client.sendJson(outputOf(run, item))
  // A socket that its client has closed stays writable until the next write.
  if (hasLeft || !client.isOpen) return null
  const { end } = await run.ended
  await client.sendJson({ type: 'end', end, journalHead: run.journalHead } satisfies WatchOutput)
  return null
}

function outputOf(run: RunService, item: FeedItem): WatchOutput {
  if (item.source === 'delta') {
    const { runId, agentPath, delta } = item
    return { type: 'delta', runId, agentPath, delta }
  }
  const { event } = item
  const waits = event.type === 'approval-request' && run.hasPendingApproval(event.request.approvalId)
  return { type: 'event', event: item, waits }
}

/** Until the client has left. */
async function takeInput(run: RunService, client: FramedStream): Promise<void> {
  for (let frame = await client.next(); frame !== null; frame = await client.next()) {
    const input = WatchInput.parse(client.parseJson(frame))
    const { type: _, approvalId, reach, forMs, hint, plan, answer, digest, by, ...rest } = input
    const given = {
      ...rest,
      ...(reach === undefined ? {} : { reach }),
      ...(forMs === undefined ? {} : { forMs }),
      ...(hint === undefined ? {} : { hint }),
      ...(plan === undefined ? {} : { plan }),
      ...(answer === undefined ? {} : { answer }),
      ...(digest === undefined ? {} : { digest }),
    }
    const result = await run.answer(approvalId, given, { by, via: 'control' })
    await client.sendJson({ type: 'answered', approvalId, result } satisfies WatchOutput)
  }
}
