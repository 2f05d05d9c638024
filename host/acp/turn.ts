/**
 * A run as it is followed for a session: shows it, puts its questions, and continues to follow it when it slept. The run is
 * of another process; nothing here ends it but a cancellation.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { errorMessage, hasCode } from '#specs/errors.ts'
import type { RunHandle, RunState } from '../index.ts'
import { type QuestionParts, Questions } from './questions.ts'
import { message, thought } from './updates.ts'

/** A run of another process. */
export interface FollowedRun {
  readonly run: Pick<RunHandle, 'watch' | 'cancel' | 'steer'> & {
    hasPendingApproval(approvalId: string): boolean
  }
  /** Never rejects. */
  readonly over: Promise<
    | { readonly kind: 'ended'; readonly state: RunState }
    | { readonly kind: 'sleeping' | 'left' }
    | { readonly kind: 'lost'; readonly message: string }
  >
  /** Stops watching; the run continues. */
  readonly leave?: () => void
}

/** How runs are carried out outside of this process, so that they outlive it. */
export interface Carrier {
  readonly follow: (runId: string) => Promise<FollowedRun>
  /** Continues a run that slept. @throws {CaissonError} `run_busy` where another process does */
  readonly wake: (runId: string) => Promise<unknown>
}

export interface TurnParts extends QuestionParts {
  readonly carrier: Carrier
  /** `seq` of the first event to show. */
  readonly from: number
}

/** Between two looks whether somebody continued a run that sleeps. */
const lookMs = 2_000

export class Turn {
  readonly runId: string
  readonly questions: Questions
  /** Resolves with the run's state once it ended; undefined when this process left it, or lost it. */
  readonly ended: Promise<RunState | undefined>
  readonly #parts: TurnParts
  readonly #left = new AbortController()
  #next: number
  #followed: FollowedRun | undefined
  #cancels = 0

  constructor(parts: TurnParts) {
    this.#parts = parts
    this.runId = parts.runId
    this.#next = parts.from
    this.questions = new Questions(parts)
    this.ended = this.#follow()
  }

  get isCancelled(): boolean {
    return this.#cancels > 0
  }

  /** The second time ends the VM at once. */
  async cancel(): Promise<void> {
    this.#cancels += 1
    const { host, by, log } = this.#parts
    try {
      await host.cancel(this.runId, { by, ...(this.#cancels > 1 ? { now: true } : {}) })
    } catch (error) {
      if (!hasCode(error, 'not_possible_now')) log(`${this.runId} is not cancelled: ${errorMessage(error)}`)
    }
  }

  /** A message to the agent. */
  async steer(text: string): Promise<void> {
    if (this.#followed === undefined) throw new Error('the run is not reached')
    await this.#followed.run.steer(text, { by: this.#parts.by })
  }

  /** The run continues without a watcher. */
  leave(): void {
    this.#left.abort()
    this.questions.withdrawAll()
    this.#followed?.leave?.()
  }

  async #follow(): Promise<RunState | undefined> {
    const { host, carrier, editor, log } = this.#parts
    try {
      while (!this.#left.signal.aborted) {
        if ((await host.runs.summary(this.runId)).status === 'sleeping') await this.#sleep()
        this.#followed = await carrier.follow(this.runId)
        if (this.#left.signal.aborted) this.#followed.leave?.()
        await this.#show(this.#followed)
        const over = await this.#followed.over
        if (over.kind === 'ended') return over.state
        if (over.kind === 'left') return undefined
        if (over.kind === 'lost') {
          await editor.tell([message(lostWords(this.runId, over.message))])
          return undefined
        }
      }
    } catch (error) {
      if (this.#left.signal.aborted) return undefined
      log(`${this.runId} is not followed any more: ${errorMessage(error)}`)
      await editor.tell([message(lostWords(this.runId, errorMessage(error)))]).catch(() => undefined)
    } finally {
      this.questions.withdrawAll()
    }
    return undefined
  }

  async #show({ run }: FollowedRun): Promise<void> {
    const { editor, updates } = this.#parts
    for await (const item of run.watch({ from: this.#next })) {
      // A run that ended meanwhile is given from its start.
      if (item.source !== 'delta' && item.seq < this.#next) continue
      if (item.source !== 'delta') this.#next = item.seq + 1
      await editor.tell(updates.of(item))
      if (item.source !== 'host') continue
      const { event } = item
      if (event.type === 'approval-decision') this.questions.withdraw(event.approvalId)
      if (event.type === 'approval-request' && run.hasPendingApproval(event.request.approvalId))
        this.#ask(event.request.approvalId)
    }
  }

  #ask(approvalId: string): void {
    const pending = this.#parts.updates.state.pendingApprovals[approvalId]
    if (pending !== undefined) this.questions.ask(pending)
  }

  /** Until an answer wakes the run, given here or elsewhere. */
  async #sleep(): Promise<void> {
    const { host, carrier, editor, updates } = this.#parts
    for (const approvalId of Object.keys(updates.state.pendingApprovals)) this.#ask(approvalId)
    await editor.tell([thought('The run sleeps until it is answered.\n\n')])
    let isAnswered = false
    void this.questions.answered.then(() => {
      isAnswered = true
    })
    while (!this.#left.signal.aborted) {
      const { status, pendingApprovals } = await host.runs.summary(this.runId)
      if (status !== 'sleeping') return
      if (isAnswered && pendingApprovals === 0) {
        await carrier.wake(this.runId).catch((error: unknown) => {
          if (!hasCode(error, 'run_busy')) throw error
        })
        return
      }
      await Promise.race([
        sleep(lookMs, undefined, { signal: this.#left.signal }).catch(() => undefined),
        ...(isAnswered ? [] : [this.questions.answered]),
      ])
    }
  }
}

export function lostWords(runId: string, why: string): string {
  return `The process that carried out ${runId} ended before the run did: ${why}. To continue it: \`caisson runs resume ${runId} --detach\`\n\n`
}
