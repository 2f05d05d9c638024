/**
 * The guest's side of sessions: opens both ports, requests a session until the host begins one, answers the host's
 * preambles, and reopens ports that end. Knows nothing of runs; reports the start and end of each session.
 */
import type { Duplex } from 'node:stream'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { Channel } from '#specs/node/channel.ts'
import { type SessionId, sessionRequest } from '#specs/node/preamble.ts'
import { openRpcSession, type RpcSession } from '#specs/node/rpc-session.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Handlers } from '#specs/protocol/peer.ts'
import type { OpenPort } from './port.ts'

export interface GuestTimings {
  /** Interval of session requests while there is no session; doubles up to the second value. */
  requestIntervalMs: number
  requestMaxMs: number
  /** Deadline for the answer to the host's session request. */
  answerDelayMs: number
  /** Delay before a port is reopened; doubles up to the second value. */
  reopenMinMs: number
  reopenMaxMs: number
  /** Silence of the host, in heartbeats, after which the guest requests a new session. */
  silenceBeats: number
  /** The same after which the host is taken to stand still. */
  quietBeats: number
}

const defaultGuestTimings: GuestTimings = {
  requestIntervalMs: 1_000,
  requestMaxMs: 8_000,
  answerDelayMs: 50,
  reopenMinMs: 50,
  reopenMaxMs: 2_000,
  silenceBeats: 30,
  quietBeats: 5,
}

interface HostSessionsOptions {
  openRpc: OpenPort
  openHttp: OpenPort
  /** Creates the handlers of one session when it begins. */
  handlers: (session: GuestSession) => Handlers<'guest'>
  /**
   * The port `caisson.http` once the host has begun the session on it. The receiver owns it until it is destroyed,
   * which happens with the session.
   */
  onHttp: (port: Duplex) => void
  onDown: (session: GuestSession, end: { reason: string; message: string }) => void
  /** The host began or ended to be silent for {@link GuestTimings.quietBeats}. */
  onQuiet?: (quiet: boolean) => void
  /** A diagnostic for this side's log. */
  onTrouble: (message: string) => void
  timings?: Partial<GuestTimings>
}

export interface GuestSession {
  readonly id: SessionId
  /** Set before the host can send anything. */
  rpc: RpcSession | null
}

interface Ports {
  rpc: Duplex
  http: Duplex
  rpcChannel: Channel
  /** Absent from the moment a session takes the port until it is reopened. */
  httpChannel: Channel | null
}

export class HostSessions {
  readonly #options: HostSessionsOptions
  readonly #timings: GuestTimings
  #ports: Ports | null = null
  #session: GuestSession | null = null
  #httpSeen: SessionId | null = null
  #requestTimer: NodeJS.Timeout | null = null
  #reopenTimer: NodeJS.Timeout | null = null
  #silenceTimer: AwakeTimer | null = null
  /** Runs from the host's first message on; null while the host is quiet. */
  #quietTimer: AwakeTimer | null = null
  #isQuiet = false
  #heartbeatMs: number = limits.heartbeatIntervalMs
  #requestMs: number
  #reopenMs: number
  #closed = false

  constructor(options: HostSessionsOptions) {
    this.#options = options
    this.#timings = { ...defaultGuestTimings, ...options.timings }
    this.#requestMs = this.#timings.requestIntervalMs
    this.#reopenMs = this.#timings.reopenMinMs
    void this.#openPorts()
  }

  /** The host has started the session; it speaks at least once in `heartbeatMs`. */
  started(session: GuestSession, heartbeatMs: number): void {
    this.#heartbeatMs = heartbeatMs
    if (this.#session === session) this.#watchSilence(session)
    this.heard()
  }

  #watchSilence(session: GuestSession): void {
    this.#silenceTimer?.cancel()
    this.#silenceTimer = new AwakeTimer(this.#timings.silenceBeats * this.#heartbeatMs, () => {
      session.rpc?.end({ reason: 'host_silent', message: 'the host has been silent for too long' })
    })
  }

  /** Records that the host sent something, so it is not silent. */
  heard(): void {
    this.#silenceTimer?.refresh()
    this.#quietTimer?.refresh()
    if (this.#quietTimer !== null || this.#closed) return
    const quietMs = this.#timings.quietBeats * this.#heartbeatMs
    this.#quietTimer = new AwakeTimer(quietMs, () => this.#setQuiet(true))
    if (this.#isQuiet) this.#setQuiet(false)
  }

  #setQuiet(quiet: boolean): void {
    this.#isQuiet = quiet
    if (quiet) this.#quietTimer = null
    this.#options.onQuiet?.(quiet)
  }

  /** Whether this is the current session. */
  isCurrent(session: GuestSession): boolean {
    return this.#session === session
  }

  close(): void {
    this.#closed = true
    this.#quietTimer?.cancel()
    this.#closePorts('the agent closed its ports')
    if (this.#reopenTimer !== null) clearTimeout(this.#reopenTimer)
  }

  // ---- ports ----------------------------------------------------------------------------------------------

  async #openPorts(): Promise<void> {
    let http: Duplex | null = null
    let rpc: Duplex | null = null
    try {
      http = await this.#options.openHttp()
      rpc = await this.#options.openRpc()
    } catch (error) {
      http?.destroy()
      this.#options.onTrouble(`a port could not be opened: ${(error as Error).message}`)
      this.#reopenLater()
      return
    }
    if (this.#closed) {
      http.destroy()
      rpc.destroy()
      return
    }
    const rpcChannel = this.#watch(rpc, (session) => this.#onRpcPreamble(session))
    const httpChannel = this.#watch(http, (session) => this.#onHttpPreamble(session))
    this.#ports = { rpc, http, rpcChannel, httpChannel }
    this.#sessionRequest()
  }

  #watch(port: Duplex, onPreamble: (session: SessionId) => void): Channel {
    return new Channel(port, onPreamble, ({ message }) => this.#onPortClosed(message))
  }

  #onPortClosed(message: string): void {
    this.#closePorts(message)
    this.#reopenLater()
  }

  /** Reopens a port after its session. Closing discards unread data of that session, as intended. */
  async #reopenHttp(ports: Ports): Promise<void> {
    try {
      const http = await this.#options.openHttp()
      if (this.#ports !== ports) {
        http.destroy()
        return
      }
      ports.http = http
      ports.httpChannel = this.#watch(http, (session) => this.#onHttpPreamble(session))
      if (this.#session !== null) ports.httpChannel.writePreamble(this.#session.id)
    } catch (error) {
      const message = `a port could not be opened: ${(error as Error).message}`
      this.#options.onTrouble(message)
      if (this.#ports === ports) this.#onPortClosed(message)
    }
  }

  #closePorts(message: string): void {
    const ports = this.#ports
    this.#ports = null
    if (this.#requestTimer !== null) clearTimeout(this.#requestTimer)
    this.#session?.rpc?.end({ reason: 'port_closed', message })
    if (ports === null) return
    for (const channel of [ports.rpcChannel, ports.httpChannel]) channel?.release()
    for (const port of [ports.rpc, ports.http]) port.destroy()
  }

  #reopenLater(): void {
    if (this.#closed) return
    if (this.#reopenTimer !== null) clearTimeout(this.#reopenTimer)
    this.#reopenTimer = setTimeout(() => void this.#openPorts(), this.#reopenMs)
    this.#reopenMs = Math.min(this.#timings.reopenMaxMs, this.#reopenMs * 2)
  }

  // ---- sessions -------------------------------------------------------------------------------------------

  /** Requests a session and repeats until one begins: data written while the host has nothing open may be lost. */
  #sessionRequest(): void {
    const ports = this.#ports
    if (this.#requestTimer !== null) clearTimeout(this.#requestTimer)
    if (ports === null || this.#session !== null) return
    // A session request that is still waiting to be written suffices.
    if (ports.rpcChannel.waitingBytes === 0) ports.rpcChannel.writePreamble(sessionRequest)
    this.#requestAfter(this.#requestMs)
    this.#requestMs = Math.min(this.#timings.requestMaxMs, this.#requestMs * 2)
  }

  #onRpcPreamble(id: SessionId): void {
    const ports = this.#ports
    if (ports === null) return
    if (id === sessionRequest) {
      // The host ended the session; another host may start one at once.
      this.#requestAfter(this.#timings.answerDelayMs)
      return
    }
    if (this.#requestTimer !== null) clearTimeout(this.#requestTimer)
    ports.rpcChannel.writePreamble(id)
    ports.httpChannel?.writePreamble(id)
    const session: GuestSession = { id, rpc: null }
    this.#session = session
    session.rpc = openRpcSession({
      channel: ports.rpcChannel,
      side: 'guest',
      handlers: this.#options.handlers(session),
      onEnd: (end) => this.#onSessionEnd(session, end),
      onBug: (method, cause) => this.#options.onTrouble(`the handler of ${method} failed: ${String(cause)}`),
    })
    this.#watchSilence(session)
    this.#requestMs = this.#timings.requestIntervalMs
    this.#reopenMs = this.#timings.reopenMinMs
    if (this.#httpSeen === id) this.#openHttp(ports)
  }

  /** The host writes nothing on this port before our preamble, so remembering its preamble loses nothing. */
  #onHttpPreamble(id: SessionId): void {
    this.#httpSeen = id
    if (this.#ports !== null && this.#session?.id === id) this.#openHttp(this.#ports)
  }

  /**
   * Hands over the port itself, so that HTTP/2 reads and writes without JavaScript: under emulation a wrapping stream
   * is six times slower. Such a port cannot be reclaimed; it is reopened.
   */
  #openHttp(ports: Ports): void {
    const { http, httpChannel } = ports
    if (httpChannel === null) return
    ports.httpChannel = null
    const session = this.#session
    http.on('close', () => {
      if (this.#ports === ports && ports.http === http && this.#session === session)
        session?.rpc?.end({ reason: 'http_failed', message: 'the stream on caisson.http ended' })
    })
    // Data after the preamble goes to the receiver before this turn ends.
    const early: Buffer[] = []
    httpChannel.attach((chunk) => early.push(chunk))
    queueMicrotask(() => {
      httpChannel.release()
      if (http.destroyed) return
      if (early.length > 0) http.unshift(Buffer.concat(early))
      this.#options.onHttp(http)
    })
  }

  #onSessionEnd(session: GuestSession, end: { reason: string; message: string }): void {
    this.#session = null
    this.#silenceTimer?.cancel()
    this.#silenceTimer = null
    this.#httpSeen = null
    const ports = this.#ports
    const hadHttp = ports !== null && ports.httpChannel === null
    if (hadHttp) ports.http.destroy()
    this.#options.onDown(session, end)
    if (this.#closed || ports === null) return
    // After the answer to the host's next preamble, which waits for nothing here.
    if (hadHttp) setImmediate(() => void this.#reopenHttp(ports))
    // After a replacement the host's preamble has arrived or is on its way.
    const delayMs = end.reason === 'session_replaced' ? this.#timings.requestIntervalMs : 1
    this.#requestAfter(delayMs)
  }

  #requestAfter(delayMs: number): void {
    if (this.#requestTimer !== null) clearTimeout(this.#requestTimer)
    this.#requestTimer = setTimeout(() => this.#sessionRequest(), delayMs)
  }
}
