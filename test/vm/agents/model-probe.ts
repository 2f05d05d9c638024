/**
 * Takes the agent's place in a VM to measure the way to the model: the real client and HTTP/2 link, asked over the control
 * port, one JSON value a line. Without sessions: the stream port is HTTP/2 from its first byte.
 */
import { createInterface } from 'node:readline'
import { request } from 'undici'
import type { SendRequest } from '#runtime/llm/exchange.ts'
import { createModel } from '#runtime/llm/model.ts'
import { GuestHttp } from '../../../agent/link/http.ts'
import { createPortOpener } from '../../../agent/link/port.ts'

/** What is asked; the reply is `{ id, value }` with the milliseconds of each repetition. */
export interface ModelProbeRequest {
  /** A whole turn of the client, or the bytes of the answer alone; the request's message is this word. */
  readonly op: 'turn' | 'bytes'
  readonly count: number
}

/** Does what is asked, one after the other, and times each; also for the host's own side of a comparison. */
export async function probeModel(
  { op, count }: ModelProbeRequest,
  route: { baseUrl: string; sendRequest?: SendRequest },
): Promise<number[]> {
  const model = createModel({ model: 'm', maxAttempts: 1, ...route })
  const signal = new AbortController().signal
  const times: number[] = []
  for (let done = 0; done < count; done++) {
    const startedAt = performance.now()
    if (op === 'turn') {
      const turn = await model({ messages: [{ role: 'user', content: op }], tools: [] }, { signal })
      if (!turn.ok) throw new Error(turn.error.message)
    } else await readBytes(route)
    times.push(performance.now() - startedAt)
  }
  return times
}

async function readBytes({
  baseUrl,
  sendRequest = request,
}: {
  baseUrl: string
  sendRequest?: SendRequest
}): Promise<void> {
  const { statusCode, body } = await sendRequest(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages: [{ role: 'user', content: 'bytes' }], stream: true }),
    signal: new AbortController().signal,
    headersTimeout: 0,
    bodyTimeout: 0,
  })
  for await (const _chunk of body);
  if (statusCode !== 200) throw new Error(`the gateway answered ${statusCode}`)
}

/** What the bundle of this file does in the guest. */
export async function startAgent(): Promise<void> {
  const http = new GuestHttp()
  http.connect(await createPortOpener('caisson.http')())
  const sendRequest: SendRequest = (url, options) => http.post(url, options)
  const route = { baseUrl: 'http://gateway/v1', sendRequest }
  const port = await createPortOpener('caisson.rpc')()
  port.write(`${JSON.stringify({ id: 0, value: 'ready' })}\n`)
  for await (const line of createInterface({ input: port })) {
    const { id, ...asked } = JSON.parse(line) as ModelProbeRequest & { id: number }
    const value = await probeModel(asked, route).catch((error: unknown) => String(error))
    port.write(`${JSON.stringify({ id, value })}\n`)
  }
}
