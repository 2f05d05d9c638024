/**
 * A person's access to one guest: shells and connections to its ports. The host asks the agent, which opens a stream;
 * unexpected streams are refused. All stream data is untrusted.
 */

import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { FramedStream } from '#specs/node/framed-stream.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { ShellOptions } from '#specs/protocol/methods.ts'
import { forwardOpen, type RequestMethod, shellOpen } from '#specs/protocol/methods.ts'
import type { ParamsInput, RpcFailure } from '#specs/protocol/peer.ts'
import { gatewayAuthority } from '../gateway/gateway.ts'
import type { AgentLink } from '../guest/agent-link.ts'
import type { ControlFailure } from './messages.ts'

/** Only part of the guest's streams, so that the model always has some. */
export const accessLimits = { maxShells: 8, maxForwards: 32 } as const

/** Time for the agent to answer, including lost sessions. */
const openTimeoutMs = 30_000
/** Time for the workspace to be opened in a VM that has just started. */
const readyTimeoutMs = 5_000
/** Time between the agent's answer and its stream on the other port. */
const streamTimeoutMs = 10_000

export type Access = Omit<Extract<HostEvent, { type: 'vm-access' }>, 'type'>
export type AccessResult<T> = Result<T, ControlFailure>

interface GuestAccessOptions {
  /** The link to the agent; read on each request. */
  readonly link: () => Pick<AgentLink, 'request'>
  /** Settles when the workspace is open, which shells need, or cannot be; absent: it is open. */
  readonly ready?: () => Promise<void>
  /** How long a shell waits for that. Default 5 s. */
  readonly readyTimeoutMs?: number
  /** Called before each access. */
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

  /** Whether a person works in the VM. */
  isBusy(): boolean {
    return this.#counts.shell + this.#counts.forward > 0
  }

  /** Guest ports that were connected to, in order. */
  ports(): number[] {
    return [...this.#ports].sort((a, b) => a - b)
  }

  /** Handles a stream if it belongs to a shell or connection; returns false for other streams. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const path = headers[':path'] ?? ''
    // The authority separates it from requests of guest programs to other servers.
    if (headers[':authority'] !== gatewayAuthority || !/^\/(?:shell|forward)\//.test(path)) return false
    const taker = headers[':method'] === 'POST' ? this.#expected.get(path) : undefined
    if (taker === undefined) stream.respond({ ':status': 404 }, { endStream: true })
    else {
      stream.respond({ ':status': 200 })
      taker(stream)
    }
    return true
  }

  /** A shell or command as frames: `stdin` and `windowSize` to it, `stdout` and `stderr` from it, finally a reply. */
  async openShell(options: ShellOptions, signal?: AbortSignal): Promise<AccessResult<FramedStream>> {
    const { argv, terminal } = options
    await this.#waitUntilReady(signal)
    if (signal?.aborted === true)
      return { ok: false, error: { code: 'unavailable', message: 'cancelled by the caller' } }
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
    // Once per port: a browser opens many connections.
    if (!this.#ports.has(port)) this.#options.onAccess?.({ kind: 'forward', detail: String(port) })
    this.#ports.add(port)
    return await this.#open('forward', accessLimits.maxForwards, signal, (forwardId) => ({
      method: forwardOpen,
      params: { forwardId, port },
    }))
  }

  /** Waits for the workspace, but not for long: then the guest itself says what is missing. */
  async #waitUntilReady(signal: AbortSignal | undefined): Promise<void> {
    const { ready, readyTimeoutMs: ms = readyTimeoutMs } = this.#options
    if (ready === undefined) return
    using waited = new DisposableStack()
    const over = new AbortController()
    waited.defer(() => over.abort())
    const ends = AbortSignal.any([over.signal, ...(signal === undefined ? [] : [signal])])
    await Promise.race([ready(), sleep(ms, undefined, { signal: ends })]).catch(() => undefined)
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
    // Arrived just after it was cancelled.
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
    const message = 'the agent confirmed the stream, but did not open it'
    return { ok: false, error: { code: 'unavailable', message } }
  }
}

function failureOf(kind: 'shell' | 'forward', { code, message }: RpcFailure): ControlFailure {
  const isRefused = kind === 'forward' && code === 'rejected'
  return { code: isRefused ? 'refused' : 'unavailable', message: `${message} (${code})`.slice(0, 8_000) }
}
