// Front ends that speak AG-UI: the client of its SDK before a served host, and what it got.
import { createHash } from 'node:crypto'
import { type BaseEvent, HttpAgent, type Interrupt, type Message } from '@ag-ui/client'
import { EventSchema } from '@ag-ui/core/schemas'
import { expect } from 'vitest'
import type { RunAtWork } from '../../host/test/support/run-at-work.ts'
import { type Holder, startOf } from './keys-support.ts'

export interface FrontEnd {
  readonly agent: HttpAgent
  /** Sends a request; resolves with its events; each fits the schema of the protocol. */
  run(given?: Parameters<HttpAgent['runAgent']>[0]): Promise<BaseEvent[]>
}

export function frontEnd(
  url: string,
  secret: string,
  { threadId = 'thread-1', messages = [] as Message[] } = {},
): FrontEnd {
  const agent = new HttpAgent({
    url: `${url}/v1/ag-ui`,
    headers: { authorization: `Bearer ${secret}` },
    threadId,
    initialMessages: messages,
  })
  return {
    agent,
    run: async (given) => {
      const events: BaseEvent[] = []
      await agent.runAgent(given, { onEvent: ({ event }) => void events.push(event) })
      for (const event of events) expect(EventSchema.safeParse(event).error).toBeUndefined()
      return events
    },
  }
}

export const typesOf = (events: readonly BaseEvent[]): string[] => events.map(({ type }) => type)

/** The interrupts that a request ended with. */
export function interruptsOf(events: readonly BaseEvent[]): Interrupt[] {
  const last = events.at(-1) as unknown as { outcome?: { interrupts?: Interrupt[] } }
  return last.outcome?.interrupts ?? []
}

/** Metadata of the runs of a thread. */
export function threadMetadata(caller: string, threadId = 'thread-1', messageId = 'm1') {
  return {
    'ag-ui.thread': shortDigest(`${caller}\n${threadId}`),
    'ag-ui.message': shortDigest(messageId),
  }
}

function shortDigest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 32)
}

/** The beginning of a run at work, as the first message of a thread starts it. */
export async function beginThread(run: RunAtWork, holder: Holder): Promise<void> {
  await run.record.host(startOf({ ...holder.metadata, ...threadMetadata(holder.label) }))
}

export const firstMessage: Message = { id: 'm1', role: 'user', content: 'Count the words' }
