/** The other end of a control socket: one connection a request. What the host process answers is checked like a stranger's. */
import { connect } from 'node:net'
import type * as z from 'zod'
import { FramedStream, FramedStreamError } from '#specs/node/framed-stream.ts'
import type { TypedFrame } from '#specs/node/typed-frames.ts'
import { type ControlFailure, type ControlRequest, controlFrameMaxBytes } from './messages.ts'
import { reachSocket } from './socket-path.ts'

/** A host process that cannot be reached, or that did not do what it was asked. */
export class ControlError extends Error {
  override readonly name = 'ControlError'
  /** `gone`: nobody listens there, or no more; `broken`: it speaks otherwise. */
  readonly code: ControlFailure['code'] | 'gone' | 'broken'

  constructor(code: ControlError['code'], message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/** Connects and asks. @throws {ControlError} `gone` */
export async function askControl(path: string, request: ControlRequest): Promise<FramedStream> {
  try {
    await using reachable = await reachSocket(path)
    const socket = connect({ path: reachable.path, allowHalfOpen: true })
    const connected = Promise.withResolvers<void>()
    socket.once('error', connected.reject)
    socket.once('connect', connected.resolve)
    await connected.promise
    socket.off('error', connected.reject)
    const stream = new FramedStream(socket, controlFrameMaxBytes)
    await stream.sendJson(request)
    return stream
  } catch (cause) {
    const word = cause instanceof Error ? cause.message : String(cause)
    throw new ControlError('gone', `no host process answers at ${path}: ${word}`, { cause })
  }
}

/** The next frame. @throws {ControlError} `gone` where the connection ends before one, `broken` where it is none */
export async function nextFrame(stream: FramedStream): Promise<TypedFrame> {
  try {
    const frame = await stream.next()
    if (frame !== null) return frame
  } catch (cause) {
    if (!(cause instanceof FramedStreamError)) throw cause
    throw new ControlError('gone', `the host process is gone: ${cause.message}`, { cause })
  }
  throw new ControlError('gone', 'the host process closed the connection: its VM or run has ended')
}

/** The message in a frame. @throws {ControlError} `broken` */
export function parseMessage<T extends z.ZodType>(
  stream: FramedStream,
  frame: TypedFrame,
  schema: T,
): z.infer<T> {
  try {
    return schema.parse(stream.parseJson(frame))
  } catch (cause) {
    stream.destroy()
    throw new ControlError(
      'broken',
      'the host process answers in a form that this version of Caisson does not know; use the version that started it',
      { cause },
    )
  }
}

/** A reply that is an error is thrown. @throws {ControlError} */
export function requireOk<T extends { ok: true } | { ok: false; error: ControlFailure }>(
  reply: T,
): Extract<T, { ok: true }> {
  if (reply.ok) return reply as Extract<T, { ok: true }>
  throw new ControlError(reply.error.code, reply.error.message)
}
