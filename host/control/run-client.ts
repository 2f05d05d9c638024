/**
 * Client of a run in another process, over its control socket: shows the whole run and sends a person's answers. Keeps
 * reading without a watcher, so that a question answered elsewhere is withdrawn here.
 */

import * as z from 'zod'
import { CaissonError, errorMessage, hasCode, requireText } from '#specs/errors.ts'
import type { FramedStream } from '#specs/node/framed-stream.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { Id } from '#specs/protocol/text.ts'
import type { AnswerResult, ApprovalAnswer } from '../approvals/queue.ts'
import { Feed, type FeedItem, type WatchOptions } from '../journal/run-feed.ts'
import { askControl, errorOfControl, nextFrame, parseMessage } from './client.ts'
import {
  ControlFailure,
  ControlReply,
  type ControlRequest,
  ForkReply,
  WatchInput,
  WatchOutput,
} from './messages.ts'
import {
  type AnswerActor,
  type CancelAgentOptions,
  type CancelOptions,
  type RunActor,
  type RunForks,
  type RunHandle,
  type RunResult,
  readActor,
  readAnswerActor,
  readCancel,
  readCancelAgent,
  readForkRequest,
  readSteer,
  readSubAgentPath,
  requireRevoked,
  resultOf,
  type SteerOptions,
  sleepingError,
} from './run-handle.ts'

/** How the watch ended: with the run, as it went to sleep without a process, by leaving, or because its process is gone. */
export type WatchEnd =
  | { readonly kind: 'ended'; readonly end: RunState['end']; readonly journalHead: string }
  | { readonly kind: 'sleeping' }
  | { readonly kind: 'left' }
  | { readonly kind: 'lost'; readonly message: string }

const Refusal = z.strictObject({ ok: z.literal(false), error: ControlFailure })
const Message = z.union([WatchOutput, Refusal])

/** The answer to a fork. @throws {CaissonError} `connection_lost` when the process ends first */
async function nextForkFrame(stream: FramedStream): ReturnType<typeof nextFrame> {
  try {
    return await nextFrame(stream)
  } catch (cause) {
    if (!hasCode(cause, 'connection_lost')) throw cause
    throw new CaissonError('connection_lost', `${cause.message}; it may have made forks before`, {
      cause,
      remedy: 'look at them with caisson runs list, then fork the run again if they are not there',
    })
  }
}

/** Uses its own connection, so that each answer belongs to its request. */
async function ask(path: string, request: ControlRequest): Promise<void> {
  const stream = await askControl(path, request)
  const reply = parseMessage(stream, await nextFrame(stream), ControlReply)
  stream.end()
  if (!reply.ok) throw errorOfControl(reply.error)
}

/**
 * Cancels a run without watching it; resolves once its process has taken that.
 * @param path of the run's control socket
 * @throws {CaissonError} `connection_lost` when no process executes the run
 */
export async function cancelRunAt(path: string, options: Required<CancelOptions>): Promise<void> {
  await ask(path, { op: 'run/cancel', ...options })
}

export class RunClient implements RunHandle {
  readonly id: string
  /** Resolves when nothing more will arrive; never rejects. */
  readonly ended: Promise<WatchEnd>
  readonly #path: string
  readonly #forkStored: RunForks['fork'] | undefined
  readonly #stream: FramedStream
  readonly #feed = new Feed()
  /** Pending questions, with promises that resolve when they are answered. */
  readonly #open = new Map<string, PromiseWithResolvers<void>>()
  readonly #answers = new Map<string, ((result: AnswerResult) => void)[]>()
  #state = initialRunState
  /** Time of the last event. */
  #lastAt = 0
  #hasLeft = false

  private constructor(id: string, path: string, stream: FramedStream, forkStored?: RunForks['fork']) {
    this.id = id
    this.#path = path
    this.#forkStored = forkStored
    this.#stream = stream
    this.ended = this.#read()
  }

  /**
   * @param path the run's control socket
   * @param forkStored forks the run once no process executes it, from its folder
   * @throws {CaissonError} `connection_lost` when no process executes the run
   */
  static async connect(
    id: string,
    path: string,
    { forkStored }: { readonly forkStored?: RunForks['fork'] } = {},
  ): Promise<RunClient> {
    return new RunClient(id, path, await askControl(path, { op: 'run/watch' }), forkStored)
  }

  /** All events from the run's start, then events and deltas as they arrive. */
  watch(options?: WatchOptions): AsyncIterableIterator<FeedItem> {
    return this.#feed.watch(options)
  }

  /** Whether an approval is pending. */
  hasPendingApproval(approvalId: string): boolean {
    requireText('approvalId', approvalId)
    return this.#open.has(approvalId)
  }

  /** Number of approvals that are pending. */
  get pendingCount(): number {
    return this.#open.size
  }

  /** Resolves when the approval is no longer pending. */
  async whenResolved(approvalId: string): Promise<void> {
    requireText('approvalId', approvalId)
    await this.#open.get(approvalId)?.promise
  }

  /** Answers an approval; resolves with whether this answer counts, and if not, why. */
  async answer(approvalId: string, answer: ApprovalAnswer, actor?: AnswerActor): Promise<AnswerResult> {
    requireText('approvalId', approvalId)
    const { by } = readAnswerActor(actor)
    const input = WatchInput.safeParse({ ...answer, type: 'answer', approvalId, by }, plainMessages)
    // The other side would end the connection on an invalid message.
    if (!input.success) {
      const message = `this is not an answer to an approval: ${describeIssues(input.error, { root: 'it', max: 1 })}`
      return { taken: false, reason: 'not_offered', message }
    }
    const taken = Promise.withResolvers<AnswerResult>()
    this.#answers.set(approvalId, [...(this.#answers.get(approvalId) ?? []), taken.resolve])
    await this.#say(input.data)
    const lost = this.ended.then(
      (): AnswerResult => ({
        taken: false,
        reason: 'connection_lost',
        message: `the connection to ${this.id} ended before the answer was taken`,
      }),
    )
    return await Promise.race([taken.promise, lost])
  }

  async revokeAnswer(approvalId: string, actor?: RunActor): Promise<void> {
    requireText('approvalId', approvalId)
    const { by } = readActor(actor)
    requireRevoked(this.id, approvalId, Id.safeParse(approvalId).success)
    await this.#ask({ op: 'run/revokeAnswer', approvalId, by })
  }

  async result(): Promise<RunResult> {
    const end = await this.ended
    if (end.kind === 'ended') return resultOf(this.id, { ...this.#state, end: end.end }, end.journalHead)
    if (end.kind === 'sleeping') throw sleepingError(this.id)
    const message = end.kind === 'left' ? 'this process has detached from the run' : end.message
    throw new CaissonError('connection_lost', `${this.id}: ${message}`)
  }

  async cancel(options?: CancelOptions): Promise<void> {
    const request = { op: 'run/cancel', ...readCancel(options) } as const
    try {
      await this.#ask(request)
    } catch (error) {
      if (!hasCode(error, 'connection_lost') || (await this.ended).kind !== 'ended') throw error
    }
  }

  async steer(text: string, options?: SteerOptions): Promise<void> {
    requireText('the message', text)
    const who = readSteer(options)
    if (text.length > limits.textMaxChars)
      throw new CaissonError(
        'not_possible_now',
        `the message is longer than ${limits.textMaxChars} characters`,
      )
    await this.#ask({ op: 'run/steer', text, ...who })
  }

  async cancelAgent(agentPath: string, options?: CancelAgentOptions): Promise<void> {
    const path = readSubAgentPath(agentPath)
    const { by, reason } = readCancelAgent(options)
    if (reason.length > limits.textMaxChars)
      throw new CaissonError(
        'not_possible_now',
        `the reason is longer than ${limits.textMaxChars} characters`,
      )
    await this.#ask({ op: 'run/cancelAgent', agentPath: path, reason, by })
  }

  async pause(actor?: RunActor): Promise<void> {
    await this.#ask({ op: 'run/pause', paused: true, ...readActor(actor) })
  }

  async resume(actor?: RunActor): Promise<void> {
    await this.#ask({ op: 'run/pause', paused: false, ...readActor(actor) })
  }

  /** Has the run's process make runs that continue it from a moment; without one this process makes them. See `host.fork`. */
  async fork(request: Parameters<RunForks['fork']>[0]): ReturnType<RunForks['fork']> {
    const checked = readForkRequest(request)
    const { at, count, prompts, by, despite, metadata } = checked
    const stream = await askControl(this.#path, {
      ...{ op: 'run/fork', at, count, by, prompts: [...prompts] },
      ...(despite === undefined ? {} : { despite: [...despite] }),
      ...(metadata === undefined ? {} : { metadata }),
    }).catch((error: unknown) => {
      if (!hasCode(error, 'connection_lost')) throw error
    })
    if (stream === undefined) return await this.#forkWithoutProcess(checked)
    const reply = parseMessage(stream, await nextForkFrame(stream), ForkReply)
    stream.end()
    if (!reply.ok) throw errorOfControl(reply.error)
    const { ok: _, notNow, ...forks } = reply
    return { ...forks, ...(notNow === undefined ? {} : { notNow }) }
  }

  /** The lock of the run tells whether another process has it by now. */
  async #forkWithoutProcess(request: Parameters<RunForks['fork']>[0]): ReturnType<RunForks['fork']> {
    if (this.#forkStored !== undefined) return await this.#forkStored(request)
    throw new CaissonError('connection_lost', `no process carries out ${this.id}, so it forks nothing`, {
      remedy: `fork the run by its id: caisson runs fork ${this.id} (library: host.fork)`,
    })
  }

  async #ask(request: ControlRequest): Promise<void> {
    await ask(this.#path, request)
  }

  /** Stops watching; the run continues. */
  async detach(): Promise<void> {
    this.#hasLeft = true
    this.#stream.destroy('left')
  }

  async #say(input: WatchInput): Promise<void> {
    await this.#stream.sendJson(input)
  }

  async #read(): Promise<WatchEnd> {
    try {
      for (;;) {
        const message = parseMessage(this.#stream, await nextFrame(this.#stream), Message)
        if ('ok' in message) throw errorOfControl(message.error)
        if (message.type === 'end' && message.end === null) return { kind: 'sleeping' }
        if (message.type === 'end')
          return { kind: 'ended', end: message.end, journalHead: message.journalHead }
        this.#take(message)
      }
    } catch (error) {
      if (this.#hasLeft) return { kind: 'left' }
      const message = errorMessage(error)
      const delta = { type: 'run-interrupted', lastAt: this.#lastAt, message } as const
      this.#feed.push({ source: 'delta', runId: this.id, agentPath: 'root', delta })
      return { kind: 'lost', message }
    } finally {
      this.#stream.end()
      for (const id of [...this.#open.keys()]) this.#settle(id)
      this.#feed.end()
    }
  }

  #take(message: Exclude<z.infer<typeof WatchOutput>, { type: 'end' }>): void {
    if (message.type === 'answered') {
      const waiting = this.#answers.get(message.approvalId) ?? []
      waiting.shift()?.(message.result)
    } else if (message.type === 'delta') {
      const { runId, agentPath, delta } = message
      this.#feed.push({ source: 'delta', runId, agentPath, delta })
    } else {
      const { event } = message.event
      this.#lastAt = message.event.at
      // A question that waits on while another agent continues the run comes again.
      if (event.type === 'approval-request' && message.waits && !this.#open.has(event.request.approvalId))
        this.#open.set(event.request.approvalId, Promise.withResolvers<void>())
      if (event.type === 'approval-decision') this.#settle(event.approvalId)
      this.#state = reduceRun(this.#state, message.event)
      this.#feed.push(message.event)
    }
  }

  #settle(approvalId: string): void {
    this.#open.get(approvalId)?.resolve()
    this.#open.delete(approvalId)
  }
}
