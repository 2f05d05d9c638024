/** The A2A side of the service: one JSON-RPC request in, one answer or a stream of them out. */
import { AgentCard } from '@a2a-js/sdk'
import { JsonRpcTransportHandler, ServerCallContext, validateVersion } from '@a2a-js/sdk/server'
import { agentCard } from './card.ts'
import { A2aHandler, type A2aParts } from './request-handler.ts'

type Reply = Readonly<Record<string, unknown>>

/** The card as JSON. @param baseUrl origin by which the caller reaches the service */
export function agentCardJson(baseUrl: string, version: string): Reply {
  return AgentCard.toJSON(agentCard(baseUrl, version)) as Reply
}

export interface A2aRequestParts extends Omit<A2aParts, 'card'> {
  readonly version: string
  /** Header `A2A-Version`. Absent: 0.3, as the protocol says. */
  readonly requestedVersion: string | undefined
}

/** @returns the answer, or a stream whose first message is there */
export async function answerA2a(
  { version, requestedVersion, ...parts }: A2aRequestParts,
  request: Readonly<Record<string, unknown>>,
): Promise<{ readonly reply: Reply } | { readonly frames: AsyncGenerator<string> }> {
  const card = agentCard('', version)
  const id = typeof request.id === 'string' || Number.isInteger(request.id) ? request.id : null
  const failure = (error: unknown): Reply => ({
    ...{ jsonrpc: '2.0', id, error: JsonRpcTransportHandler.mapToJSONRPCError(error) },
  })
  try {
    const context = new ServerCallContext(requestedVersion === undefined ? {} : { requestedVersion })
    validateVersion(context.requestedVersion, card, 'JSONRPC')
    const handler = new JsonRpcTransportHandler(new A2aHandler({ ...parts, card }))
    const answer = await handler.handle({ ...request }, context)
    if (!(Symbol.asyncIterator in answer)) return { reply: answer as unknown as Reply }
    // What is refused at once is an answer, no stream.
    const first = await answer.next()
    return { frames: framesOf(first.done === true ? [] : [first.value], answer, failure) }
  } catch (error) {
    return { reply: failure(error) }
  }
}

async function* framesOf(
  first: readonly unknown[],
  rest: AsyncIterable<unknown>,
  failure: (error: unknown) => Reply,
): AsyncGenerator<string> {
  try {
    for (const reply of first) yield frameOf(reply)
    for await (const reply of rest) yield frameOf(reply)
  } catch (error) {
    yield frameOf(failure(error))
  }
}

function frameOf(reply: unknown): string {
  return `data: ${JSON.stringify(reply)}\n\n`
}
