/**
 * The host's link to the agent in one VM. Requests survive lost sessions; events, approvals and the completion arrive
 * once and in order. Owns neither ports nor journal. No guest behavior makes it throw, hang or grow: an error ends the
 * run (`agent_lost`) or the link, with its reason.
 */
import type { Duplex } from 'node:stream'
import { AwakeLimit } from '#specs/node/awake-timer.ts'
import type { RpcSessionEnd } from '#specs/node/rpc-session.ts'
import type { Result } from '#specs/protocol/error.ts'
import {
  type deltaEmit,
  eventAck,
  type logWrite,
  type RequestMethod,
  taskSubmit,
} from '#specs/protocol/methods.ts'
import type {
  HandlerFailure,
  Handlers,
  ParamsInput,
  ParamsOf,
  RequestOptions,
  ResultOf,
  RpcFailure,
} from '#specs/protocol/peer.ts'
import type { Completion, Task } from '#specs/protocol/task.ts'
import { createEventIntake, type EventIntake, type EventSink, type NumberedEvent } from './event-intake.ts'
import { GuestRequests, type RepeatableRequests, type RequestHandlers } from './guest-requests.ts'
import type { ProbeVm } from './guest-timer.ts'
import type { StreamHandler } from './http-server.ts'
import { type LinkEnd, type LinkTimings, type LiveSession, type SessionInfo, Sessions } from './sessions.ts'

export type { LinkEnd, SessionInfo } from './sessions.ts'

/** The host's handlers for the agent's messages. No handler may wait for the guest. */
export interface LinkHandlers extends RequestHandlers {
  /** Receives each event of the run once and in order, the next after this one is settled. Throwing ends the link. */
  onEvent: EventSink
  /**
   * Checks each event once and in order, before it is accepted. Returns the problem, phrased to follow "the guest
   * sent", or null. A problem ends the session, and further events of the run are not trusted.
   */
  checkEvent?: (event: NumberedEvent) => string | null
  onDelta: (deltas: ParamsOf<typeof deltaEmit>) => void
  /** Called once per run, after all its events have been handled. */
  completeTask: (completion: Completion) => Promise<Result<Record<string, never>, HandlerFailure>>
  onLog: (entry: ParamsOf<typeof logWrite>) => void
}

export interface AgentLinkOptions {
  /** The ports; the caller closes them. */
  rpc: Duplex
  http: Duplex
  handlers: LinkHandlers
  onStream: StreamHandler
  onSessionStart?: (session: { number: number; resumed: boolean; info: SessionInfo }) => void
  onSessionEnd?: (session: { number: number; reason: string; message: string }) => void
  /** The agent process of the run is gone, or no longer knows the run. */
  onAgentLost?: (lost: { runId: string; message: string }) => void
  /** An event was invalid ({@link LinkHandlers.checkEvent}); the run must still be cancelled. */
  onBrokenClaim?: (broken: { runId: string; message: string }) => void
  /** A host handler threw. */
  onBug?: (method: string, cause: unknown) => void
  timings?: Partial<LinkTimings>
  /** Whether the VM was restored from shared state, such as a template. */
  cloned?: boolean
  /** Tells whether the VM's process runs: while it does not answer, silence of the guest does not count. */
  probe?: ProbeVm
  /** Draws 32 random hex digits; a parameter for tests. */
  drawSession?: () => string
}

/** Requests that only the run's agent process can answer. */
const ofTheRun = new Set([
  'task/submit',
  'task/cancel',
  'task/cancelAgent',
  'task/steer',
  'task/pause',
  'task/hold',
  'task/checkpoint',
])
/** Idempotent requests, which are repeated in the next session. */
const resent = new Set([...ofTheRun, 'workspace/open', 'workspace/collect'])

/** The answer to a request for an inactive run. */
const unknownRun = {
  ok: false,
  error: { code: 'notFound', message: 'this run is not active' },
} as const satisfies { ok: false; error: HandlerFailure }

interface Run {
  intake: EventIntake
  /** The agent process that has the task; null before. */
  processId: string | null
  accepted: boolean
  completion: Promise<Result<Record<string, never>, HandlerFailure>> | null
  over: boolean
  lost: RpcFailure | null
}

export class AgentLink implements AsyncDisposable {
  readonly #options: AgentLinkOptions
  readonly #sessions: Sessions
  readonly #requests: GuestRequests
  readonly #waiting = new Set<() => void>()
  #run: Run | null = null
  #ackTimer: NodeJS.Timeout | null = null
  #end: LinkEnd | null = null
  #live: LiveSession | null = null
  #settleClosed: (end: LinkEnd) => void = () => {}
  /** Settles once, when the link has ended; never rejects. */
  readonly closed: Promise<LinkEnd>

  constructor(options: AgentLinkOptions) {
    this.#options = options
    this.closed = new Promise((resolve) => {
      this.#settleClosed = resolve
    })
    this.#requests = new GuestRequests(options.handlers)
    this.#sessions = new Sessions({
      rpc: options.rpc,
      http: options.http,
      handlers: this.#handlers(),
      onStream: options.onStream,
      resume: () => this.#resume(),
      onUp: (session) => this.#onUp(session),
      onDown: (number, end) => this.#onDown(number, end),
      onEnd: (end) => this.#onEnd(end),
      ...(options.onBug === undefined ? {} : { onBug: options.onBug }),
      ...(options.timings === undefined ? {} : { timings: options.timings }),
      ...(options.cloned === undefined ? {} : { cloned: options.cloned }),
      ...(options.probe === undefined ? {} : { probe: options.probe }),
      ...(options.drawSession === undefined ? {} : { drawSession: options.drawSession }),
    })
  }

  /** The agent's description of itself in the current session; null without one. */
  get session(): SessionInfo | null {
    return this.#live?.info ?? null
  }

  /** Waits for a session. */
  async ready(options: RequestOptions = {}): Promise<Result<SessionInfo, RpcFailure>> {
    using limit = new AwakeLimit(options.timeoutMs)
    const live = await this.#waitForSession(options.signal, limit)
    return live.ok ? { ok: true, value: live.value.info } : live
  }

  /**
   * Sends a request, after waiting for a session if necessary. An idempotent request is repeated in the next session
   * until its deadline or signal; others fail with `session_ended`.
   */
  async request<M extends RequestMethod>(
    method: M,
    params: ParamsInput<M>,
    options: RequestOptions = {},
  ): Promise<Result<ResultOf<M>, RpcFailure>> {
    using limit = new AwakeLimit(options.timeoutMs)
    const signal = AbortSignal.any([limit.signal, ...(options.signal === undefined ? [] : [options.signal])])
    let last: LiveSession | null = null
    for (;;) {
      const live = await this.#waitForSession(options.signal, limit, last)
      if (!live.ok) return live
      last = live.value
      const run = ofTheRun.has(method.name) ? this.#run : null
      if (run?.lost) return { ok: false, error: run.lost }
      if (run !== null && method.name === taskSubmit.name) run.processId ??= live.value.info.processId
      const answer = await live.value.peer.request(method, params, { signal })
      if (!answer.ok && answer.error.code === 'cancelled' && limit.isOver && !options.signal?.aborted) {
        const message = `${method.name} was not answered within ${options.timeoutMs} ms`
        return { ok: false, error: { code: 'timed_out', message } }
      }
      const again = !answer.ok && answer.error.code === 'session_ended' && resent.has(method.name)
      if (!again) return answer
    }
  }

  /**
   * Submits a task. Its run is the run of this link until its completion, its loss or {@link forgetRun}. Throws when
   * another run is active.
   */
  async submitTask(
    task: Task,
    options: RequestOptions = {},
  ): Promise<Result<Record<string, never>, RpcFailure>> {
    if (this.#run !== null && !this.#run.over && this.#run.intake.runId !== task.runId) {
      throw new Error(`run ${this.#run.intake.runId} is active on this link`)
    }
    if (this.#run?.intake.runId !== task.runId) this.#run = this.#newRun(task.runId)
    const run = this.#run
    const answer = await this.request(taskSubmit, { task }, options)
    if (answer.ok) run.accepted = true
    else if (answer.error.code === 'rejected' || answer.error.code === 'bad_params') finish(run)
    return answer
  }

  /** Ignores the rest of the run; later messages about it are only acknowledged. */
  forgetRun(): void {
    if (this.#run !== null) finish(this.#run)
    this.#requests.clear()
  }

  /** While the VM is paused or saved, silence does not count. After a restore, call {@link restartSession}. */
  setFrozen(frozen: boolean): void {
    this.#sessions.setFrozen(frozen)
  }

  /** Ends the session and releases the ports before the VM is saved. Expects nothing until {@link attachPorts}. */
  async park(): Promise<void> {
    await this.#sessions.park()
  }

  /** Continues the same VM over new ports, in a new session. */
  attachPorts(rpc: Duplex, http: Duplex): void {
    this.#sessions.attachPorts(rpc, http)
  }

  /** Starts a new session immediately, as after a resume of the VM. */
  restartSession(message: string): void {
    this.#sessions.restart('restarted', message)
  }

  /** Ends the link. */
  close(message = 'the host closed the link'): void {
    this.#sessions.end({ reason: 'closed', message })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
    await this.closed
  }

  // ---- messages from the guest ----------------------------------------------------------------------------

  #handlers(): Handlers<'host'> {
    const { handlers } = this.#options
    return {
      'event/emit': ({ runId, events }) => {
        const run = this.#runOf(runId)
        if (run === null) {
          this.#violate(`events of a run that it does not have (${runId})`)
          return
        }
        const taken = run.intake.take(events)
        if ('done' in taken) return taken.done.then(() => this.#ackSoon(run))
        const { fault, message } = taken
        if (fault === 'too_many') this.#sessions.end({ reason: 'run_limit', message })
        else this.#violate(message)
        if (fault === 'claim') this.#disbelieve(run, message)
      },
      'delta/emit': (deltas) => {
        if (this.#runOf(deltas.runId)?.over === false) handlers.onDelta(deltas)
      },
      'approval/request': (request, { signal }) => this.#answer(this.#requests.approvals, request, signal),
      'hook/run': (request, { signal }) => this.#answer(this.#requests.hooks, request, signal),
      'tool/call': (call, { signal }) => this.#answer(this.#requests.calls, call, signal),
      'agent/run': (request, { signal }) => this.#answer(this.#requests.agents, request, signal),
      'checkpoint/make': (request, { signal }) => this.#answer(this.#requests.checkpoints, request, signal),
      'task/complete': async (completion) => {
        const run = this.#runOf(completion.runId)
        if (run === null) return unknownRun
        run.completion ??= this.#complete(run, completion)
        return await run.completion
      },
      'log/write': (entry) => handlers.onLog(entry),
    }
  }

  async #answer<Q extends { runId: string }, A>(
    requests: RepeatableRequests<Q, A>,
    request: Q,
    signal: AbortSignal,
  ): Promise<Result<A, HandlerFailure>> {
    return this.#runOf(request.runId)?.over === false ? await requests.ask(request, signal) : unknownRun
  }

  async #complete(run: Run, completion: Completion): Promise<Result<Record<string, never>, HandlerFailure>> {
    // The guest completes only after its events are acknowledged; the empty batch waits for the last handler here too.
    const last = run.intake.take([])
    if ('done' in last) await last.done
    if (run.over) return { ok: true, value: {} }
    const answer = await this.#options.handlers.completeTask(completion)
    if (answer.ok) this.forgetRun()
    else run.completion = null
    return answer
  }

  #runOf(runId: string): Run | null {
    const run = this.#run
    return run !== null && run.intake.runId === runId ? run : null
  }

  #violate(message: string): void {
    this.#sessions.restart('violation', `the guest sent ${message}`)
  }

  /** A new session would repeat the invalid event: acknowledge the rest of the run without handling it. */
  #disbelieve(run: Run, message: string): void {
    this.forgetRun()
    this.#options.onBrokenClaim?.({ runId: run.intake.runId, message: `the guest sent ${message}` })
  }

  /** Sends one acknowledgement for all events of one event-loop turn. */
  #ackSoon(run: Run): void {
    this.#ackTimer ??= setTimeout(() => {
      this.#ackTimer = null
      void this.#live?.peer.notify(eventAck, { runId: run.intake.runId, n: run.intake.handled })
    }, 2)
  }

  // ---- sessions -------------------------------------------------------------------------------------------

  #newRun(runId: string): Run {
    this.#requests.clear()
    const onFailure = (cause: unknown): void => {
      this.#options.onBug?.('event/emit', cause)
      const message = 'an event of the agent could not be recorded on the host; see its log'
      this.#sessions.end({ reason: 'host_failed', message })
    }
    const { onEvent, checkEvent } = this.#options.handlers
    const intake = createEventIntake(
      runId,
      onEvent,
      onFailure,
      checkEvent === undefined ? {} : { check: checkEvent },
    )
    return { intake, processId: null, accepted: false, completion: null, over: false, lost: null }
  }

  #resume(): { runId: string; n: number } | undefined {
    const run = this.#run
    if (run === null || run.completion !== null) return undefined
    return { runId: run.intake.runId, n: run.intake.received }
  }

  #onUp(session: LiveSession): void {
    this.#live = session
    this.#checkRun(session.info)
    this.#options.onSessionStart?.({ number: session.number, resumed: session.resumed, info: session.info })
    for (const wake of [...this.#waiting]) wake()
  }

  /** A run continues only in its own process: another process cannot repeat its work. */
  #checkRun(info: SessionInfo): void {
    const run = this.#run
    if (run === null || run.over || run.processId === null) return
    const replaced = run.processId !== info.processId
    const forgotten = run.accepted && run.completion === null && info.runId !== run.intake.runId
    if (!replaced && !forgotten) return
    const how = info.lastExit === undefined ? '' : ` (${info.lastExit})`
    const message = replaced
      ? `the agent process that had the run ended${how}; what it had not reported is lost`
      : 'the agent no longer knows the run'
    run.lost = { code: 'agent_lost', message }
    this.forgetRun()
    this.#options.onAgentLost?.({ runId: run.intake.runId, message })
  }

  #onDown(number: number, end: RpcSessionEnd): void {
    this.#live = null
    this.#options.onSessionEnd?.({ number, reason: end.reason, message: end.message })
  }

  #onEnd(end: LinkEnd): void {
    this.#end = end
    this.#live = null
    if (this.#ackTimer !== null) clearTimeout(this.#ackTimer)
    this.#requests.clear()
    for (const wake of [...this.#waiting]) wake()
    this.#settleClosed(end)
  }

  /** Waits for a session other than `last`, which may have failed a request before its end is known here. */
  #waitForSession(
    signal: AbortSignal | undefined,
    limit: AwakeLimit,
    last: LiveSession | null = null,
  ): Promise<Result<LiveSession, RpcFailure>> {
    return new Promise((resolve) => {
      const settle = (result: Result<LiveSession, RpcFailure>): void => {
        this.#waiting.delete(look)
        for (const one of [signal, limit.signal]) one?.removeEventListener('abort', look)
        resolve(result)
      }
      const look = (): void => {
        if (this.#end !== null) {
          settle({ ok: false, error: { code: 'closed', message: this.#end.message } })
        } else if (signal?.aborted) {
          settle({
            ok: false,
            error: { code: 'cancelled', message: 'cancelled while waiting for a session' },
          })
        } else if (this.#live !== null && this.#live !== last) settle({ ok: true, value: this.#live })
        else if (limit.isOver) {
          const message = 'no session with the agent started in time'
          settle({ ok: false, error: { code: 'timed_out', message } })
        }
      }
      this.#waiting.add(look)
      for (const one of [signal, limit.signal]) one?.addEventListener('abort', look, { once: true })
      look()
    })
  }
}

/** Later messages of the run are acknowledged and ignored. */
function finish(run: Run): void {
  run.over = true
  run.intake.close()
}

/** Opens the link over the two ports of a VM. It starts a session immediately and keeps one until it is closed. */
export function openAgentLink(options: AgentLinkOptions): AgentLink {
  return new AgentLink(options)
}
