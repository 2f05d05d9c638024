/**
 * A person's ways into one guest: shells and connections to its ports. The host asks the agent, and the agent opens a
 * stream for what was asked; a stream that nobody asked for is refused. What comes out of them is the guest's word.
 */

import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { Duplex } from 'node:stream'
import { FramedStream } from '#specs/node/framed-stream.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { ShellOptions } from '#specs/protocol/methods.ts'
import { forwardOpen, type RequestMethod, shellOpen } from '#specs/protocol/methods.ts'
import type { ParamsInput, RpcFailure } from '#specs/protocol/peer.ts'
import { gatewayAuthority } from '../gateway/gateway.ts'
import type { AgentLink } from '../guest/agent-link.ts'
import type { ControlFailure } from './messages.ts'

/** Together a part of the streams that the guest may have open, so that the model always has room. */
export const accessLimits = { maxShells: 8, maxForwards: 32 } as const

/** For the agent to answer, sessions that come and go included. */
const openTimeoutMs = 30_000
/** Between the agent's answer and its stream, which comes on the other port. */
const streamTimeoutMs = 10_000

export type Access = Omit<Extract<HostEvent, { type: 'vm-access' }>, 'type'>
export type AccessResult<T> = Result<T, ControlFailure>

export interface GuestAccessOptions {
  /** The link to the agent; looked at when something is asked for. */
  readonly link: () => Pick<AgentLink, 'request'>
  /** Told of everything that is about to be opened. */
  readonly onAccess?: (access: Access) => void
}

export class GuestAccess {
  readonly #options: GuestAccessOptions
  readonly #expected = new Map<string, (stream: ServerHttp2Stream) => void>()
  readonly #ports = new Set<number>()
  readonly #counts = { shell: 0, forward: 0 }

  constructor(options: GuestAccessOptions) {
    this.#options = options
  }

  /** Whether somebody works in the VM. */
  isBusy(): boolean {
    return this.#counts.shell + this.#counts.forward > 0
  }

  /** Takes a stream of the guest if it is of this kind; false leaves it to others. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const path = headers[':path'] ?? ''
    // The name keeps out what programs of the guest ask of other servers.
    if (headers[':authority'] !== gatewayAuthority || !/^\/(?:shell|forward)\//.test(path)) return false
    const taker = headers[':method'] === 'POST' ? this.#expected.get(path) : undefined
    if (taker === undefined) stream.respond({ ':status': 404 }, { endStream: true })
    else {
      stream.respond({ ':status': 200 })
      taker(stream)
    }
    return true
  }

  /** A shell or command as its frames: `stdin` and `windowSize` to it, `stdout` and `stderr` from it, at last a reply. */
  async openShell(options: ShellOptions, signal?: AbortSignal): Promise<AccessResult<FramedStream>> {
    const { argv, terminal } = options
    this.#options.onAccess?.(
      argv.length === 0
        ? { kind: 'shell', detail: '' }
        : { kind: 'command', detail: argv.join(' ').slice(0, 500) },
    )
    const opened = await this.#open('shell', accessLimits.maxShells, signal, (shellId) => ({
      method: shellOpen,
      params: { shellId, argv: [...argv], terminal },
    }))
    return opened.ok ? { ok: true, value: new FramedStream(opened.value) } : opened
  }

  /** A connection to 127.0.0.1:port in the guest. */
  async openForward(port: number, signal?: AbortSignal): Promise<AccessResult<Duplex>> {
    // Once a port: a browser makes a connection for every picture.
    if (!this.#ports.has(port)) this.#options.onAccess?.({ kind: 'forward', detail: String(port) })
    this.#ports.add(port)
    return await this.#open('forward', accessLimits.maxForwards, signal, (forwardId) => ({
      method: forwardOpen,
      params: { forwardId, port },
    }))
  }

  async #open<M extends RequestMethod>(
    kind: 'shell' | 'forward',
    max: number,
    signal: AbortSignal | undefined,
    order: (id: string) => { method: M; params: ParamsInput<M> },
  ): Promise<AccessResult<ServerHttp2Stream>> {
    if (this.#counts[kind] >= max)
      return { ok: false, error: { code: 'busy', message: `${max} of these are open already` } }
    this.#counts[kind] += 1
    const id = randomBytes(16).toString('hex')
    const path = `/${kind}/${id}`
    const arrived = Promise.withResolvers<ServerHttp2Stream>()
    this.#expected.set(path, (stream) => {
      this.#expected.delete(path)
      arrived.resolve(stream)
    })
    const stream = await this.#ask(kind, order(id), arrived.promise, signal)
    this.#expected.delete(path)
    const release = () => {
      this.#counts[kind] -= 1
    }
    if (!stream.ok || stream.value.destroyed) release()
    else stream.value.once('close', release)
    // Came just after it was given up.
    if (!stream.ok) void arrived.promise.then((late) => late.destroy(new Error('given up')))
    return stream
  }

  async #ask<M extends RequestMethod>(
    kind: 'shell' | 'forward',
    { method, params }: { method: M; params: ParamsInput<M> },
    arrived: Promise<ServerHttp2Stream>,
    signal: AbortSignal | undefined,
  ): Promise<AccessResult<ServerHttp2Stream>> {
    const options = signal === undefined ? {} : { signal }
    const answer = await this.#options
      .link()
      .request(method, params, { ...options, timeoutMs: openTimeoutMs })
    if (!answer.ok) return { ok: false, error: failureOf(kind, answer.error) }
    const timeout = Promise.withResolvers<null>()
    const timer = setTimeout(() => timeout.resolve(null), streamTimeoutMs)
    const stream = await Promise.race([arrived, timeout.promise])
    clearTimeout(timer)
    if (stream !== null) return { ok: true, value: stream }
    const message = 'the agent said that it opened the stream, and none came'
    return { ok: false, error: { code: 'unavailable', message } }
  }
}

function failureOf(kind: 'shell' | 'forward', { code, message }: RpcFailure): ControlFailure {
  const isRefused = kind === 'forward' && code === 'rejected'
  return { code: isRefused ? 'refused' : 'unavailable', message: `${message} (${code})`.slice(0, 8_000) }
}
