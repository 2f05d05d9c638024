/**
 * A run of a fleet, wherever it is, by the service of this user: its events, and what a person does with it. Reads events
 * only for who watches. What the service says is from other hosts, and whoever shows it sanitizes it.
 */
import { CaissonError, errorMessage, requireText } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { ServiceError, type ServiceEvent } from '../../client/index.ts'
import type { AnswerResult, ApprovalAnswer } from '../approvals/queue.ts'
import type { WatchEnd } from '../control/run-client.ts'
import {
  type AnswerActor,
  type CancelAgentOptions,
  type CancelOptions,
  type RunActor,
  type RunResult,
  readActor,
  readAnswerActor,
  readCancel,
  readCancelAgent,
  readSteer,
  readSubAgentPath,
  resultOf,
  type SteerOptions,
} from '../control/run-handle.ts'
import { Feed, type FeedItem, type WatchOptions } from '../journal/run-feed.ts'
import type { FollowedRun } from './commands/follow.ts'
import type { SocketClient } from './socket-client.ts'

/** Time without the service after which the person learns of it. */
const silentMs = 3_000
const pageMax = 1_000
const answerReasons = ['decided', 'unknown', 'not_offered', 'question_changed'] as const

interface OpenQuestion extends PromiseWithResolvers<void> {
  /** Of what the person sees. Undefined: the service did not say. */
  readonly digest: string | undefined
}

export class FleetRun implements FollowedRun {
  readonly id: string
  /** Receives a line where the service does not answer, and where it answers again. */
  say: (line: string) => void = () => undefined
  readonly #client: SocketClient
  readonly #feed = new Feed()
  readonly #open = new Map<string, OpenQuestion>()
  readonly #left = new AbortController()
  #reading: Promise<WatchEnd> | undefined
  #state = initialRunState
  #head = ''
  #next = 1

  constructor(client: SocketClient, id: string) {
    this.#client = client
    this.id = id
  }

  /** As its events so far say. */
  get state(): RunState {
    return this.#state
  }

  /** Resolves when nothing more will arrive; never rejects. A run that sleeps has not ended. */
  get ended(): Promise<WatchEnd> {
    this.#reading ??= this.#read()
    return this.#reading
  }

  watch(options?: WatchOptions): AsyncIterableIterator<FeedItem> {
    void this.ended
    return this.#feed.watch(options)
  }

  hasPendingApproval(approvalId: string): boolean {
    return this.#open.has(approvalId)
  }

  get pendingCount(): number {
    return this.#open.size
  }

  async whenResolved(approvalId: string): Promise<void> {
    await this.#open.get(approvalId)?.promise
  }

  /** Counts for the question that was shown alone. */
  async answer(approval: string, answer: ApprovalAnswer, actor?: AnswerActor): Promise<AnswerResult> {
    requireText('approvalId', approval)
    const { by } = readAnswerActor(actor)
    const digest = answer.digest ?? this.#open.get(approval)?.digest
    const body = { ...answer, by, ...(digest === undefined ? {} : { digest }) }
    try {
      await this.#client.call('answerApproval', { params: { run: this.id, approval }, body })
      return { taken: true }
    } catch (error) {
      const { cause, message } = CaissonError.from(error)
      if (!(cause instanceof ServiceError)) return { taken: false, reason: 'connection_lost', message }
      const reason = answerReasons.find((known) => known === cause.code)
      const said = reason === undefined ? message : cause.problem.detail
      return { taken: false, reason: reason ?? 'connection_lost', message: said }
    }
  }

  async revokeAnswer(approval: string, actor?: RunActor): Promise<void> {
    requireText('approvalId', approval)
    await this.#client.call('revokeAnswer', { params: { run: this.id, approval }, query: readActor(actor) })
  }

  async result(): Promise<RunResult> {
    const end = await this.ended
    if (end.kind === 'ended') return resultOf(this.id, this.#state, end.journalHead)
    throw new CaissonError('connection_lost', `${this.id}: ${end.kind === 'lost' ? end.message : end.kind}`)
  }

  async steer(text: string, options?: SteerOptions): Promise<void> {
    requireText('the message', text)
    const body = { text, ...readSteer(options) }
    await this.#client.call('sendMessage', { params: { run: this.id }, body })
  }

  async cancelAgent(agentPath: string, options?: CancelAgentOptions): Promise<void> {
    const body = { agent: readSubAgentPath(agentPath), ...readCancelAgent(options) }
    await this.#client.call('cancelRun', { params: { run: this.id }, body })
  }

  async pause(actor?: RunActor): Promise<void> {
    await this.#client.call('pauseRun', { params: { run: this.id }, body: readActor(actor) })
  }

  async resume(actor?: RunActor): Promise<void> {
    await this.#client.call('unpauseRun', { params: { run: this.id }, body: readActor(actor) })
  }

  async cancel(options?: CancelOptions): Promise<void> {
    await this.#client.call('cancelRun', { params: { run: this.id }, body: readCancel(options) })
  }

  /** Stops watching; the run continues. */
  async detach(): Promise<void> {
    this.#left.abort()
  }

  async #read(): Promise<WatchEnd> {
    const { signal } = this.#left
    try {
      await this.#readPast()
      if (this.#state.end === null)
        for await (const item of this.#follow(signal)) {
          if (item.source !== 'delta') await this.#noteLive(item)
          this.#feed.push(item)
        }
      if (this.#state.end !== null) return { kind: 'ended', end: this.#state.end, journalHead: this.#head }
      if (signal.aborted) return { kind: 'left' }
      return { kind: 'lost', message: `the service shows no more of ${this.id}` }
    } catch (error) {
      if (signal.aborted) return { kind: 'left' }
      return { kind: 'lost', message: errorMessage(error) }
    } finally {
      for (const id of [...this.#open.keys()]) this.#settle(id)
      this.#feed.end()
    }
  }

  /** All at once, so that a question that was decided long ago is not put. */
  async #readPast(): Promise<void> {
    const past: JournalEvent[] = []
    const params = { run: this.id }
    for (;;) {
      const query = { from: String(this.#next), limit: String(pageMax) }
      const { events, next } = await this.#client.call('listEvents', { params, query })
      for (const event of events) this.#note(event)
      past.push(...events)
      this.#next = next
      if (events.length === 0 || this.#state.end !== null) break
    }
    if (this.#state.end === null) {
      const { approvals } = await this.#client.call('listApprovals', { query: params })
      for (const { approval, digest } of approvals) this.#ask(approval.approvalId, digest)
    }
    for (const event of past) this.#feed.push(event)
  }

  async *#follow(signal: AbortSignal): AsyncGenerator<ServiceEvent, void> {
    let silence: NodeJS.Timeout | undefined
    let isSaid = false
    const onConnection = (state: 'open' | 'broken'): void => {
      if (state === 'broken') {
        silence ??= setTimeout(() => {
          isSaid = true
          this.say(`The service does not answer; the run continues. It is tried again until you leave.`)
        }, silentMs)
        return
      }
      clearTimeout(silence)
      silence = undefined
      if (isSaid) this.say('The service answers again.')
      isSaid = false
    }
    try {
      yield* this.#client.events(this.id, { from: this.#next, signal, onConnection })
    } finally {
      clearTimeout(silence)
    }
  }

  /** A rule may have decided the question by now; then the next event says so. */
  async #noteLive(item: JournalEvent): Promise<void> {
    this.#note(item)
    if (item.source !== 'host' || item.event.type !== 'approval-request') return
    const { approvalId: approval } = item.event.request
    if (this.#open.has(approval)) return
    try {
      const params = { run: this.id, approval }
      this.#ask(approval, (await this.#client.call('getApproval', { params })).digest)
    } catch (error) {
      const { cause } = CaissonError.from(error)
      // Whether it waits is not known: the answer then tells.
      if (!(cause instanceof ServiceError) || cause.status >= 500) this.#ask(approval, undefined)
    }
  }

  #note(item: JournalEvent): void {
    this.#state = reduceRun(this.#state, item)
    this.#head = item.hash
    if (item.source === 'host' && item.event.type === 'approval-decision') this.#settle(item.event.approvalId)
  }

  #ask(approvalId: string, digest: string | undefined): void {
    if (!this.#open.has(approvalId)) this.#open.set(approvalId, { ...Promise.withResolvers<void>(), digest })
  }

  #settle(approvalId: string): void {
    this.#open.get(approvalId)?.resolve()
    this.#open.delete(approvalId)
  }
}
