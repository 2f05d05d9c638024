/**
 * Opens a stream to the host for a program's connection or request and reads the host's answer. Refuses the gateway's
 * own name: its routes serve the agent, not its programs.
 */
import type { ClientHttp2Stream, IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2'
import { gatewayErrorHeader } from '#specs/protocol/proxy.ts'
import { HttpSessionLostError, type OpenStreamOptions } from '../link/http.ts'
import type { Gate } from './gate.ts'

/** The part of {@link import('../link/http.ts').GuestHttp} in use here. */
export interface StreamOpener {
  openStream(headers: OutgoingHttpHeaders, options?: OpenStreamOptions): Promise<ClientHttp2Stream>
}

/** `refused`: by the host or locally, with status and message; otherwise the host's answer has begun. */
type Opened =
  | { readonly kind: 'open'; readonly stream: ClientHttp2Stream; readonly headers: AnswerHeaders }
  | {
      readonly kind: 'refused'
      readonly status: number
      readonly reason: string
      /** The gateway's word for it. Absent: it was refused here. */
      readonly code?: string
    }
export type AnswerHeaders = IncomingHttpHeaders & { readonly ':status'?: number }

const refusalMaxBytes = 16 * 1024

/**
 * @param send writes the request's body, for streams that have one
 * @param signal aborted when the program has gone
 */
export async function openEgressStream(
  { http, gate }: { http: StreamOpener; gate: Gate },
  headers: OutgoingHttpHeaders,
  { signal, send }: { signal: AbortSignal; send?: (stream: ClientHttp2Stream) => void },
): Promise<Opened> {
  const authority = String(headers[':authority'])
  if (/^gateway\.*(:\d*)?$/i.test(authority))
    return refused(403, 'The gateway serves the agent alone; it is not reached through the proxy.')
  const isTunnel = headers[':method'] === 'CONNECT'
  if (!(await gate.enter(signal)))
    return refused(503, 'Too many connections are open at once. Close some, or make fewer at a time.')
  let stream: ClientHttp2Stream
  try {
    stream = await http.openStream(headers, { endStream: !isTunnel && send === undefined })
  } catch (error) {
    gate.leave(false)
    const lost = error instanceof HttpSessionLostError
    return refused(lost ? 504 : 400, `It could not be sent to the host: ${String(error)}`)
  }
  leaveWhenClosed(gate, stream, signal)
  send?.(stream)
  const answer = await waitForAnswer(stream)
  if (answer === null) return refused(502, 'The host broke off before it answered; trying again can help.')
  const status = answer[':status'] ?? 502
  if (isTunnel ? status === 200 : answer[gatewayErrorHeader] === undefined)
    return { kind: 'open', stream, headers: answer }
  const reason = await readReason(stream)
  const code = answer[gatewayErrorHeader]
  return { ...refused(status < 400 ? 502 : status, reason), ...(typeof code === 'string' ? { code } : {}) }
}

/** Until there is an answer the stream ends with the program; afterwards the caller owns it. */
function leaveWhenClosed(gate: Gate, stream: ClientHttp2Stream, signal: AbortSignal): void {
  const abort = (): void => {
    stream.destroy(new Error('the program has gone'))
  }
  if (signal.aborted) abort()
  else signal.addEventListener('abort', abort, { once: true })
  stream.once('response', () => signal.removeEventListener('abort', abort))
  stream.once('close', () => {
    signal.removeEventListener('abort', abort)
    gate.leave((stream.rstCode ?? 0) !== 0)
  })
}

function waitForAnswer(stream: ClientHttp2Stream): Promise<AnswerHeaders | null> {
  return new Promise((resolve) => {
    stream.once('response', (headers) => resolve(headers as AnswerHeaders))
    stream.once('close', () => resolve(null))
  })
}

/** The message in the host's JSON; other content is quoted unchanged. */
async function readReason(stream: ClientHttp2Stream): Promise<string> {
  let text = ''
  try {
    stream.setEncoding('utf8')
    for await (const piece of stream) {
      text += piece as string
      if (text.length > refusalMaxBytes) break
    }
  } catch {
    // Use what arrived.
  }
  // End the stream normally where that suffices: a reset counts against the session.
  if (stream.readableEnded) stream.end()
  else stream.destroy()
  try {
    const value = JSON.parse(text) as { error?: { message?: unknown } }
    if (typeof value.error?.message === 'string') return value.error.message
  } catch {
    // Not the host's JSON.
  }
  return text === '' ? 'The host gave no reason.' : text.slice(0, 500)
}

function refused(status: number, reason: string): Opened {
  // The prefix is added wherever the message is shown.
  return { kind: 'refused', status, reason: reason.replace(/^refused: /i, '') }
}
