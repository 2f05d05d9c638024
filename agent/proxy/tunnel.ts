/**
 * Joins a program's connection and its stream to the host: the end of one is the end of the other, and a reset stays
 * visible as a reset. Reports why the host ended it.
 */
import type { ClientHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import { gatewayErrorHeader } from '#specs/protocol/proxy.ts'

const established = 'HTTP/1.1 200 Connection established\r\n\r\n'

/** Fatal alert `unrecognized_name`: every TLS client has a message for it. */
const unrecognizedName = Buffer.from([0x15, 3, 1, 0, 2, 2, 112])
const earlyMaxBytes = 64 * 1024

/** Options of a tunnel. */
export function sayEstablished(socket: Socket): void {
  socket.write(established)
}

/**
 * Joins both sides.
 * @param early data that the program has already sent
 * @param onRefused receives the message of the host's refusal
 */
export function joinTunnel(
  socket: Socket,
  stream: ClientHttp2Stream,
  early: Buffer,
  onRefused: (reason: string) => void,
): void {
  let reason: string | null = null
  stream.once('trailers', (trailers) => {
    const word = trailers[gatewayErrorHeader]
    if (typeof word === 'string') reason = word
  })
  let hasPassed = false
  if (early.length > 0) stream.write(early)
  socket.pipe(stream)
  stream.pipe(socket, { end: false })
  stream.once('data', () => {
    hasPassed = true
  })
  stream.on('end', () => {
    // HTTP/2 ends a reset stream as if it were complete.
    if ((stream.rstCode ?? 0) !== 0) return
    if (reason === null) return socket.end()
    onRefused(reason)
    if (hasPassed) return socket.resetAndDestroy()
    // Nothing has passed yet: send the program a TLS alert.
    socket.end(unrecognizedName)
  })
  const onOver = (): void => {
    socket.unpipe(stream)
    // Ended normally: discard what the program still sends.
    if (stream.readableEnded && (stream.rstCode ?? 0) === 0) socket.resume()
    else socket.resetAndDestroy()
  }
  if (stream.destroyed) onOver()
  else stream.once('close', onOver)
  const onClose = (): void => {
    if (!socket.readableEnded) stream.destroy(new Error('the program has gone'))
  }
  if (socket.destroyed) onClose()
  else socket.once('close', onClose)
}

/**
 * Buffers, within bounds, what a program sends before its tunnel is open; also detects that it has gone, which only a
 * reader notices.
 */
export class EarlyBytes {
  readonly #socket: Socket
  readonly #gone = new AbortController()
  #pieces: Buffer[]
  #bytes: number

  constructor(socket: Socket, head: Buffer) {
    this.#socket = socket
    this.#pieces = [head]
    this.#bytes = head.length
    socket.on('data', this.#onData).once('end', this.#onGone).once('close', this.#onGone)
  }

  get gone(): AbortSignal {
    return this.#gone.signal
  }

  /** The buffered bytes; from here on the caller owns the paused socket. */
  take(): Buffer {
    this.#socket.pause().off('data', this.#onData).off('end', this.#onGone).off('close', this.#onGone)
    return Buffer.concat(this.#pieces)
  }

  #onData = (piece: Buffer): void => {
    this.#pieces.push(piece)
    this.#bytes += piece.length
    if (this.#bytes > earlyMaxBytes) this.#socket.pause()
  }

  #onGone = (): void => this.#gone.abort()
}
