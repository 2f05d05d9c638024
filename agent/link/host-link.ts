/**
 * The agent's link to its host. Sessions come and go; events are never lost or doubled, questions are repeated until
 * answered, and each run's end is reported once. Buffers are bounded, so a slow host makes the agent wait.
 */
import type { AgentRunRequest, AgentRunResult } from '#specs/protocol/agent-vm.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import { protocolSha256 } from '#specs/protocol/digest.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { AgentEvent, Delta } from '#specs/protocol/event.ts'
import type { HostToolCall, HostToolResult } from '#specs/protocol/extension.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import {
  agentRun,
  approvalRequest,
  checkpointMake,
  hookRun,
  type RequestMethod,
  type sessionStart,
  taskComplete,
  toolCall,
} from '#specs/protocol/methods.ts'
import type { Handlers, ParamsInput, ParamsOf, Peer, ResultOf, RpcFailure } from '#specs/protocol/peer.ts'
import type { Completion } from '#specs/protocol/task.ts'
import { DeltaOutbox } from './delta-outbox.ts'
import { EventOutbox } from './event-outbox.ts'
import { type GuestSession, type GuestTimings, HostSessions } from './host-sessions.ts'
import { GuestHttp } from './http.ts'
import { type LogEntry, LogOutbox } from './log-outbox.ts'
import type { OpenPort } from './port.ts'

/** Handlers for the host's requests; the link itself handles `session/start`, `agent/ping` and `event/ack`. */
export type AgentHandlers = Omit<Handlers<'guest'>, 'session/start' | 'agent/ping' | 'event/ack'>

/** The agent's description, sent at the start of each session. */
export type AgentDescription = Pick<ResultOf<typeof sessionStart>, 'tools' | 'restarts' | 'lastExit'>

interface ServeHostOptions {
  openRpc: OpenPort
  openHttp: OpenPort
  handlers: AgentHandlers
  /** 32 hex digits, random, one per process. */
  processId: string
  describe: () => AgentDescription
  /** The host has been silent for a while, or speaks again. */
  onQuiet?: (quiet: boolean) => void
  timings?: Partial<GuestTimings>
}

/** One run's requests to the host. Each is repeated in each session until it is answered. */
export interface HostRequests {
  /** Waits until a person decides. */
  requestApproval(request: Omit<ApprovalRequest, 'runId'>, signal: AbortSignal): Promise<ApprovalDecision>
  /** Asks the host's hooks. */
  runHook(request: Omit<HookRequest, 'runId'>, signal: AbortSignal): Promise<HookDecision>
  /** Calls a tool of the host application. */
  callTool(call: Omit<HostToolCall, 'runId'>, signal: AbortSignal): Promise<HostToolResult>
}

export interface HostLink {
  /** HTTP/2 streams to the host. */
  readonly http: GuestHttp
  /** The submitted run whose completion is not acknowledged yet. */
  readonly runId: string | null
  /** Accepts the run's events from here on, until it is completed. Called before its first event. */
  beginRun(runId: string): void
  /**
   * Queues an event; resolves when it is buffered, and waits while the buffer is full. Throws when the event breaks
   * its schema. Drops events of a run that is not active.
   */
  emitEvent(runId: string, agentPath: string, event: AgentEvent): Promise<void>
  /** Sends text that may be lost. */
  emitDelta(runId: string, agentPath: string, delta: Delta): void
  /** Asks until the host answers or `signal` aborts. Failures: `cancelled`, `rejected`, `bad_params`, `closed`. */
  requestApproval(
    request: ApprovalRequest,
    signal: AbortSignal,
  ): Promise<Result<ApprovalDecision, RpcFailure>>
  /** Asks the host's hooks; repeats and fails as `requestApproval` does. */
  runHook(request: HookRequest, signal: AbortSignal): Promise<Result<HookDecision, RpcFailure>>
  /** Calls a tool of the host application; repeats and fails as `requestApproval` does. */
  callTool(call: HostToolCall, signal: AbortSignal): Promise<Result<HostToolResult, RpcFailure>>
  /** Has a sub-agent carried out in a VM of its own; repeats and fails as `requestApproval` does. */
  runAgent(request: AgentRunRequest, signal: AbortSignal): Promise<Result<AgentRunResult, RpcFailure>>
  /**
   * Asks for a checkpoint once the host has all events of the run; repeats and fails as `requestApproval` does.
   */
  makeCheckpoint(
    request: ParamsInput<typeof checkpointMake>,
  ): Promise<Result<ResultOf<typeof checkpointMake>, RpcFailure>>
  /** Reports the end of the run once the host has all its events; resolves when the host has acknowledged it. */
  complete(completion: Completion): Promise<Result<void, RpcFailure>>
  /** Sends one log line; dropped when too many wait. */
  log(entry: LogEntry): void
  close(): void
}

/** Serves the host over the two ports until `close`; opens them immediately and reopens them when they end. */
export function serveHost(options: ServeHostOptions): HostLink {
  return new Link(options)
}

class Link implements HostLink {
  readonly http = new GuestHttp()
  readonly #options: ServeHostOptions
  readonly #sessions: HostSessions
  readonly #deltas = new DeltaOutbox()
  readonly #logs = new LogOutbox()
  readonly #waiting = new Set<() => void>()
  #events: EventOutbox | null = null
  #peer: Peer | null = null
  #closed = false
  #processId: string

  constructor(options: ServeHostOptions) {
    this.#options = options
    this.#processId = options.processId
    this.#sessions = new HostSessions({
      openRpc: options.openRpc,
      openHttp: options.openHttp,
      handlers: (session) => this.#handlers(session),
      onHttp: (stream) => this.http.connect(stream),
      onDown: (_session, end) => this.#onDown(end),
      onTrouble: (message) => this.log({ level: 'warn', message, fields: '{}' }),
      ...(options.onQuiet === undefined ? {} : { onQuiet: options.onQuiet }),
      ...(options.timings === undefined ? {} : { timings: options.timings }),
    })
  }

  get runId(): string | null {
    return this.#events?.runId ?? null
  }

  beginRun(runId: string): void {
    this.#events = new EventOutbox(runId)
    if (this.#peer !== null) this.#events.connect(this.#peer, 0)
  }

  async emitEvent(runId: string, agentPath: string, event: AgentEvent): Promise<void> {
    if (this.#events?.runId !== runId) return
    this.#deltas.flush()
    await this.#events.emit(agentPath, event)
  }

  emitDelta(runId: string, agentPath: string, delta: Delta): void {
    this.#deltas.add(runId, agentPath, delta)
  }

  requestApproval(
    request: ApprovalRequest,
    signal: AbortSignal,
  ): Promise<Result<ApprovalDecision, RpcFailure>> {
    this.#deltas.flush()
    return this.#requestUntilAnswered(approvalRequest, request, signal)
  }

  runHook(request: HookRequest, signal: AbortSignal): Promise<Result<HookDecision, RpcFailure>> {
    this.#deltas.flush()
    return this.#requestUntilAnswered(hookRun, request, signal)
  }

  callTool(call: HostToolCall, signal: AbortSignal): Promise<Result<HostToolResult, RpcFailure>> {
    this.#deltas.flush()
    return this.#requestUntilAnswered(toolCall, call, signal)
  }

  runAgent(request: AgentRunRequest, signal: AbortSignal): Promise<Result<AgentRunResult, RpcFailure>> {
    this.#deltas.flush()
    return this.#requestUntilAnswered(agentRun, request, signal)
  }

  async makeCheckpoint(
    request: ParamsInput<typeof checkpointMake>,
  ): Promise<Result<ResultOf<typeof checkpointMake>, RpcFailure>> {
    this.#deltas.flush()
    await this.#events?.drained()
    return await this.#requestUntilAnswered(checkpointMake, request)
  }

  async complete(completion: Completion): Promise<Result<void, RpcFailure>> {
    const events = this.#events
    if (events === null || events.runId !== completion.runId) {
      return { ok: false, error: { code: 'rejected', message: 'this run is not under way' } }
    }
    this.#deltas.flush()
    await events.drained()
    const answer = await this.#requestUntilAnswered(taskComplete, completion)
    if (this.#events === events) {
      events.close()
      this.#events = null
    }
    return answer.ok ? { ok: true, value: undefined } : answer
  }

  log(entry: LogEntry): void {
    this.#logs.add(entry)
  }

  close(): void {
    this.#closed = true
    this.#sessions.close()
    this.#events?.close()
    this.http.close()
    this.#wakeAll()
  }

  // ---- sessions -------------------------------------------------------------------------------------------

  #handlers(session: GuestSession): Handlers<'guest'> {
    let started = false
    const whenStarted = <A extends unknown[], R>(handler: (...args: A) => Promise<R>) => {
      return async (...args: A) => {
        if (!started)
          return {
            ok: false,
            error: { code: 'invalidRequest', message: 'session/start comes first' },
          } as const
        this.#sessions.heard()
        return await handler(...args)
      }
    }
    const { handlers } = this.#options
    return {
      'session/start': async (params) => {
        if (started || params.session !== session.id) {
          const message = started ? 'the session has started' : 'another session was opened on this port'
          return { ok: false, error: { code: 'invalidRequest', message } }
        }
        started = true
        this.#sessions.started(session, params.heartbeatIntervalMs)
        if (params.cloned === true) this.#processId = params.session
        // After the answer is queued: the host accepts nothing before it.
        setImmediate(() => this.#onUp(session, params.resume))
        return { ok: true, value: this.#describe() }
      },
      'agent/ping': whenStarted(async ({ count }) => ({ ok: true, value: { count } }) as const),
      'workspace/open': whenStarted(handlers['workspace/open']),
      'workspace/reset': whenStarted(handlers['workspace/reset']),
      'workspace/collect': whenStarted(handlers['workspace/collect']),
      'workspace/look': whenStarted(handlers['workspace/look']),
      'task/submit': whenStarted(handlers['task/submit']),
      'task/cancel': whenStarted(handlers['task/cancel']),
      'task/cancelAgent': whenStarted(handlers['task/cancelAgent']),
      'task/steer': whenStarted(handlers['task/steer']),
      'task/pause': whenStarted(handlers['task/pause']),
      'task/hold': whenStarted(handlers['task/hold']),
      'task/checkpoint': whenStarted(handlers['task/checkpoint']),
      'shell/open': whenStarted(handlers['shell/open']),
      'forward/open': whenStarted(handlers['forward/open']),
      'event/ack': ({ runId, n }) => {
        if (this.#events?.runId === runId) this.#events.acknowledge(n)
      },
    }
  }

  #describe(): ResultOf<typeof sessionStart> {
    const runId = this.runId
    const { describe } = this.#options
    return { protocolSha256, processId: this.#processId, ...describe(), ...(runId === null ? {} : { runId }) }
  }

  #onUp(session: GuestSession, resume: ParamsOf<typeof sessionStart>['resume']): void {
    const peer = session.rpc?.peer
    if (peer === undefined || !this.#sessions.isCurrent(session)) return
    this.#peer = peer
    // A host that does not know the run rejects its events.
    if (this.#events !== null && resume?.runId === this.#events.runId) this.#events.connect(peer, resume.n)
    this.#deltas.connect(peer)
    this.#logs.connect(peer)
    this.#wakeAll()
  }

  #onDown(end: { reason: string; message: string }): void {
    this.#peer = null
    this.#events?.disconnect()
    this.#deltas.disconnect()
    this.#logs.disconnect()
    this.http.disconnect(end.message)
  }

  /** Asks again in each session; the host recognizes the request by its ids. */
  async #requestUntilAnswered<M extends RequestMethod>(
    method: M,
    params: ParamsInput<M>,
    signal?: AbortSignal,
  ): Promise<Result<ResultOf<M>, RpcFailure>> {
    for (;;) {
      const peer = await this.#waitForPeer(signal)
      if (peer === null) {
        const code = this.#closed ? 'closed' : 'cancelled'
        return { ok: false, error: { code, message: `${method.name} was ${code} while no session was up` } }
      }
      const answer = await peer.request(method, params, signal === undefined ? {} : { signal })
      if (answer.ok || answer.error.code !== 'session_ended') return answer
      if (this.#peer === peer) this.#peer = null
    }
  }

  #waitForPeer(signal?: AbortSignal): Promise<Peer | null> {
    return new Promise((resolve) => {
      const look = (): void => {
        const gone = this.#closed || signal?.aborted === true
        if (!gone && this.#peer === null) return
        this.#waiting.delete(look)
        signal?.removeEventListener('abort', look)
        resolve(gone ? null : this.#peer)
      }
      this.#waiting.add(look)
      signal?.addEventListener('abort', look, { once: true })
      look()
    })
  }

  #wakeAll(): void {
    for (const look of [...this.#waiting]) look()
  }
}
