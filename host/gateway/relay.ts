/**
 * Relays an upstream's answer to the guest's stream: backpressure, redaction, size limit, usage. If the answer is
 * interrupted, sends an error in the stream, or resets it.
 */

import type { OutgoingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Usage } from '#specs/protocol/task.ts'
import { errorBody, gatewayError, type WireError } from '../net/gateway-error.ts'
import {
  createStreamTap,
  readWholeAnswer,
  type UpstreamAnswer,
  UpstreamBreak,
  type UsageTap,
} from '../providers/upstream.ts'
import type { Redaction } from '../secrets/redaction.ts'

/** Bytes of a stream that no token needs: an event around each, with usage, and what stands before and after. */
const mostBytesPerToken = 2_048
const streamSpareBytes = 1024 * 1024
/** Maximum bytes of an answer that is not streamed; it is read completely. */
const wholeAnswerMaxBytes = 8 * 1024 * 1024

/** Why an exchange has no complete answer although the provider is fine. */
export const guestGone = 'the guest ended the request, or the run is over'

interface RelayResult {
  readonly status: number
  readonly usage: Usage
  /** Whether the usage is the gateway's estimate, because the provider reported none. */
  readonly estimated: boolean
  /** The model that answered, by the server's word, without the key; null if it named none. */
  readonly model: string | null
  /** Absent if the answer was relayed completely. */
  readonly error?: string
}

interface RelayOptions {
  /** Removed from the guest's answer. */
  readonly redaction: Redaction
  /** Stops the relay; so does the guest when it disconnects. */
  readonly signal: AbortSignal
  /** How long a guest may not read: an unread answer blocks other requests. */
  readonly guestTimeoutMs: number
  /** Tokens that the answer may have; a stream that is far longer is ended. */
  readonly maxTokens: number
}

export async function relayAnswer(
  stream: ServerHttp2Stream,
  answer: UpstreamAnswer,
  options: RelayOptions,
): Promise<RelayResult> {
  return answer.streamed ? relayStream(stream, answer, options) : relayWhole(stream, answer, options)
}

async function relayStream(
  stream: ServerHttp2Stream,
  answer: UpstreamAnswer,
  { redaction, signal, guestTimeoutMs, maxTokens }: RelayOptions,
): Promise<RelayResult> {
  const redactor = redaction.stream()
  const tap = createStreamTap(answer.requestBytes)
  const boundary = createBoundaryWatch()
  const maxBytes = streamSpareBytes + maxTokens * mostBytesPerToken
  let bytes = 0
  const write = async (chunk: Buffer): Promise<void> => {
    if (chunk.length === 0) return
    boundary.push(chunk)
    if (!stream.write(chunk) && !(await drained(stream, signal, guestTimeoutMs))) throw new GuestStall()
  }
  stream.respond({ ':status': 200, ...answer.headers, 'content-type': 'text/event-stream' })
  try {
    for await (const chunk of answer.body) {
      bytes += chunk.byteLength
      if (bytes > maxBytes) {
        const text = `The model's answer is larger than ${maxBytes} bytes, which no ${maxTokens} tokens need; no more were requested.`
        throw new UpstreamBreak(gatewayError('response_too_large', text))
      }
      const hadFailed = tap.failure !== null
      tap.push(chunk)
      if (tap.failure !== null && !hadFailed) answer.onFailure?.(tap.failure)
      await write(redactor.push(chunk))
      if (stream.destroyed || signal.aborted) break
    }
    await write(redactor.end())
  } catch (cause) {
    if (cause instanceof GuestStall) {
      stream.destroy()
      return {
        ...pick(tap.read(), redaction),
        status: 200,
        error: `the guest read nothing for ${guestTimeoutMs / 1000} s`,
      }
    }
    if (!(cause instanceof UpstreamBreak)) throw cause
    if (stream.destroyed || signal.aborted)
      return { ...pick(tap.read(), redaction), status: 200, error: guestGone }
    endBroken(stream, cause.error, boundary.atBoundary())
    return { ...pick(tap.read(), redaction), status: 200, error: cause.error.message }
  }
  if (stream.destroyed || signal.aborted) {
    return { ...pick(tap.read(), redaction), status: 200, error: guestGone }
  }
  stream.end()
  const { error } = tap.read()
  return { ...pick(tap.read(), redaction), status: 200, ...(error === null ? {} : { error }) }
}

async function relayWhole(
  stream: ServerHttp2Stream,
  answer: UpstreamAnswer,
  { redaction, signal }: RelayOptions,
): Promise<RelayResult> {
  const parts: Uint8Array[] = []
  let bytes = 0
  let failure: WireError | null = null
  try {
    for await (const chunk of answer.body) {
      bytes += chunk.byteLength
      if (bytes > wholeAnswerMaxBytes) {
        failure = gatewayError(
          'response_too_large',
          `The model's answer is larger than ${wholeAnswerMaxBytes} bytes.`,
        )
        break
      }
      parts.push(chunk)
      if (stream.destroyed || signal.aborted) break
    }
  } catch (cause) {
    if (!(cause instanceof UpstreamBreak)) throw cause
    failure = cause.error
  }
  const body = Buffer.concat(parts)
  const read = readWholeAnswer(body, answer.requestBytes)
  if (failure !== null) {
    sendError(stream, failure)
    return { ...pick(read, redaction), status: failure.status, error: failure.message }
  }
  if (stream.destroyed || signal.aborted) return { ...pick(read, redaction), status: 200, error: guestGone }
  const redactor = redaction.stream()
  stream.respond({ ':status': 200, ...answer.headers, 'content-type': 'application/json' })
  stream.end(Buffer.concat([redactor.push(body), redactor.end()]))
  return { ...pick(read, redaction), status: 200, ...(read.error === null ? {} : { error: read.error }) }
}

/** Sends an error, unless a response was sent or the guest is gone. */
export function sendError(stream: ServerHttp2Stream, error: WireError): void {
  if (stream.destroyed || stream.closed || stream.headersSent) return
  const body = errorBody(error)
  const headers: OutgoingHttpHeaders = {
    ':status': error.status,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  }
  if (error.retryAfterMs !== undefined) headers['retry-after'] = `${Math.ceil(error.retryAfterMs / 1000)}`
  stream.respond(headers)
  stream.end(body)
}

/** Between two events an error event gives the reason; within an event only a reset cannot be mistaken for data. */
function endBroken(stream: ServerHttp2Stream, error: WireError, atBoundary: boolean): void {
  if (stream.destroyed) return
  if (atBoundary) stream.end(`data: ${errorBody(error)}\n\n`)
  else stream.destroy(new Error(error.message))
}

/** Whether the sent bytes end at an event boundary. */
function createBoundaryWatch(): { push(chunk: Buffer): void; atBoundary(): boolean } {
  let tail = '\n\n'
  return {
    push(chunk) {
      tail = (tail + chunk.subarray(Math.max(0, chunk.length - 4)).toString('latin1')).slice(-4)
    },
    atBoundary: () => /(\n\n|\r\r|\r\n\r\n)$/.test(tail),
  }
}

/** The guest stopped reading. */
class GuestStall extends Error {
  override readonly name = 'GuestStall'
}

/** Resolves to true when the guest has read enough or is gone; to false at the time limit. */
function drained(stream: ServerHttp2Stream, signal: AbortSignal, timeoutMs: number): Promise<boolean> {
  if (stream.destroyed || signal.aborted) return Promise.resolve(true)
  return new Promise((resolve) => {
    const leave = (isDrained: boolean): void => {
      timer.cancel()
      stream.off('drain', finish)
      stream.off('close', finish)
      signal.removeEventListener('abort', finish)
      resolve(isDrained)
    }
    const finish = (): void => leave(true)
    const timer = new AwakeTimer(timeoutMs, () => leave(false))
    stream.once('drain', finish)
    stream.once('close', finish)
    signal.addEventListener('abort', finish, { once: true })
  })
}

/** @param redaction what is taken out of the server's words */
function pick(
  { usage, estimated, model }: ReturnType<UsageTap['read']>,
  redaction: Redaction,
): Pick<RelayResult, 'usage' | 'estimated' | 'model'> {
  const shown = model === null ? null : redaction.text(model).slice(0, limits.lineMaxChars)
  return { usage, estimated, model: shown }
}
