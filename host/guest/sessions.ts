/**
 * Keeps a session with the guest: draws its number, opens both ports with it, starts it, watches its heartbeat, and
 * starts a new one when it ends. Any error of the guest ends the session; too many end the link.
 */
import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { Channel } from '#specs/node/channel.ts'
import { type SessionId, sessionRequest } from '#specs/node/preamble.ts'
import { openRpcSession, type RpcSession, type RpcSessionEnd } from '#specs/node/rpc-session.ts'
import { SessionStream } from '#specs/node/session-stream.ts'
import { protocolSha256 } from '#specs/protocol/digest.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { agentPing, type RequestMethod, sessionStart } from '#specs/protocol/methods.ts'
import type { Handlers, ParamsInput, Peer, ResultOf, RpcFailure } from '#specs/protocol/peer.ts'
import { GuestTimer, type ProbeVm } from './guest-timer.ts'
import { type StreamHandler, serveHttp2 } from './http-server.ts'

/** Time between two offers at the guest's request; limits the cost of endless requests. */
const askedOfferMs = 20

export type SessionInfo = ResultOf<typeof sessionStart>

/** A session that has started. */
export interface LiveSession {
  /** 1 for the first of this link. */
  number: number
  peer: Peer
  info: SessionInfo
  /** Whether the agent process is the same as in the previous session. */
  resumed: boolean
}

export interface LinkEnd {
  reason: 'closed' | 'port_closed' | 'flapping' | 'silent' | 'protocol_mismatch' | 'run_limit' | 'host_failed'
  /** The phase, what was expected, what was seen, what to do. */
  message: string
}

export interface LinkTimings {
  heartbeatIntervalMs: number
  /** Age of an unanswered heartbeat after which the session ends. */
  heartbeatTimeoutMs: number
  /** Time limit of `session/start`. */
  startTimeoutMs: number
  /** Time limit without a session, after the first one. */
  reconnectTimeoutMs: number
  /** Time limit for the first session; the guest may still be booting. */
  firstSessionTimeoutMs: number
  /** Time limit for a guest to end its session before it is saved. */
  parkTimeoutMs: number
  /** Interval between repeated preambles while there is no answer. */
  preambleIntervalMs: number
  /** Sessions that may end within `flapWindowMs`. */
  flapMaxCount: number
  flapWindowMs: number
}

export const defaultTimings: LinkTimings = {
  heartbeatIntervalMs: limits.heartbeatIntervalMs,
  heartbeatTimeoutMs: limits.heartbeatTimeoutMs,
  startTimeoutMs: 10_000,
  reconnectTimeoutMs: 60_000,
  firstSessionTimeoutMs: 300_000,
  parkTimeoutMs: 1_000,
  preambleIntervalMs: 5_000,
  flapMaxCount: 24,
  flapWindowMs: 60_000,
}

interface SessionsOptions {
  rpc: Duplex
  http: Duplex
  handlers: Handlers<'host'>
  onStream: StreamHandler
  /** Position from which the guest continues. */
  resume: () => ParamsInput<typeof sessionStart>['resume']
  onUp: (session: LiveSession) => void
  onDown: (number: number, end: RpcSessionEnd) => void
  onEnd: (end: LinkEnd) => void
  onBug?: (method: string, cause: unknown) => void
  timings?: Partial<LinkTimings>
  /** Whether the VM was restored from shared state, such as a template. */
  cloned?: boolean
  /** Tells whether the VM's process runs; absent: it is taken to. */
  probe?: ProbeVm
  drawSession?: () => SessionId
}

export class Sessions {
  readonly #options: SessionsOptions
  readonly #timings: LinkTimings
  #rpc: Channel
  #http: Channel
  /** True between the end of a VM's process and the ports of the next one. */
  #detached = false
  /** Called when the guest waits for a host. */
  #onParked = () => {}
  /** The number last written; only its echo opens a session. {@link sessionRequest} while there is no offer. */
  #drawn: SessionId = sessionRequest
  #rpcSession: RpcSession | null = null
  #httpStream: SessionStream | null = null
  #httpOffered = false
  /** Whether the guest has opened its side of the stream port in this session. */
  #httpSeen = false
  #live: LiveSession | null = null
  #count = 0
  #lastProcessId: string | null = null
  #endedAt: number[] = []
  #ended: LinkEnd | null = null
  #frozen = false
  #beginTimer: NodeJS.Timeout | null = null
  #preambleTimer: NodeJS.Timeout | null = null
  #silence: GuestTimer | null = null

  constructor(options: SessionsOptions) {
    this.#options = options
    this.#timings = { ...defaultTimings, ...options.timings }
    this.#rpc = this.#openRpcChannel(options.rpc)
    this.#http = this.#openHttpChannel(options.http)
    this.#watchSilence(this.#timings.firstSessionTimeoutMs)
    this.#begin()
  }

  #openRpcChannel(port: Duplex): Channel {
    const onClosed = (message: string) => this.#onPortClosed('caisson.rpc', message)
    return new Channel(
      port,
      (session) => this.#onRpcPreamble(session),
      ({ message }) => onClosed(message),
    )
  }

  #openHttpChannel(port: Duplex): Channel {
    const onClosed = (message: string) => this.#onPortClosed('caisson.http', message)
    return new Channel(
      port,
      (session) => this.#onHttpPreamble(session),
      ({ message }) => onClosed(message),
    )
  }

  #onPortClosed(name: string, message: string): void {
    this.end({ reason: 'port_closed', message: `the channel ${name} is gone: ${message}` })
  }

  get live(): LiveSession | null {
    return this.#live
  }

  /** Ends the current session; the next one starts by itself. */
  restart(reason: string, message: string): void {
    if (this.#rpcSession === null) this.#begin()
    else this.#rpcSession.end({ reason, message })
  }

  /** While the VM is paused, the guest is not expected to answer. */
  setFrozen(frozen: boolean): void {
    if (this.#frozen === frozen || this.#ended !== null) return
    this.#frozen = frozen
    if (!frozen && this.#live === null) this.#watchSilence(this.#timings.reconnectTimeoutMs)
  }

  /**
   * Ends the session and releases the ports before the VM is saved; expects nothing until {@link attachPorts}. A guest
   * that has closed its session resumes several times faster. One that does not confirm in time is saved as it is.
   */
  async park(): Promise<void> {
    const session = this.#frozen ? null : this.#rpcSession
    this.setFrozen(true)
    this.#detached = true
    if (session !== null) {
      const parked = Promise.withResolvers<void>()
      this.#onParked = parked.resolve
      session.end({ reason: 'parked', message: 'the VM is being saved' })
      this.#rpc.writePreamble(sessionRequest)
      await Promise.race([parked.promise, sleep(this.#timings.parkTimeoutMs)])
    }
    this.#rpc.release()
    this.#http.release()
  }

  /** Continues the VM over new ports: ends the old session and starts the next. */
  attachPorts(rpc: Duplex, http: Duplex): void {
    if (this.#ended !== null) return
    this.#detached = false
    this.#rpc = this.#openRpcChannel(rpc)
    this.#http = this.#openHttpChannel(http)
    this.setFrozen(false)
    this.restart('woken', 'the VM continues behind other ports')
  }

  /** Ends the link; only the first call counts. */
  end(end: LinkEnd): void {
    if (this.#ended !== null) return
    this.#ended = end
    this.#silence?.cancel()
    for (const timer of [this.#beginTimer, this.#preambleTimer]) if (timer !== null) clearTimeout(timer)
    const open = this.#rpcSession !== null
    this.#rpcSession?.end({ reason: end.reason, message: end.message })
    this.#dropHttp()
    // Without it, the guest would notice only by silence.
    if (open) this.#rpc.writePreamble(sessionRequest)
    this.#rpc.release()
    this.#http.release()
    this.#options.onEnd(end)
  }

  // ---- start ----------------------------------------------------------------------------------------------

  /** Draws a session and offers it on the control port. */
  #begin(): void {
    if (this.#ended !== null || this.#detached) return
    if (this.#beginTimer !== null) clearTimeout(this.#beginTimer)
    this.#beginTimer = null
    this.#dropHttp()
    this.#drawn = this.#options.drawSession?.() ?? randomBytes(16).toString('hex')
    this.#httpOffered = false
    this.#httpSeen = false
    this.#rpc.writePreamble(this.#drawn)
    if (this.#preambleTimer !== null) clearTimeout(this.#preambleTimer)
    this.#preambleTimer = setTimeout(() => {
      if (this.#rpcSession === null) this.#begin()
    }, this.#timings.preambleIntervalMs)
  }

  /** Several causes within `delayMs` lead to one start. */
  #beginSoon(delayMs: number): void {
    if (this.#ended !== null || this.#rpcSession !== null) return
    if (this.#beginTimer !== null) clearTimeout(this.#beginTimer)
    this.#beginTimer = setTimeout(() => this.#begin(), delayMs)
  }

  #onRpcPreamble(session: SessionId): void {
    if (this.#rpcSession !== null) return
    if (this.#detached) {
      if (session === sessionRequest) this.#onParked()
    } else if (session === sessionRequest) this.#onAsked()
    else if (session === this.#drawn) this.#open()
    // Any other number is the echo of a withdrawn offer.
  }

  /**
   * The guest asks for a session and repeats this until it gets one. Repeated requests do not count as session changes:
   * a host that was stopped reads them all at once. The session's time limit bounds them.
   */
  #onAsked(): void {
    if (this.#drawn === sessionRequest) this.#beginSoon(1)
    // The current offer may have been lost, or its echo may follow this request.
    else if (this.#beginTimer === null) this.#beginSoon(askedOfferMs)
  }

  #onHttpPreamble(session: SessionId): void {
    if (session !== this.#drawn || this.#httpSeen) return
    this.#httpSeen = true
    if (this.#live !== null) this.#openHttp()
  }

  /**
   * Opens the streams once the control port works, so that a resumed guest gets its first answer sooner. Waits for the
   * guest's first answer: until then it may still be in the previous session and read the preamble as data.
   */
  #openHttp(): void {
    if (!this.#httpOffered) this.#http.writePreamble(this.#drawn)
    this.#httpOffered = true
    if (!this.#httpSeen || this.#httpStream !== null) return
    const stream = new SessionStream(this.#http)
    this.#httpStream = stream
    serveHttp2(stream, this.#options.onStream, (message) => {
      if (this.#httpStream !== stream) return
      this.#httpStream = null
      stream.destroy()
      this.#rpcSession?.end({ reason: 'http_failed', message })
    })
  }

  #open(): void {
    const number = ++this.#count
    if (this.#beginTimer !== null) clearTimeout(this.#beginTimer)
    this.#beginTimer = null
    if (this.#preambleTimer !== null) clearTimeout(this.#preambleTimer)
    const session = openRpcSession({
      channel: this.#rpc,
      side: 'host',
      handlers: this.#options.handlers,
      rateClock: () => performance.now(),
      onEnd: (end) => this.#onSessionEnd(number, end),
      ...(this.#options.onBug === undefined ? {} : { onBug: this.#options.onBug }),
    })
    this.#rpcSession = session
    void this.#start(session, number)
  }

  async #start(session: RpcSession, number: number): Promise<void> {
    const resume = this.#options.resume()
    const answer = await this.#ask(
      session,
      sessionStart,
      {
        session: this.#drawn,
        protocolSha256,
        heartbeatIntervalMs: this.#timings.heartbeatIntervalMs,
        // Until its first answer; after that the guest has an identity of its own and keeps it.
        ...(this.#options.cloned === true && this.#lastProcessId === null ? { cloned: true } : {}),
        ...(resume === undefined ? {} : { resume }),
      },
      this.#timings.startTimeoutMs,
    )
    if (this.#rpcSession !== session) return
    if (!answer.ok) {
      session.end({ reason: 'start_failed', message: answer.error.message })
      return
    }
    if (answer.value.protocolSha256 !== protocolSha256) {
      this.end({
        reason: 'protocol_mismatch',
        message: `the agent in the image speaks another protocol (${answer.value.protocolSha256.slice(0, 12)}, this host ${protocolSha256.slice(0, 12)}): rebuild the image with "caisson image build"`,
      })
      return
    }
    this.#goLive(session, number, answer.value)
  }

  #goLive(session: RpcSession, number: number, info: SessionInfo): void {
    const resumed = this.#lastProcessId === info.processId
    this.#lastProcessId = info.processId
    this.#silence?.cancel()
    const live = { number, peer: session.peer, info, resumed }
    this.#live = live
    this.#openHttp()
    this.#options.onUp(live)
    void this.#beat(session)
  }

  // ---- end ------------------------------------------------------------------------------------------------

  #onSessionEnd(number: number, end: RpcSessionEnd): void {
    const wasLive = this.#live !== null
    this.#rpcSession = null
    this.#live = null
    // A late echo must not open a session.
    this.#drawn = sessionRequest
    this.#dropHttp()
    if (wasLive) {
      this.#options.onDown(number, end)
      this.#watchSilence(this.#timings.reconnectTimeoutMs)
    }
    if (!this.#countChange()) return
    // A restarting guest announces itself in a moment; otherwise the host starts the session.
    this.#beginSoon(end.reason === 'session_replaced' ? 100 : 1)
  }

  #dropHttp(): void {
    const stream = this.#httpStream
    this.#httpStream = null
    stream?.destroy(new Error('the session has ended'))
  }

  /** False when this was one change too many, and the link has ended. */
  #countChange(): boolean {
    if (this.#ended !== null) return false
    const { flapMaxCount, flapWindowMs } = this.#timings
    const now = performance.now()
    this.#endedAt = this.#endedAt.filter((at) => now - at < flapWindowMs)
    this.#endedAt.push(now)
    if (this.#endedAt.length <= flapMaxCount) return true
    const message = `the agent's sessions do not last: more than ${flapMaxCount} ended within ${flapWindowMs} ms; see the console of the VM`
    this.end({ reason: 'flapping', message })
    return false
  }

  #watchSilence(timeoutMs: number): void {
    if (this.#ended !== null) return
    this.#silence?.cancel()
    const onEnd = (): void => {
      if (this.#frozen || this.#live !== null) return
      const message = `the agent did not open a session within ${timeoutMs} ms; see the console of the VM`
      this.end({ reason: 'silent', message })
    }
    this.#silence = new GuestTimer(timeoutMs, onEnd, this.#options.probe)
  }

  /** A request whose time limit counts only while this process and the VM run. */
  async #ask<M extends RequestMethod>(
    session: RpcSession,
    method: M,
    params: ParamsInput<M>,
    timeoutMs: number,
  ): Promise<Result<ResultOf<M>, RpcFailure>> {
    const late = new AbortController()
    const timer = new GuestTimer(timeoutMs, () => late.abort(), this.#options.probe)
    const answer = await session.peer.request(method, params, { signal: late.signal })
    timer.cancel()
    if (answer.ok || !late.signal.aborted) return answer
    const message = `${method.name} was not answered within ${timeoutMs} ms`
    return { ok: false, error: { code: 'timed_out', message } }
  }

  // ---- heartbeat ------------------------------------------------------------------------------------------

  async #beat(session: RpcSession): Promise<void> {
    const { heartbeatIntervalMs, heartbeatTimeoutMs } = this.#timings
    for (let count = 0; this.#rpcSession === session; count++) {
      await sleep(heartbeatIntervalMs)
      if (this.#rpcSession !== session) return
      if (this.#frozen || session.paused) continue
      const answer = await this.#ask(session, agentPing, { count }, heartbeatTimeoutMs)
      if (this.#rpcSession !== session) return
      // Silence that the host caused does not count.
      if (answer.ok || this.#frozen || session.paused) continue
      session.end({ reason: 'heartbeat_missed', message: answer.error.message })
    }
  }
}

/** Does not keep the process alive. */
function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref())
}
