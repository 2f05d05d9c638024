/** Client side of a control socket: one connection per request. Validates all answers of the host process. */

import { connect } from 'node:net'
import type * as z from 'zod'
import { CaissonError, type ErrorCode, errorMessage } from '#specs/errors.ts'
import { FramedStream, FramedStreamError } from '#specs/node/framed-stream.ts'
import type { TypedFrame } from '#specs/node/typed-frames.ts'
import { reachSocket } from '../state/socket-path.ts'
import { type ControlFailure, type ControlRequest, controlFrameMaxBytes } from './messages.ts'

const codesOfControl: Readonly<Record<ControlFailure['code'], ErrorCode>> = {
  bad_request: 'version_mismatch',
  not_served: 'not_possible_now',
  busy: 'not_possible_now',
  unavailable: 'not_possible_now',
  refused: 'not_possible_now',
  internal: 'internal',
}

/** Converts an error answer of the host process. */
export function errorOfControl({ code, message }: ControlFailure): CaissonError {
  return new CaissonError(codesOfControl[code], message)
}

/** Connects and sends the request. @throws {CaissonError} `connection_lost` */
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
    throw new CaissonError('connection_lost', `no host process answers at ${path}: ${errorMessage(cause)}`, {
      cause,
    })
  }
}

/** The next frame. @throws {CaissonError} `connection_lost` when the connection ends first */
export async function nextFrame(stream: FramedStream): Promise<TypedFrame> {
  try {
    const frame = await stream.next()
    if (frame !== null) return frame
  } catch (cause) {
    if (!(cause instanceof FramedStreamError)) throw cause
    throw new CaissonError('connection_lost', `the host process is gone: ${cause.message}`, { cause })
  }
  throw new CaissonError('connection_lost', 'the host process closed the connection: its VM or run has ended')
}

/** The message in a frame. @throws {CaissonError} `version_mismatch` */
export function parseMessage<T extends z.ZodType>(
  stream: FramedStream,
  frame: TypedFrame,
  schema: T,
): z.infer<T> {
  try {
    return schema.parse(stream.parseJson(frame))
  } catch (cause) {
    stream.destroy()
    throw new CaissonError(
      'version_mismatch',
      'the host process answers in a form that this version of Caisson does not know',
      { remedy: 'use the version that started it', cause },
    )
  }
}

/** Throws an error reply. @throws {CaissonError} */
export function requireOk<T extends { ok: true } | { ok: false; error: ControlFailure }>(
  reply: T,
): Extract<T, { ok: true }> {
  if (reply.ok) return reply as Extract<T, { ok: true }>
  throw errorOfControl(reply.error)
}
