/**
 * Control socket of a host process for one VM or one run: other processes of the same user inspect, use and end it.
 * Limits connections, idle time and frames; a peer's error ends only its own connection.
 */

import { chmod, rm } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import type * as z from 'zod'
import { errorMessage, hasCode } from '#specs/errors.ts'
import { FramedStream } from '#specs/node/framed-stream.ts'
import { frameKinds } from '#specs/node/typed-frames.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type ReachablePath, reachSocket } from '../state/socket-path.ts'
import {
  type ControlFailure,
  type ControlReply,
  ControlRequest,
  controlFrameMaxBytes,
  type ForkReply,
} from './messages.ts'
import { relayBytes, relayFrames } from './relay.ts'
import type { SteerOptions } from './run-handle.ts'
import { serveWatch } from './serve-watch.ts'
import type { ControlServices, RunService, VmService } from './services.ts'

export const controlLimits = {
  maxConnections: 64,
  /** From the connection to its request. */
  requestTimeoutMs: 10_000,
  /** Maximum console bytes buffered for a slow reader; further output is dropped for it. */
  consoleBacklogBytes: 1024 * 1024,
  /** Time for connections to end after the VM or run has ended. */
  lastWordsMs: 3_000,
} as const

/** Name of the socket in the folder of its VM or run. */
export const controlSocketName = 'control.sock'

export class ControlServer implements AsyncDisposable {
  readonly #services: ControlServices
  readonly #server: Server
  readonly #path: string
  readonly #reachable: ReachablePath
  readonly #connections = new Set<Socket>()
  readonly #serving = new Set<Promise<void>>()
  readonly #closing = new AbortController()

  private constructor(path: string, reachable: ReachablePath, services: ControlServices) {
    this.#path = path
    this.#reachable = reachable
    this.#services = services
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket))
    this.#server.maxConnections = controlLimits.maxConnections
  }

  /** Listens at `path`, whose folder only this user can enter. @throws when the socket cannot be created */
  static async open(path: string, services: ControlServices): Promise<ControlServer> {
    const reachable = await reachSocket(path)
    const server = new ControlServer(path, reachable, services)
    try {
      await server.#listen()
      return server
    } catch (error) {
      await reachable[Symbol.asyncDispose]()
      throw error
    }
  }

  async #listen(): Promise<void> {
    // Left by a killed process.
    await rm(this.#path, { force: true })
    const listening = Promise.withResolvers<void>()
    this.#server.once('error', listening.reject)
    this.#server.listen({ path: this.#reachable.path }, listening.resolve)
    await listening.promise
    this.#server.on('error', () => undefined)
    await chmod(this.#path, 0o600)
    // The socket must not keep the process alive.
    this.#server.unref()
  }

  /** Flushes and ends all connections, and removes the socket. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closing.signal.aborted) return
    this.#closing.abort()
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    const late = Promise.withResolvers<void>()
    const timer = setTimeout(late.resolve, controlLimits.lastWordsMs)
    await Promise.race([Promise.all(this.#serving), late.promise])
    clearTimeout(timer)
    for (const socket of this.#connections) socket.destroy()
    await closed
    await this.#reachable[Symbol.asyncDispose]()
    await rm(this.#path, { force: true }).catch(() => undefined)
  }

  #accept(socket: Socket): void {
    this.#connections.add(socket)
    socket.once('close', () => this.#connections.delete(socket))
    const client = new FramedStream(socket, controlFrameMaxBytes)
    const serving = this.#serve(client)
      .catch(() => client.destroy())
      .finally(() => this.#serving.delete(serving))
    this.#serving.add(serving)
  }

  async #serve(client: FramedStream): Promise<void> {
    const request = await readRequest(client)
    if (request === null) return
    const gone = new AbortController()
    void client.closed.then(() => gone.abort())
    const signal = AbortSignal.any([gone.signal, this.#closing.signal])
    const failure = await this.#answer(request, client, signal)
    if (failure !== null) await client.sendJson({ ok: false, error: failure } satisfies ControlReply)
    client.end()
    await flushed(client)
  }

  /** Serves one request to its end; the caller sends the result. */
  async #answer(
    request: ControlRequest,
    client: FramedStream,
    signal: AbortSignal,
  ): Promise<ControlFailure | null> {
    const { vm, run } = this.#services
    if (isAboutRun(request))
      return run === undefined ? notServed('no run') : await serveRun(run, request, client)
    if (vm === undefined) return notServed('no VM')
    switch (request.op) {
      case 'vm/info':
        await client.sendJson({ ok: true, vm: vm.describe() })
        return null
      case 'vm/inspect':
        await client.sendJson({ ok: true, vm: await vm.inspect() })
        return null
      case 'vm/console':
        return await serveConsole(vm, client, request.follow, signal)
      case 'vm/wait':
        return await serveEnd(client, signal, () => undefined)
      case 'vm/stop':
        return await serveEnd(client, signal, () => vm.stop(request.now))
      case 'vm/pause':
        return await answerWith(client, await vm.setPaused(request.paused))
      case 'vm/shell': {
        const { op: _, ...options } = request
        const shell = await vm.access.openShell(options, signal)
        return shell.ok ? await relayFrames(client, shell.value) : shell.error
      }
      case 'vm/forward': {
        const connection = await vm.access.openForward(request.port, signal)
        return connection.ok ? await relayBytes(client, connection.value) : connection.error
      }
    }
  }
}

type RunRequest = Extract<ControlRequest, { op: `run/${string}` }>

function isAboutRun(request: ControlRequest): request is RunRequest {
  return request.op.startsWith('run/')
}

async function serveRun(
  run: RunService,
  request: RunRequest,
  client: FramedStream,
): Promise<ControlFailure | null> {
  switch (request.op) {
    case 'run/watch':
      return await serveWatch(run, client)
    case 'run/steer':
      return await answerWith(client, await problemOf(run.steer(request.text, steerOptions(request))))
    case 'run/cancel':
      return await answerWith(client, await problemOf(run.cancel({ by: request.by, now: request.now })))
    case 'run/cancelAgent': {
      const { agentPath, reason, by } = request
      return await answerWith(client, await problemOf(run.cancelAgent(agentPath, { reason, by })))
    }
    case 'run/revokeAnswer': {
      const { approvalId, by } = request
      return await answerWith(client, await problemOf(run.revokeAnswer(approvalId, { by })))
    }
    case 'run/pause': {
      const { paused, by } = request
      return await answerWith(client, await problemOf(paused ? run.pause({ by }) : run.resume({ by })))
    }
    case 'run/fork': {
      const { op: _, despite, metadata, ...fork } = request
      const given = {
        ...(despite === undefined ? {} : { despite }),
        ...(metadata === undefined ? {} : { metadata }),
      }
      return await serveFork(run, { ...fork, ...given }, client)
    }
  }
}

function steerOptions({ by, to }: Extract<RunRequest, { op: 'run/steer' }>): SteerOptions {
  return { by, ...(to === undefined ? {} : { to }) }
}

async function serveFork(
  run: RunService,
  request: Parameters<RunService['fork']>[0],
  client: FramedStream,
): Promise<ControlFailure | null> {
  try {
    const { runIds, ...forks } = await run.fork(request)
    await client.sendJson({ ok: true, ...forks, runIds: [...runIds] } satisfies z.infer<typeof ForkReply>)
    return null
  } catch (error) {
    // The words are for the person who asked; the code tells what the other process does with them.
    const code = hasCode(error, 'not_possible_now', 'invalid_options') ? 'unavailable' : 'internal'
    return { code, message: errorMessage(error).slice(0, limits.textMaxChars) }
  }
}

/** Why something was not done; undefined when it was. @throws whatever is not a refusal */
async function problemOf(done: Promise<void>): Promise<string | undefined> {
  try {
    await done
    return undefined
  } catch (error) {
    if (hasCode(error, 'not_possible_now')) return error.message
    throw error
  }
}

/** @param problem why it failed; absent on success */
async function answerWith(client: FramedStream, problem: string | undefined): Promise<ControlFailure | null> {
  if (problem !== undefined) return { code: 'busy', message: problem.slice(0, limits.textMaxChars) }
  await client.sendJson({ ok: true } satisfies ControlReply)
  return null
}

/** The request of a connection; null if there is no valid one in time. */
async function readRequest(client: FramedStream): Promise<ControlRequest | null> {
  const timer = setTimeout(() => client.destroy('no request came'), controlLimits.requestTimeoutMs)
  try {
    const frame = await client.next()
    if (frame === null) {
      client.end()
      return null
    }
    const parsed = ControlRequest.safeParse(client.parseJson(frame), plainMessages)
    if (parsed.success) return parsed.data
    const message = `not a request that this version of Caisson serves: ${describeIssues(parsed.error, { root: 'it', max: 1 })}`
    await client.sendJson({ ok: false, error: { code: 'bad_request', message } } satisfies ControlReply)
    client.end()
    return null
  } finally {
    clearTimeout(timer)
  }
}

function notServed(what: string): ControlFailure {
  return { code: 'not_served', message: `${what} is served on this socket` }
}

/** Waits until the other side has read everything and closed. Reading detects the close. */
async function flushed(client: FramedStream): Promise<void> {
  const drain = async () => {
    while ((await client.next()) !== null);
  }
  await Promise.race([client.closed, drain().catch(() => undefined)])
}

/** Starts the end and stays open until this server closes, which tells the other side. */
async function serveEnd(client: FramedStream, signal: AbortSignal, bringAbout: () => void): Promise<null> {
  await client.sendJson({ ok: true } satisfies ControlReply)
  const closing = new Promise<void>((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
  bringAbout()
  // Reading detects a closed client.
  await Promise.race([closing, client.next().catch(() => null)])
  return null
}

async function serveConsole(
  vm: VmService,
  client: FramedStream,
  follow: boolean,
  signal: AbortSignal,
): Promise<null> {
  const text = Buffer.from(vm.console.text())
  const ended = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => ended.resolve(), { once: true })
  let waiting = 0
  let leftOut = 0
  let tail = Promise.resolve()
  const send = (chunk: Buffer): void => {
    // A guest can write endlessly, and a reader can stop.
    if (waiting + chunk.length > controlLimits.consoleBacklogBytes) {
      leftOut += chunk.length
      return
    }
    const note = leftOut > 0 ? Buffer.from(`\n[… ${leftOut} bytes left out for this reader …]\n`) : null
    leftOut = 0
    waiting += chunk.length
    tail = tail.then(async () => {
      if (note !== null) await client.sendBytes(frameKinds.stdout, note)
      await client.sendBytes(frameKinds.stdout, chunk)
      waiting -= chunk.length
    })
  }
  send(text)
  const off = follow ? vm.console.onData((chunk) => send(Buffer.from(chunk))) : () => undefined
  if (follow) {
    // Reading detects a closed connection.
    void client.next().then(
      () => ended.resolve(),
      () => ended.resolve(),
    )
    await ended.promise
  }
  off()
  await tail
  await client.sendJson({ ok: true } satisfies ControlReply)
  return null
}
