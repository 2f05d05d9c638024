/**
 * A run of a fleet that this process does not carry out: its events come from the rows of its journal, and what people do
 * goes to the host that has it, or into the journal of a run that nobody has.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import * as z from 'zod'
import { CaissonError, type ErrorCode, errorCodes, requireText } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { HostEvent } from '#specs/protocol/host-event.ts'
import { answersThatApply, initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import type { AnswerResult, ApprovalAnswer } from '../approvals/decisions.ts'
import {
  type AnswerActor,
  type CancelAgentOptions,
  type CancelOptions,
  type RunActor,
  type RunHandle,
  type RunResult,
  readActor,
  readAnswerActor,
  readCancel,
  readCancelAgent,
  readSteer,
  readSubAgentPath,
  requireRevoked,
  resultOf,
  type SteerOptions,
} from '../control/run-handle.ts'
import { ActOutcome } from '../fleet/acts.ts'
import { isConnectionLost, type Queries } from '../fleet/database.ts'
import type { Fleet } from '../fleet/fleet.ts'
import { followRows, readRows } from '../fleet/journal-rows.ts'
import type { RunHead } from '../fleet/run-table.ts'
import type { ChainedLine } from '../journal/journal.ts'
import { type JournalPoint, journalStart } from '../journal/journal-lines.ts'
import { type FeedItem, readWatchOptions, type WatchOptions } from '../journal/run-feed.ts'
import { RunFold } from '../journal/run-outline.ts'
import { decideStored, requireOpen } from '../runs/stored-answer.ts'
import { type ActBody, type ActKind, isOf } from './acts.ts'
import type { FleetCopies } from './copies.ts'
import { withDeltas } from './followed.ts'

/** How long the host of a run has for an act. */
const actMs = 30_000
const againMs = 500

const Result = z.union([
  z.strictObject({ taken: z.literal(true) }),
  z.strictObject({
    taken: z.literal(false),
    reason: z.enum(['decided', 'unknown', 'not_offered', 'question_changed', 'connection_lost']),
    message: z.string(),
  }),
])

/** What to do with a run that is not at work. */
const remedies = {
  ended: (runId: string) => `see what it did: caisson runs show ${runId}`,
  sleeping: (runId: string) =>
    `answer what it waits for: caisson approvals list ${runId}; or continue it: caisson runs resume ${runId}`,
  queued: (runId: string) =>
    `see what it waits for: caisson runs show ${runId}; to cancel it: caisson runs cancel ${runId}`,
} as const

/** A journal as it was, and what may be written behind it. */
interface Free {
  readonly head: RunHead
  readonly fold: RunFold
  readonly end: JournalPoint
  /** Read again, since all of them may not fit into memory. @param from number of the first one. Default: 1 */
  readonly events: (from?: number) => AsyncGenerator<JournalEvent, void>
}

export class FleetRunHandle implements RunHandle {
  readonly id: string
  readonly #fleet: Fleet
  readonly #copies: FleetCopies
  readonly #left = new AbortController()

  constructor(fleet: Fleet, copies: FleetCopies, runId: string) {
    this.id = runId
    this.#fleet = fleet
    this.#copies = copies
  }

  /** Events of the rows, and the deltas that its host sends, until the run has ended. Waits while the database is away. */
  watch(options: WatchOptions = {}): AsyncIterableIterator<FeedItem> {
    const { from = 1, deltas = true } = readWatchOptions(options)
    const over = new AbortController()
    const signal = AbortSignal.any([this.#left.signal, over.signal])
    const events = this.#events(from, signal)
    const items = deltas ? withDeltas(this.#fleet, this.id, events, { seen: from - 1, signal }) : events
    const watched: AsyncIterableIterator<FeedItem> = {
      next: () => items.next(),
      // Also while the next event is awaited.
      return: async () => {
        over.abort()
        return await items.return()
      },
      [Symbol.asyncIterator]: () => watched,
    }
    return watched
  }

  async *#events(from: number, signal: AbortSignal): AsyncGenerator<JournalEvent, void> {
    const { database, runs: table, notices } = this.#fleet
    let end = await this.#pointBefore(from)
    while (!signal.aborted) {
      try {
        for await (const row of followRows({ database, table, notices }, this.id, { from: end, signal })) {
          end = row.end
          if (row.event.seq >= from) yield row.event
        }
        return
      } catch (error) {
        if (!isConnectionLost(error)) throw error
        await sleep(againMs, undefined, { signal }).catch(() => undefined)
      }
    }
  }

  async result(): Promise<RunResult> {
    let state: RunState = initialRunState
    let head = journalStart.hash
    for await (const item of this.#events(1, this.#left.signal)) {
      state = reduceRun(state, item)
      head = item.hash
    }
    if (state.end === null)
      throw new CaissonError('connection_lost', `${this.id}: this process has detached from the run`)
    return resultOf(this.id, state, head)
  }

  async answer(approvalId: string, answer: ApprovalAnswer, actor?: AnswerActor): Promise<AnswerResult> {
    requireText('approvalId', approvalId)
    const { by, via } = readAnswerActor(actor)
    const known = via === 'http' || via === 'library' ? via : 'control'
    const body = { approvalId, answer: { ...answer }, via: known } as const
    const value = await this.#act('answer', body, by, async (free, begunSeq) => {
      const { state } = free.fold
      const visit = async (look: (event: JournalEvent) => void) => {
        for await (const event of free.events()) look(event)
      }
      const decided = await decideStored({ runId: this.id, state, visit }, approvalId, answer, {
        name: by,
        via,
      })
      if (!('taken' in decided)) {
        const isPaused = free.fold.outline.sleepsPaused === true
        const also = async (tx: Queries) => {
          if (!isPaused || !free.head.waits)
            await this.#fleet.jobs.add(tx, this.id, { priority: 'normal', isContinued: true })
        }
        return (await this.#write(free, [decided], also)) ? { taken: true } : undefined
      }
      const own = { kind: 'answer', body, by } as const
      return (await isDone(free, begunSeq, own)) ? { taken: true } : decided
    })
    return Result.parse(value)
  }

  async revokeAnswer(approvalId: string, actor?: RunActor): Promise<void> {
    requireText('approvalId', approvalId)
    const { by } = readActor(actor)
    await this.#act('revoke', { approvalId }, by, async (free) => {
      const { state } = free.fold
      requireOpen(this.id, state)
      const applies = answersThatApply(state).some((answer) => answer.approvalId === approvalId)
      requireRevoked(this.id, approvalId, applies)
      return (await this.#write(free, [{ type: 'approval-revoke', approvalId, by }])) ? null : undefined
    })
  }

  async steer(text: string, options?: SteerOptions): Promise<void> {
    requireText('the message', text)
    const { by, ...to } = readSteer(options)
    await this.#act('steer', { text, ...to }, by, (free, begun) =>
      this.#notAtWork(free, begun, 'steer', { text }, by),
    )
  }

  async cancelAgent(agentPath: string, options?: CancelAgentOptions): Promise<void> {
    const { by, reason } = readCancelAgent(options)
    const body = { agentPath: readSubAgentPath(agentPath), reason }
    await this.#act('cancel-agent', body, by, (free, begun) =>
      this.#notAtWork(free, begun, 'cancel-agent', body, by),
    )
  }

  async pause(actor?: RunActor): Promise<void> {
    const { by } = readActor(actor)
    await this.#act('pause', {}, by, (free, begun) => this.#notAtWork(free, begun, 'pause', {}, by))
  }

  async resume(actor?: RunActor): Promise<void> {
    const { by } = readActor(actor)
    await this.#act('unpause', {}, by, (free, begun) => this.#notAtWork(free, begun, 'unpause', {}, by))
  }

  async cancel(options?: CancelOptions): Promise<void> {
    const { by, now } = readCancel(options)
    await this.#act('cancel', { now }, by, async (free, begun) => {
      const { state } = free.fold
      // The host before may have carried it out.
      if (begun !== null && state.end !== null) return null
      requireOpen(this.id, state)
      const also = async (tx: Queries) => {
        await tx.query('UPDATE caisson.runs SET tag = NULL WHERE run_id = $1', [this.id])
        await this.#fleet.jobs.remove(tx, this.id)
      }
      await this.#copies.onEnding(this.id)
      return (await this.#write(free, [...(await this.#beginning(free)), ...endOf(state, by)], also))
        ? null
        : undefined
    })
  }

  async detach(): Promise<void> {
    this.#left.abort()
  }

  /** @throws {CaissonError} `not_possible_now`, unless a host that is gone had done it */
  async #notAtWork<Kind extends ActKind>(
    free: Free,
    begun: number | null,
    kind: Kind,
    body: Partial<ActBody<Kind>>,
    by: string,
  ): Promise<null> {
    if (await isDone(free, begun, { kind, body, by })) return null
    const run = await this.#copies.run(this.id)
    const status = run?.hasEnded === true ? 'ended' : run?.waits === true ? 'sleeping' : 'queued'
    throw new CaissonError('not_possible_now', `${this.id} is not at work; its status is ${status}`, {
      remedy: remedies[status](this.id),
    })
  }

  /** What a run without a journal has before its end. */
  async #beginning({ end }: Free): Promise<HostEvent[]> {
    if (end.seq > 0) return []
    const outline = (await this.#copies.run(this.id))?.outline
    const { prompt = '', model = '', workspace = '', metadata = {} } = outline ?? {}
    const limits = RunLimits.parse({})
    return [{ type: 'run-start', prompt, model, provider: 'none', directory: workspace, metadata, limits }]
  }

  /**
   * By the host that has the run; else by `free`, which gives undefined where somebody was faster.
   * @param free `begun`: where the journal ended when a host began it that has the run no more; null: none did
   */
  async #act<Kind extends ActKind>(
    kind: Kind,
    body: ActBody<Kind>,
    by: string,
    free: (free: Free, begun: number | null) => Promise<unknown>,
  ): Promise<unknown> {
    const until = performance.now() + actMs
    for (let begun: number | null = null; ; ) {
      const actId = await this.#fleet.acts.ask(this.id, kind, body, by)
      if (actId !== undefined) {
        const done = await this.#outcomeOf(actId, until)
        if ('value' in done) return done.value
        begun = done.begunSeq ?? begun
      } else {
        const found = await this.#readFree()
        const value = found === undefined ? undefined : await free(found, begun)
        if (value !== undefined) return value
      }
      if (performance.now() > until) throw tooLate(this.id, 'and others were faster')
    }
  }

  /** @throws {CaissonError} what the other host said, or `not_possible_now` when it said nothing in time */
  async #outcomeOf(
    actId: string,
    until: number,
  ): Promise<{ readonly value: unknown } | { readonly begunSeq: number | null }> {
    const { acts, runs, notices } = this.#fleet
    for (;;) {
      const noticed = notices.wait(`act-${actId}`)
      const outcome = await acts.outcome(actId)
      if (outcome !== undefined) return readOutcome(this.id, outcome)
      const isLate = performance.now() > until
      const nobody = (await runs.head(this.id))?.hostId === null
      const withdrawn = isLate || nobody ? await acts.withdraw(actId) : undefined
      if (withdrawn !== undefined && isLate) throw tooLate(this.id, 'so nothing was done')
      if (withdrawn !== undefined) return withdrawn
      if (isLate) throw tooLate(this.id, 'and may do it yet')
      await noticed
    }
  }

  /** Undefined: it has grown meanwhile. */
  async #readFree(): Promise<Free | undefined> {
    const { database, runs: table } = this.#fleet
    const head = await table.head(this.id)
    if (head === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${this.id}`)
    const fold = new RunFold()
    let end = journalStart
    for await (const row of readRows(database, table, this.id)) {
      fold.next(row.event, row.end)
      end = row.end
    }
    const events = (from = 1) => this.#eventsFrom(from, head.seq)
    return end.seq === head.seq && end.hash === head.hash ? { head, fold, end, events } : undefined
  }

  /** Up to the one with the number `last`. */
  async *#eventsFrom(from: number, last: number): AsyncGenerator<JournalEvent, void> {
    const { database, runs: table } = this.#fleet
    for await (const { event } of readRows(database, table, this.id, await this.#pointBefore(from))) {
      if (event.seq > last) return
      if (event.seq >= from) yield event
    }
  }

  /** Whether the lines were written; if not, somebody was faster. */
  async #write(
    { head, fold, end }: Free,
    events: readonly HostEvent[],
    also: (tx: Queries) => Promise<void> = async () => undefined,
  ): Promise<boolean> {
    const outlineOf = (lines: readonly ChainedLine[]) => {
      let { bytes } = end
      for (const { body, seq, hash } of lines) {
        bytes += Buffer.byteLength(body) + 1
        // This host made it of an event.
        fold.next(JSON.parse(body) as JournalEvent, { seq, hash, bytes })
      }
      return fold.outline
    }
    return (await this.#fleet.runs.writeFree(this.id, head, events, also, outlineOf)) === 'written'
  }

  /** So that a late watcher needs no earlier rows. */
  async #pointBefore(from: number): Promise<JournalPoint> {
    if (from <= 1) return journalStart
    const hash = await this.#copies.rows.hashOf(this.id, from - 1)
    return hash === undefined ? journalStart : { seq: from - 1, bytes: 0, hash }
  }
}

/** Whether a host had done the act that it began. @param begun where the journal ended then; null: none began it */
async function isDone(
  { events }: Free,
  begun: number | null,
  act: Parameters<typeof isOf>[1],
): Promise<boolean> {
  if (begun === null) return false
  for await (const event of events(begun + 1)) if (isOf(event, act)) return true
  return false
}

function endOf({ usage, checkpoint }: RunState, by: string): HostEvent[] {
  const message = `cancelled by ${by} while no host had the run; its changes were not collected`
  return [
    { type: 'cancel-request', by },
    {
      ...{ type: 'run-end', outcome: 'cancelled', reason: 'cancelled', message, summary: '' },
      ...{ usage, durationMs: checkpoint?.elapsedMs ?? 0 },
    },
  ]
}

export function readOutcome(runId: string, outcome: unknown): { readonly value: unknown } {
  const { data } = ActOutcome.safeParse(outcome)
  if (data === undefined)
    throw new CaissonError('internal', `the host of ${runId} gave an outcome of another form`)
  if ('value' in data) return { value: data.value }
  const { code, message, remedy } = data.error
  throw new CaissonError(
    Object.hasOwn(errorCodes, code) ? (code as ErrorCode) : 'internal',
    message,
    remedy === undefined ? {} : { remedy },
  )
}

function tooLate(runId: string, what: string): CaissonError {
  return new CaissonError(
    'not_possible_now',
    `the host of ${runId} gave no answer within ${actMs / 1_000} s, ${what}`,
    { remedy: `look at the run, then try again: caisson runs show ${runId}` },
  )
}
