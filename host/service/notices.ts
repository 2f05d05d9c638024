/**
 * Tells people of questions that wait, and programs of the ends of runs: each receiver once for each. It looks at the list
 * of questions, which has those of every process of the user, and at the runs of the service, and keeps in its outbox what
 * was said.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import type { Host, RunApproval, RunSummary, SendResult } from '../index.ts'
import type { MetricValues } from './metric-values.ts'
import { Outbox, type OutboxEntry, outboxMaxEntries } from './outbox.ts'
import { ownerField } from './ownership.ts'

const pollMs = 5_000
/** For what is being sent when the service ends. */
const closeMs = 2_000

/** Who hears of questions, or of ends. */
export interface Receiver {
  readonly kind: 'webhook' | 'browser' | 'desktop'
  /** Stable over restarts. */
  readonly id: string
  /** Name of the key or subject whose runs it hears of. Absent: of all. */
  readonly owner?: string
  /** Forgets the receiver, which wants no more. Absent: it gets nothing until the service starts again. */
  drop?(): Promise<void>
  /** Absent: it hears of no questions. @param since when the delivery was first due, ms since 1970 */
  send?(question: RunApproval, since: number, signal: AbortSignal): Promise<SendResult>
  /** The same for a run that has ended. Absent: it hears of no ends. */
  sendEnd?(run: RunSummary, since: number, signal: AbortSignal): Promise<SendResult>
}

export interface NoticesOptions {
  readonly host: { readonly runs: Pick<Host['runs'], 'pendingApprovals' | 'summary' | 'has'> }
  readonly directory: string
  /** Time that a question waits before, in ms. */
  readonly afterMs: number
  readonly receivers: () => Promise<readonly Receiver[]>
  /** Ids of the runs that this process carries out. */
  readonly held: () => Iterable<string>
  readonly values: MetricValues
  readonly log: (line: Readonly<Record<string, unknown>>) => void
  readonly times?: NoticeTimes
}

/** In ms. */
export interface NoticeTimes {
  /** How often the questions are read. Absent: 5,000. */
  readonly pollMs?: number
  /** Pause before a second attempt; later ones are longer. Absent: 5,000. */
  readonly pauseMinMs?: number
}

export class Notices implements AsyncDisposable {
  readonly #options: NoticesOptions
  readonly #outbox: Outbox
  readonly #closing = new AbortController()
  /** Receivers that are being sent to. */
  readonly #sending = new Map<string, Promise<void>>()
  /** Receivers that want no more, until the service starts again. */
  readonly #gone = new Set<string>()
  readonly #polling: Promise<void>
  /** What was logged last of a failure, so that it is logged once. */
  #problem: string | undefined

  private constructor(options: NoticesOptions, outbox: Outbox) {
    this.#options = options
    this.#outbox = outbox
    this.#polling = this.#pollAll()
  }

  static async start(options: NoticesOptions): Promise<Notices> {
    return new Notices(options, await Outbox.open({ ...options, ...options.times }))
  }

  /** What is being sent is tried again after the next start. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    const over = Promise.allSettled([this.#polling, ...this.#sending.values()])
    await Promise.race([over, pause(closeMs)])
  }

  async #pollAll(): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted) {
      await this.#poll().then(
        () => this.#report(undefined),
        (error: unknown) => this.#report(CaissonError.from(error).message),
      )
      await pause(this.#options.times?.pollMs ?? pollMs, signal)
    }
  }

  /** Receivers will learn of the end of a run that begins, also when the service is killed before. Never rejects. */
  async began(runId: string): Promise<void> {
    try {
      const isRoom = this.#awaitEnds([runId], await this.#options.receivers())
      await this.#outbox.save()
      if (!isRoom) throw noRoom()
    } catch (error) {
      this.#report(CaissonError.from(error).message)
    }
  }

  /** This process no longer carries out a run: if it has ended, receivers learn of it at once. */
  left(runId: string): void {
    if (this.#closing.signal.aborted || !this.#outbox.awaitedEnds.includes(runId)) return
    const told = async (): Promise<void> => {
      await this.#noteEnds([runId])
      await this.#outbox.save()
      for (const receiver of await this.#options.receivers()) this.#start(receiver)
    }
    void told().catch((error: unknown) => this.#report(CaissonError.from(error).message))
  }

  async #poll(): Promise<void> {
    const all = await this.#options.receivers()
    const receivers = all.filter(({ id }) => !this.#gone.has(id))
    if (receivers.length === 0 && this.#outbox.size === 0) return
    const pending = await this.#options.host.runs.pendingApprovals()
    // The clock answers a wait.
    const questions = pending.filter(({ approval }) => approval.tool !== waitTool)
    const waiting = new Set(questions.map(({ runId, approval }) => `${runId} ${approval.approvalId}`))
    const hearEnds = new Set(all.filter(({ sendEnd }) => sendEnd !== undefined).map(({ id }) => id))
    this.#outbox.keepOnly(({ runId, approvalId, receiver }) =>
      approvalId === null ? hearEnds.has(receiver) : waiting.has(`${runId} ${approvalId}`),
    )
    const isRoom = await this.#addDue(questions, receivers)
    const isRoomForEnds = this.#awaitEnds(this.#options.held(), receivers)
    await this.#noteEnds(this.#outbox.awaitedEnds)
    await this.#outbox.save()
    for (const receiver of receivers) this.#start(receiver)
    if (!isRoom || !isRoomForEnds) throw noRoom()
  }

  async #addDue(questions: readonly RunApproval[], receivers: readonly Receiver[]): Promise<boolean> {
    const now = Date.now()
    const { afterMs, host } = this.#options
    const hearing = receivers.filter(({ send }) => send !== undefined)
    const hasOwners = hearing.some(({ owner }) => owner !== undefined)
    let isRoom = true
    for (const { runId, at, approval } of questions) {
      if (now - at < afterMs) continue
      const owner = hasOwners ? (await host.runs.summary(runId)).metadata?.[ownerField] : undefined
      for (const { id, owner: hears } of hearing)
        if (hears === undefined || hears === owner)
          isRoom = this.#outbox.add(runId, approval.approvalId, id, now) && isRoom
    }
    return isRoom
  }

  #awaitEnds(runIds: Iterable<string>, receivers: readonly Receiver[]): boolean {
    const hearing = receivers.filter(({ sendEnd }) => sendEnd !== undefined)
    let isRoom = true
    for (const runId of runIds)
      for (const { id } of hearing) isRoom = this.#outbox.awaitEnd(runId, id) && isRoom
    return isRoom
  }

  /** Looks which of these runs have ended, wherever that was. */
  async #noteEnds(runIds: readonly string[]): Promise<void> {
    const held = new Set(this.#options.held())
    for (const runId of runIds) {
      // Its result is there once this process has left it.
      if (held.has(runId)) continue
      const run = await this.#summary(runId)
      if (run === undefined) this.#outbox.keepOnly((entry) => entry.runId !== runId)
      else if (run.state.end !== null) this.#outbox.noteEnd(runId, Date.now())
    }
  }

  /** Undefined: the run was removed. */
  async #summary(runId: string): Promise<RunSummary | undefined> {
    const { runs } = this.#options.host
    if (!(await runs.has(runId))) return undefined
    try {
      return await runs.summary(runId)
    } catch (error) {
      if (hasCode(error, 'run_not_found')) return undefined
      throw error
    }
  }

  /** Sends what is due to one receiver, one message after the other; a slow one holds up no other. */
  #start(receiver: Receiver): void {
    if (this.#sending.has(receiver.id) || this.#gone.has(receiver.id) || this.#closing.signal.aborted) return
    const sending = this.#sendAll(receiver)
      .catch((error: unknown) => this.#report(CaissonError.from(error).message))
      .finally(() => this.#sending.delete(receiver.id))
    this.#sending.set(receiver.id, sending)
  }

  async #sendAll(receiver: Receiver): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted && !this.#gone.has(receiver.id)) {
      const entry = this.#outbox.nextFor(receiver.id, Date.now())
      if (entry === undefined) return
      const result = await this.#send(receiver, entry, signal)
      // What the end of the service broke off is tried again.
      if (signal.aborted && result?.isSent !== true) return
      if (result === undefined) this.#outbox.keepOnly((other) => other !== entry)
      else await this.#settle(receiver, entry, result)
      await this.#outbox.save()
    }
  }

  /** Undefined: there is nothing to say any more. */
  async #send(
    receiver: Receiver,
    { runId, approvalId, since }: OutboxEntry,
    signal: AbortSignal,
  ): Promise<SendResult | undefined> {
    if (approvalId === null) {
      const run = await this.#summary(runId)
      return run === undefined ? undefined : await receiver.sendEnd?.(run, since, signal)
    }
    // The question as it is now; there is none once it is answered.
    const questions = await this.#options.host.runs.pendingApprovals(runId)
    const question = questions.find(({ approval }) => approval.approvalId === approvalId)
    return question === undefined ? undefined : await receiver.send?.(question, since, signal)
  }

  async #settle(receiver: Receiver, entry: OutboxEntry, result: SendResult): Promise<void> {
    const { id, kind } = receiver
    const { values, log } = this.#options
    const isTriedAgain = this.#outbox.settle(entry, result, Date.now())
    const outcome = result.isSent ? 'sent' : isTriedAgain ? 'retried' : 'failed'
    values.add('caisson_notices_total', { receiver: kind, result: outcome })
    const line = { receiver: id, run: entry.runId, attempt: entry.attempts + 1 }
    if (result.isSent) {
      const what = entry.approvalId === null ? 'the end of a run' : 'a question'
      log({ level: 'info', message: `${what} was delivered`, ...line })
      return
    }
    const message = isTriedAgain ? 'a delivery failed and is tried again' : 'a delivery failed'
    log({ level: 'warn', message, ...line, cause: result.why })
    if (!result.isGone) return
    if (receiver.drop === undefined) this.#gone.add(id)
    else await receiver.drop()
    log({ level: 'warn', message: 'a receiver wants no more messages', receiver: id })
  }

  #report(problem: string | undefined): void {
    if (problem !== undefined && problem !== this.#problem)
      this.#options.log({ level: 'error', message: 'questions cannot be delivered', cause: problem })
    this.#problem = problem
  }
}

function noRoom(): CaissonError {
  return new CaissonError('limit_reached', `${outboxMaxEntries} deliveries wait; no more are added`)
}

/** Keeps no process alive. */
async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  const options = signal === undefined ? { ref: false } : { ref: false, signal }
  await sleep(ms, undefined, options).catch(() => undefined)
}
