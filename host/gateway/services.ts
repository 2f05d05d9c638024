/**
 * The gateway's services besides the model: by exact path, and all egress. A JSON service validates a small request body
 * by a strict schema and returns JSON; it refuses large, deeply nested and slow requests.
 */

import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type * as z from 'zod'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { parsePayload } from '#specs/node/frames.ts'
import type { Result } from '#specs/protocol/error.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import { sendError } from './relay.ts'

/**
 * Serves one stream of the guest and ends it. A rejection is an internal error, which the guest sees without details.
 */
export type ServeStream = (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  /** Aborts when the guest disconnects or the run has ended. */
  signal: AbortSignal,
) => Promise<void>

export interface GatewayServices {
  /** By exact path under the name `gateway`. */
  readonly paths: Readonly<Record<string, { readonly method: string; readonly serve: ServeStream }>>
  /** All other authorities: tunnels and plain requests of programs. */
  readonly egress: ServeStream
}

const defaultBodyMaxBytes = 64 * 1024
const bodyMaxDepth = 4
const bodyTimeoutMs = 30_000

/**
 * Serves requests of one schema with answers of another. A failure is returned as the gateway's error object; an answer
 * that violates its schema is an internal error.
 * @param bodyMaxBytes limit of a request; default 64 KiB
 */
export function answerWith<Q, A>(
  request: z.ZodType<Q>,
  answer: z.ZodType<A>,
  work: (request: Q, signal: AbortSignal) => Promise<Result<A, WireError>>,
  bodyMaxBytes = defaultBodyMaxBytes,
): ServeStream {
  return async (stream, _headers, signal) => {
    const read = await readBody(stream, request, bodyMaxBytes)
    if (!read.ok) return sendError(stream, read.error)
    const result = await work(read.value, signal)
    if (!result.ok) return sendError(stream, result.error)
    if (stream.destroyed || stream.closed) return
    const body = Buffer.from(JSON.stringify(answer.parse(result.value)))
    stream.respond({ ':status': 200, 'content-type': 'application/json', 'content-length': body.length })
    stream.end(body)
  }
}

/**
 * Limits these services to `maxOpen` open requests in total.
 * @param what subject of the refusal, such as `the web`
 */
export function limitOpen(
  services: GatewayServices['paths'],
  maxOpen: number,
  what: string,
): GatewayServices['paths'] {
  let open = 0
  const bounded =
    (serve: ServeStream): ServeStream =>
    async (stream, headers, signal) => {
      if (open >= maxOpen) {
        const text = `More than ${maxOpen} requests for ${what} at once. Wait for one of them.`
        return sendError(stream, gatewayError('limit_concurrency', text))
      }
      open += 1
      try {
        await serve(stream, headers, signal)
      } finally {
        open -= 1
      }
    }
  const entries = Object.entries(services).map(
    ([path, { method, serve }]) => [path, { method, serve: bounded(serve) }] as const,
  )
  return Object.fromEntries(entries)
}

async function readBody<T>(
  stream: ServerHttp2Stream,
  schema: z.ZodType<T>,
  bodyMaxBytes: number,
): Promise<Result<T, WireError>> {
  const parts: Buffer[] = []
  let bytes = 0
  using _ = new AwakeTimer(bodyTimeoutMs, () => stream.destroy())
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
  }
  const parsed = parsePayload(Buffer.concat(parts), bodyMaxDepth)
  if (!parsed.ok) return failure('invalid_request', `Not a request for this path: ${parsed.message}.`)
  const value = schema.safeParse(parsed.value, plainMessages)
  if (value.success) return { ok: true, value: value.data }
  const issues = describeIssues(value.error, { root: 'the body', max: 1 })
  return failure('invalid_request', `Not a request for this path: ${issues}.`)
}

function failure(
  code: 'invalid_request' | 'request_too_large',
  message: string,
): { ok: false; error: WireError } {
  return { ok: false, error: gatewayError(code, message) }
}
