/** A run as an application handles it, whether this process executes it or another. Every method rejects with a CaissonError. */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { AnsweredVia } from '#specs/protocol/approval.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { RunOutcome, Usage } from '#specs/protocol/task.ts'
import type { AnswerResult, ApprovalAnswer } from '../approvals/queue.ts'
import { checkArguments } from '../files/check-arguments.ts'
import type { FeedItem, WatchOptions } from '../journal/run-feed.ts'

/** How a run ended. */
export interface RunResult {
  readonly runId: string
  readonly outcome: RunOutcome
  readonly reason: RunReason
  /** Why it ended so, for people; empty when it completed. */
  readonly message: string
  /** The agent's answer. Untrusted text. */
  readonly summary: string
  /** The value of `summary`, which fits the `outputSchema` of the run; absent: it has none, or failed. Untrusted. */
  readonly value?: unknown
  /** Files that the run changed; null when it brought no changes. `host.changes(runId)` reviews and applies them. */
  readonly changes: { readonly entries: number; readonly flagged: readonly string[] } | null
  /** Tokens and requests, as the gateway counted them. */
  readonly usage: Usage
  /** Whether any of `usage` is an estimate, because the provider reported no numbers. */
  readonly isUsageEstimated: boolean
  /** US dollars; null where a price is unknown. */
  readonly costUsd: number | null
  /** SHA-256 of the journal's last line. */
  readonly journalHead: string
}

/** Who acts on a run, for its journal. */
export interface RunActor {
  /** One line; default `the application`. */
  readonly by?: string
}

/** Who answers an approval, for its journal. */
export interface AnswerActor extends RunActor {
  /** Default `library`. An answer to a run of another process is recorded as `control`. */
  readonly via?: AnsweredVia
}

export interface CancelOptions extends RunActor {
  /** Ends the VM at once, without a grace period and without its changes. Default false. */
  readonly now?: boolean
}

export interface RunHandle {
  readonly id: string
  /** All events so far, or those from a number on, then events and deltas as they arrive, until the run ends. */
  watch(options?: WatchOptions): AsyncIterableIterator<FeedItem>
  /**
   * Resolves when the run has ended. @throws {CaissonError} `connection_lost` when its process is gone, or
   * after {@link detach}
   */
  result(): Promise<RunResult>
  /**
   * Answers an approval; the first answer counts. Resolves with whether this one was taken, and if not, why: somebody
   * decided before (who and when), no approval has this id, or the answer is not one of those that it offers.
   */
  answer(approvalId: string, answer: ApprovalAnswer, actor?: AnswerActor): Promise<AnswerResult>
  /**
   * Sends a message to the agent, which reads it on its next turn. Resolves when the agent has it; at once while the agent
   * has not started or its VM is paused or hibernated.
   * @throws {CaissonError} `not_possible_now`
   */
  steer(text: string, actor?: RunActor): Promise<void>
  /**
   * Pauses the agent before its next effect: a model request, a tool call, a step. The run's clock stops.
   * @throws {CaissonError} `not_possible_now`
   */
  pause(actor?: RunActor): Promise<void>
  /** Resumes a paused agent. @throws {CaissonError} `not_possible_now` */
  resume(actor?: RunActor): Promise<void>
  /**
   * Asks the agent to stop and ends the VM after a grace period. Resolves when the request is taken; {@link
   * result} tells the end.
   */
  cancel(options?: CancelOptions): Promise<void>
  /** Gives the run up: this process no longer answers its approvals (they are denied unless another does) or watches it. */
  detach(): Promise<void>
}

const Actor = z.strictObject({
  by: z
    .string()
    .transform((text) => text.slice(0, limits.lineMaxChars).toWellFormed())
    .default('the application'),
})
const AnswerActorSchema = Actor.extend({ via: AnsweredVia.default('library') })
const CancelSchema = Actor.extend({ now: z.boolean().default(false) })
const badActor = 'the options of the call cannot be used'

/** With what is absent filled in. @throws {CaissonError} `invalid_options` */
export function readActor(actor: RunActor = {}): Required<RunActor> {
  return checkArguments(badActor, Actor, actor)
}

/** See {@link readActor}. */
export function readAnswerActor(actor: AnswerActor = {}): Required<AnswerActor> {
  return checkArguments(badActor, AnswerActorSchema, actor)
}

/** See {@link readActor}. */
export function readCancel(options: CancelOptions = {}): Required<CancelOptions> {
  return checkArguments(badActor, CancelSchema, options)
}

/** @throws {CaissonError} `internal` for a run that has not ended */
export function resultOf(runId: string, state: RunState, journalHead: string): RunResult {
  const { end, changes, usage, isUsageEstimated, costUsd } = state
  if (end === null) throw new CaissonError('internal', `${runId}: the run has no end in its journal`)
  const { structured, ...ended } = end
  const value = structured === true ? { value: JSON.parse(end.summary) as unknown } : {}
  return { runId, ...ended, ...value, changes, usage, isUsageEstimated, costUsd, journalHead }
}

/** Turns the reason why something was not done into an error. @throws {CaissonError} `not_possible_now` */
export async function requireDone(problem: Promise<string | undefined>): Promise<void> {
  const reason = await problem
  if (reason !== undefined) throw new CaissonError('not_possible_now', reason)
}
