/**
 * Tunnels a connection inside the guest (a person's shell, a server) over one stream to the host, both ways. Does not
 * inspect the bytes; when one side ends, it ends the other.
 */

import { once } from 'node:events'
import { connect, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HandlerFailure } from '#specs/protocol/peer.ts'
import type { GuestHttp } from './http.ts'

const connectTimeoutMs = 10_000

/** Opens the connection, then `POST path` to the host, and joins them; answers when both are open. */
export async function carry(
  http: GuestHttp,
  path: string,
  open: () => Promise<Duplex>,
): Promise<Result<Record<string, never>, HandlerFailure>> {
  let inside: Duplex | undefined
  try {
    inside = await open()
    const outside = await http.openStream({ ':method': 'POST', ':path': path })
    join(inside, outside)
    return { ok: true, value: {} }
  } catch (error) {
    inside?.destroy()
    const message = errorMessage(error)
    return { ok: false, error: { code: 'failed', message: message.slice(0, 2_000) } }
  }
}

/** Connects to a server in the guest that listens on 127.0.0.1. */
export async function connectToPort(port: number): Promise<Duplex> {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(connectTimeoutMs) })
    return socket.setNoDelay()
  } catch (error) {
    socket.destroy()
    throw error
  }
}

/** Propagates each side's end, and each failure before the end, to the other side. */
function join(a: Duplex, b: Duplex): void {
  direct(a, b)
  direct(b, a)
}

function direct(from: Duplex, to: Duplex): void {
  from.pipe(to, { end: false })
  from.on('error', () => undefined)
  // HTTP/2 ends a reset stream as if it were complete.
  from.on('end', () => {
    if (!isReset(from)) to.end()
  })
  from.on('close', () => {
    if (!from.readableEnded || isReset(from)) breakOff(to)
    else {
      // The other side ended normally; discard what is still sent to it.
      to.unpipe(from)
      to.resume()
    }
  })
}

function isReset(stream: Duplex): boolean {
  return 'rstCode' in stream && stream.rstCode !== undefined && stream.rstCode !== 0
}

/** Prevents a partial stream from being taken as complete. */
function breakOff(stream: Duplex): void {
  if (stream instanceof Socket && stream.remoteAddress !== undefined) stream.resetAndDestroy()
  else stream.destroy(new Error('the other side broke off'))
}
