/**
 * The host's end of HTTP/2 on `caisson.http`: one server session per session of the link. Sets every limit explicitly
 * (Node's default allows four billion streams). Refuses push and anything that a hostile client could accumulate.
 */
import {
  constants,
  type IncomingHttpHeaders,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Duplex } from 'node:stream'

export type StreamHandler = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void

/** Limits on what the guest may open and make the host store, per session. */
export const http2Limits = {
  maxConcurrentStreams: 64,
  maxHeaderListBytes: 16 * 1024,
  maxHeaderPairs: 64,
  /** Flow-control window of one stream, and of the whole session, in bytes. */
  streamWindowBytes: 1024 * 1024,
  sessionWindowBytes: 4 * 1024 * 1024,
  /** Memory limit of nghttp2 for the session, in MB. */
  sessionMemoryMB: 16,
} as const

/**
 * Serves one client over `socket`. Calls `onEnd` once, when the session has closed for any reason. Every stream already
 * has an error listener, so a reset by the guest never ends the process. To abort a response call
 * `stream.destroy(error)`: Node's `stream.close(code)` and `stream.destroy()` first end it as if it were complete.
 */
export function serveHttp2(
  socket: Duplex,
  onStream: StreamHandler,
  onEnd: (message: string) => void,
): ServerHttp2Session {
  const session = performServerHandshake(socket, {
    settings: {
      enablePush: false,
      enableConnectProtocol: false,
      maxConcurrentStreams: http2Limits.maxConcurrentStreams,
      maxHeaderListSize: http2Limits.maxHeaderListBytes,
      initialWindowSize: http2Limits.streamWindowBytes,
    },
    maxSessionMemory: http2Limits.sessionMemoryMB,
    maxHeaderListPairs: http2Limits.maxHeaderPairs,
    maxOutstandingPings: 4,
    maxSettings: 16,
    maxSessionInvalidFrames: 16,
    maxSessionRejectedStreams: 32,
    streamResetBurst: 512,
    streamResetRate: 64,
  })
  let message = 'the guest closed HTTP/2'
  session.on('error', (error) => {
    message = `HTTP/2 failed: ${error.message}`
  })
  session.on('close', () => onEnd(message))
  session.on('stream', (stream, headers, _flags, rawHeaders) => {
    stream.on('error', () => {})
    // The guest already reset the stream; responding would throw.
    if (stream.destroyed) return
    // Node announces this limit to the guest but accepts headers of up to 64 KiB.
    if (sizeOf(rawHeaders) > http2Limits.maxHeaderListBytes)
      return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM)
    onStream(stream, headers)
  })
  session.setLocalWindowSize(http2Limits.sessionWindowBytes)
  return session
}

/**
 * Size as defined by RFC 9113, section 6.5.2.
 * @param rawHeaders alternating names and values
 */
function sizeOf(rawHeaders: readonly string[]): number {
  return rawHeaders.reduce((sum, text) => sum + text.length + 16, 0)
}
