/**
 * Client of the gateway's own routes: sends JSON, validates the JSON answer, and returns failures as tool errors.
 * Knows no key, never retries, and bounds the answer.
 */
import type * as z from 'zod'
import type { Result, ToolError, ToolErrorCode } from '#specs/protocol/error.ts'
import { type GuestHttp, HttpSessionLostError } from '../link/http.ts'
import { toolFailure } from './tool.ts'

export interface GatewayClient {
  /**
   * `POST http://gateway{path}` with `body` as JSON. Waits for the answer until `signal` aborts: the host has its own
   * timeouts, and may ask a person. Never throws.
   */
  post<T>(path: `/${string}`, body: object, schema: z.ZodType<T>, signal: AbortSignal): Promise<Result<T>>
}

/** Maximum bytes of an answer: one document of the protocol, as JSON. */
const answerMaxBytes = 4 * 1024 * 1024

/** Maps the gateway's error codes to tool errors. */
const toolCodes: Readonly<Record<string, ToolErrorCode>> = {
  egress_denied: 'denied',
  invalid_request: 'invalid_input',
  request_too_large: 'too_large',
  response_too_large: 'too_large',
  limit_concurrency: 'limit_reached',
  upstream_timeout: 'timed_out',
  limit_notes: 'limit_reached',
  secret_refused: 'denied',
  not_found: 'not_found',
}

/** @param http called per request, so that a client can exist before the link */
export function createGatewayClient(http: () => GuestHttp): GatewayClient {
  return {
    async post(path, body, schema, signal) {
      try {
        const answer = await http().post(`http://gateway${path}`, {
          headers: { 'content-type': 'application/json', accept: 'application/json' },
          body: JSON.stringify(body),
          signal,
        })
        const text = await readBounded(answer.body)
        if (text === null) return toolFailure('too_large', `the gateway's answer to ${path} passes its bound`)
        const value = parseJson(text)
        if (answer.statusCode !== 200) return { ok: false, error: errorOf(answer.statusCode, value) }
        const parsed = schema.safeParse(value)
        if (parsed.success) return { ok: true, value: parsed.data }
        const place = parsed.error.issues[0]?.path.join('.') ?? ''
        return toolFailure('internal', `the gateway's answer to ${path} is not of its form (${place})`)
      } catch (error) {
        if (signal.aborted)
          return toolFailure('cancelled', 'interrupted: the call ended before its answer came')
        const lost = error instanceof HttpSessionLostError
        const what = lost ? 'the connection to the host was lost' : 'the request to the host broke off'
        return toolFailure('unavailable', `${what} before the answer came`, true)
      }
    },
  }
}

async function readBounded(body: AsyncIterable<Uint8Array>): Promise<string | null> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of body) {
    bytes += part.byteLength
    if (bytes > answerMaxBytes) return null
    parts.push(part)
  }
  return Buffer.concat(parts).toString('utf8')
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The gateway's `{"error":{message,type,code}}`. */
function errorOf(status: number, value: unknown): ToolError {
  const { code, message } = fieldsOf(fieldsOf(value).error)
  const retryable = status >= 500 || code === 'limit_concurrency'
  return {
    code: (typeof code === 'string' && Object.hasOwn(toolCodes, code) && toolCodes[code]) || 'unavailable',
    message: typeof message === 'string' && message !== '' ? message : `the gateway answered ${status}`,
    retryable,
  }
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
