/** A control server over a VM whose agent and root side are real code on real sockets; only the VM itself is missing. */
import { createServer, type Server, type Socket } from 'node:net'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import {
  encodeTypedFrame,
  type FrameKind,
  frameKinds,
  type TypedFrame,
  TypedFrameReader,
} from '#specs/node/typed-frames.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { HostLink } from '../../agent/link/host-link.ts'
import { carry, connectToPort } from '../../agent/link/pipe-connection.ts'
import { createHelper } from '../../agent/link/root-helper.ts'
import { type Access, GuestAccess } from '../../host/control/guest-access.ts'
import { ControlServer } from '../../host/control/server.ts'
import type { VmService } from '../../host/control/services.ts'
import { VmClient } from '../../host/control/vm-client.ts'
import { info } from '../../host/test/control/support.ts'
import { createWorld } from '../link/support.ts'

/** The far side of one helper connection: what it was asked, and how to answer. */
export interface HelperCall {
  readonly request: unknown
  readonly frames: TypedFrame[]
  readonly socket: Socket
  send(kind: FrameKind, payload: Uint8Array | string): void
  /** The last frame, and the end. */
  finish(reply: unknown): void
}

export interface Bench {
  readonly socket: string
  readonly client: VmClient
  readonly helperCalls: HelperCall[]
  readonly accesses: Access[]
  readonly stops: boolean[]
  readonly server: ControlServer
  readonly guest: HostLink
  /** What the console's listeners get. */
  say(chunk: Buffer): void
}

/**
 * @param onCall what the root side does with each shell, once its request has come
 * @param ready when the workspace is open; absent: at once
 */
export async function controlBench(
  onCall: (call: HelperCall) => void = () => undefined,
  ready?: Pick<ConstructorParameters<typeof GuestAccess>[0], 'ready' | 'readyTimeoutMs'>,
): Promise<Bench> {
  const folder = await temporaryFolder('control')
  const helperPath = path.join(folder, 'helper.sock')
  const helperCalls: HelperCall[] = []
  const helperServer = serveHelper(helperPath, (call) => {
    helperCalls.push(call)
    onCall(call)
  })
  const helper = createHelper(helperPath)
  const accesses: Access[] = []
  const access = new GuestAccess({
    link: () => world.link,
    ...ready,
    onAccess: (one) => accesses.push(one),
  })
  const world = createWorld({
    onStream: (stream, headers) => {
      if (!access.handleStream(stream, headers)) stream.close()
    },
  })
  const guest: HostLink = world.startGuest({
    handlers: {
      'shell/open': ({ shellId, ...request }) =>
        carry(guest.http, `/shell/${shellId}`, () => helper.openShell(request)),
      'forward/open': ({ forwardId, port }) =>
        carry(guest.http, `/forward/${forwardId}`, () => connectToPort(port)),
    },
  })
  const listeners = new Set<(chunk: Buffer) => void>()
  const stops: boolean[] = []
  const vm: VmService = {
    describe: () => info,
    inspect: () => Promise.reject(new Error('nobody asks')),
    console: {
      text: () => 'so far\n',
      onData: (listener) => {
        listeners.add(listener)
        return () => listeners.delete(listener)
      },
    },
    stop: (now) => {
      stops.push(now)
      setTimeout(() => void server[Symbol.asyncDispose](), 20)
    },
    setPaused: async (paused) => (paused ? undefined : 'it cannot continue'),
    access,
  }
  const socket = path.join(folder, 'control.sock')
  const server = await ControlServer.open(socket, { vm })
  onTestFinished(async () => {
    await server[Symbol.asyncDispose]()
    await world[Symbol.asyncDispose]()
    helperServer.close()
  })
  const client = await VmClient.connect(socket)
  const say = (chunk: Buffer): void => {
    for (const listener of listeners) listener(chunk)
  }
  return { socket, client, helperCalls, accesses, stops, server, guest, say }
}

function serveHelper(socketPath: string, onCall: (call: HelperCall) => void): Server {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined)
    const reader = new TypedFrameReader()
    let call: HelperCall | undefined
    socket.on('data', (piece: Buffer) => {
      for (const frame of reader.feed(piece) as TypedFrame[]) {
        if (call !== undefined) {
          call.frames.push(frame)
          continue
        }
        const send = (kind: FrameKind, payload: Uint8Array | string): void =>
          void socket.write(encodeTypedFrame(kind, Buffer.from(payload as string)))
        call = {
          request: JSON.parse(frame.payload.toString()),
          frames: [],
          socket,
          send,
          finish: (reply) => {
            send(frameKinds.json, JSON.stringify(reply))
            socket.end()
          },
        }
        onCall(call)
      }
    })
  })
  server.listen(socketPath)
  return server
}
