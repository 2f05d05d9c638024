/** `fetch` over a Unix socket, as far as the client of the service needs it: text or no body, and a streamed answer. */
import { type IncomingMessage, request } from 'node:http'
import { Readable } from 'node:stream'

export function socketFetch(socketPath: string): typeof fetch {
  return async (input, init = {}) => {
    const { pathname, search } = new URL(input instanceof Request ? input.url : input)
    const body = typeof init.body === 'string' ? init.body : undefined
    const headers = {
      ...Object.fromEntries(new Headers(init.headers)),
      ...(body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) }),
    }
    const signal = init.signal ?? undefined
    signal?.throwIfAborted()
    const answered = Promise.withResolvers<IncomingMessage>()
    const sent = request({
      ...{ socketPath, path: `${pathname}${search}`, method: init.method ?? 'GET', headers, agent: false },
      ...(signal === undefined ? {} : { signal }),
    })
    sent.once('response', answered.resolve)
    sent.once('error', (error) => answered.reject(signal?.aborted === true ? signal.reason : error))
    sent.end(body)
    return responseOf(await answered.promise)
  }
}

const statusesWithoutBody = [204, 205, 304]

function responseOf(answer: IncomingMessage): Response {
  const { statusCode: status = 500 } = answer
  const headers = new Headers()
  for (const [name, value] of Object.entries(answer.headers))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== undefined) headers.append(name, each)
  if (statusesWithoutBody.includes(status)) {
    answer.resume()
    return new Response(null, { status, headers })
  }
  return new Response(Readable.toWeb(answer) as ReadableStream<Uint8Array>, { status, headers })
}
