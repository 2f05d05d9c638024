/**
 * The host's end of HTTP/2 on `caisson.http`: a server session for each session of the link, with every limit explicit
 * (Node's defaults allow four billion streams). Refuses push and anything a hostile client could pile up.
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

/** What the guest may have open and make the host keep, per session. */
export const http2Limits = {
  maxConcurrentStreams: 64,
  maxHeaderListBytes: 16 * 1024,
  maxHeaderPairs: 64,
  /** Flow-control window of one stream, and of all together, in bytes. */
  streamWindowBytes: 1024 * 1024,
  sessionWindowBytes: 4 * 1024 * 1024,
  /** Memory that nghttp2 may hold for the session, in MB. */
  sessionMemoryMB: 16,
} as const

/**
 * Serves one client over `socket`. `onEnd` is called once, when the session has closed for whatever reason.
 * Every stream has an error listener already: a reset by the guest never ends the process. To break off an answer call
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
    // Opened and reset in one breath: nobody is there, and to answer would throw.
    if (stream.destroyed) return
    // Node tells the guest of this bound, and itself takes heads of up to 64 KiB.
    if (sizeOf(rawHeaders) > http2Limits.maxHeaderListBytes)
      return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM)
    onStream(stream, headers)
  })
  session.setLocalWindowSize(http2Limits.sessionWindowBytes)
  return session
}

/** As RFC 9113, section 6.5.2, counts it. @param rawHeaders names and values in turn */
function sizeOf(rawHeaders: readonly string[]): number {
  return rawHeaders.reduce((sum, text) => sum + text.length + 16, 0)
}
