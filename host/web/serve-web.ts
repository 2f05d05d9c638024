/** The paths of the web tools under the name `gateway`: a small JSON body in, by a strict schema, and JSON out. */
import type { ServerHttp2Stream } from 'node:http2'
import type * as z from 'zod'
import { parsePayload } from '#specs/node/frames.ts'
import { WebFetchAnswer, WebFetchRequest, WebSearchAnswer, WebSearchRequest } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { GatewayServices, ServeStream } from '../gateway/gateway.ts'
import { gatewayError, type WireError } from '../gateway/gateway-error.ts'
import { sendError } from '../gateway/relay.ts'
import type { Web } from './web.ts'

const bodyMaxBytes = 64 * 1024
const bodyMaxDepth = 4
const bodyTimeoutMs = 30_000
/** Requests of one run that may be open at once: as many as an agent's calls of one turn. */
const openMaxRequests = 8

/** `/web/fetch` and `/web/search`, by exact path. */
export function serveWeb(web: Web): GatewayServices['paths'] {
  let open = 0
  const bounded =
    (serve: ServeStream): ServeStream =>
    async (stream, headers, signal) => {
      if (open >= openMaxRequests) {
        const text = `More than ${openMaxRequests} requests for the web at once. Wait for one of them.`
        return sendError(stream, gatewayError('limit_concurrency', text))
      }
      open += 1
      try {
        await serve(stream, headers, signal)
      } finally {
        open -= 1
      }
    }
  return {
    '/web/fetch': {
      method: 'POST',
      serve: bounded(
        answerWith(WebFetchRequest, WebFetchAnswer, (request, signal) => web.fetch(request, signal)),
      ),
    },
    '/web/search': {
      method: 'POST',
      serve: bounded(
        answerWith(WebSearchRequest, WebSearchAnswer, (request, signal) => web.search(request, signal)),
      ),
    },
  }
}

function answerWith<Q, A>(
  request: z.ZodType<Q>,
  answer: z.ZodType<A>,
  work: (request: Q, signal: AbortSignal) => Promise<Result<A, WireError>>,
): ServeStream {
  return async (stream, _headers, signal) => {
    const read = await readBody(stream, request)
    if (!read.ok) return sendError(stream, read.error)
    const result = await work(read.value, signal)
    if (!result.ok) return sendError(stream, result.error)
    if (stream.destroyed || stream.closed) return
    const body = Buffer.from(JSON.stringify(answer.parse(result.value)))
    stream.respond({ ':status': 200, 'content-type': 'application/json', 'content-length': body.length })
    stream.end(body)
  }
}

async function readBody<T>(stream: ServerHttp2Stream, schema: z.ZodType<T>): Promise<Result<T, WireError>> {
  const parts: Buffer[] = []
  let bytes = 0
  const timer = setTimeout(() => stream.destroy(), bodyTimeoutMs)
  try {
    for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
      parts.push(chunk as Buffer)
      bytes += (chunk as Buffer).length
      if (bytes > bodyMaxBytes) {
        return failure('request_too_large', `The request is larger than ${bodyMaxBytes} bytes.`)
      }
    }
  } catch {
    return failure('invalid_request', 'The request broke off.')
  } finally {
    clearTimeout(timer)
  }
  const parsed = parsePayload(Buffer.concat(parts), bodyMaxDepth)
  if (!parsed.ok) return failure('invalid_request', `Not a request for the web: ${parsed.message}.`)
  const value = schema.safeParse(parsed.value)
  if (value.success) return { ok: true, value: value.data }
  const [issue] = value.error.issues
  const place = issue?.path.join('.') || 'the body'
  return failure(
    'invalid_request',
    `Not a request for the web: ${place}: ${issue?.message ?? 'not its form'}.`,
  )
}

function failure(
  code: 'invalid_request' | 'request_too_large',
  message: string,
): { ok: false; error: WireError } {
  return { ok: false, error: gatewayError(code, message) }
}
