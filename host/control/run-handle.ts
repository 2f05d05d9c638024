/** A run as an application handles it, whether this process executes it or another. Every method rejects with a CaissonError. */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { AnsweredVia } from '#specs/protocol/approval.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { RunOutcome, Usage } from '#specs/protocol/task.ts'
import { AgentPath } from '#specs/protocol/text.ts'
import type { AnswerResult, ApprovalAnswer } from '../approvals/queue.ts'
import { checkArguments } from '../files/check-arguments.ts'
import type { FeedItem, WatchOptions } from '../journal/run-feed.ts'
import { ForkFields } from './messages.ts'

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

/** A request to fork a run, and what came of it; see host/forks. */
export interface RunForks {
  /**
   * Makes runs that continue this one from a moment of it, as `host.fork` does; also once it has ended, or its process is
   * gone. @throws {CaissonError} `not_possible_now`; `run_busy` when another process has the run by now
   */
  fork(request: {
    readonly at: string
    readonly count: number
    readonly prompts: readonly string[]
    readonly by: string
    readonly despite?: readonly string[]
    readonly metadata?: Readonly<Record<string, string>>
  }): Promise<{
    readonly step: string
    readonly notNow?: string
    readonly checkpointId: string | null
    readonly runIds: readonly string[]
  }>
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

export interface SteerOptions extends RunActor {
  /** Path of the sub-agent that gets the message, such as `root/tests` or `tests`. Default: the root agent. */
  readonly to?: string
}

export interface CancelAgentOptions extends RunActor {
  /** For the parent of the sub-agent and for people. Default: none. */
  readonly reason?: string
}

export interface RunHandle {
  readonly id: string
  /** All events so far, or those from a number on, then events and deltas as they arrive, until the run ends. */
  watch(options?: WatchOptions): AsyncIterableIterator<FeedItem>
  /**
   * Resolves when the run has ended. @throws {CaissonError} `connection_lost` when its process is gone, or
   * after {@link detach}; `not_possible_now` when the run left its process sleeping
   */
  result(): Promise<RunResult>
  /**
   * Answers an approval; the first answer counts. Resolves with whether this one was taken, which it is once the journal
   * has it, and if not, why: somebody decided before (who and when), no approval has this id, or the answer is not one of
   * those that it offers.
   */
  answer(approvalId: string, answer: ApprovalAnswer, actor?: AnswerActor): Promise<AnswerResult>
  /**
   * Revokes an answer for the run: what it decided stays, and later calls are asked about again. Resolves when that is
   * journaled. `host.runs.runAnswers()` lists what can be revoked.
   * @param approvalId the approval that was answered so
   * @throws {CaissonError} `not_possible_now` when it has no answer that still applies
   */
  revokeAnswer(approvalId: string, actor?: RunActor): Promise<void>
  /**
   * Sends a message to the agent, which reads it on its next turn. Resolves when the agent has it; at once while the agent
   * has not started or its VM is paused or hibernated.
   * @throws {CaissonError} `not_possible_now`, also for a sub-agent that is not at work
   */
  steer(text: string, options?: SteerOptions): Promise<void>
  /**
   * Cancels one sub-agent and those below it. Its parent gets a result that says so, and continues; its changes are not
   * merged. Resolves like {@link steer}.
   * @param agentPath such as `root/tests`, or `tests` as the terminal shows it
   * @throws {CaissonError} `not_possible_now` for a sub-agent that is not at work
   */
  cancelAgent(agentPath: string, options?: CancelAgentOptions): Promise<void>
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
   * @throws {CaissonError} `run_busy` while a run of a fleet goes to sleep, `connection_lost`
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
const SteerSchema = Actor.extend({ to: z.string().optional() })
const CancelAgentSchema = Actor.extend({ reason: z.string().default('') })
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

/** With the full path of a sub-agent; absent for the root agent. @throws {CaissonError} `invalid_options` */
export function readSteer(options: SteerOptions = {}): { readonly by: string; readonly to?: string } {
  const { by, to } = checkArguments(badActor, SteerSchema, options)
  const path = to === undefined ? 'root' : readAgentPath(to)
  return path === 'root' ? { by } : { by, to: path }
}

/** See {@link readActor}. */
export function readCancelAgent(options: CancelAgentOptions = {}): { by: string; reason: string } {
  return checkArguments(badActor, CancelAgentSchema, options)
}

/** The full path of an agent, which people may give without `root/`. @throws {CaissonError} `invalid_options` */
function readAgentPath(given: unknown): string {
  const text = typeof given === 'string' ? given : ''
  const path = AgentPath.safeParse(text === 'root' || text.startsWith('root/') ? text : `root/${text}`)
  if (path.success) return path.data
  const seen = typeof given === 'string' ? JSON.stringify(given.slice(0, 100)) : typeof given
  throw new CaissonError(
    'invalid_options',
    `not the path of an agent: expected a path such as root/tests, got ${seen}`,
  )
}

/** See {@link readAgentPath}; refuses the root agent. */
export function readSubAgentPath(given: unknown): string {
  const path = readAgentPath(given)
  if (path !== 'root') return path
  throw new CaissonError('invalid_options', 'root is the run itself, not one of its sub-agents', {
    remedy: 'cancel the run instead',
  })
}

/** Paths of the sub-agents at work, in the order in which they started. */
export function agentsAtWork({ agents }: Pick<RunState, 'agents'>): string[] {
  return Object.entries(agents).flatMap(([path, { state }]) => (state === 'running' ? [path] : []))
}

/** @throws {CaissonError} `not_possible_now` unless the answer was revoked */
export function requireRevoked(runId: string, approvalId: string, isRevoked: boolean): void {
  if (isRevoked) return
  throw new CaissonError(
    'not_possible_now',
    `no answer of ${runId} that still applies belongs to ${JSON.stringify(approvalId.slice(0, 100))}`,
    { remedy: `list them: caisson approvals remembered ${runId}` },
  )
}

/** The run waits for answers without a process. */
export function sleepingError(runId: string): CaissonError {
  return new CaissonError(
    'not_possible_now',
    `${runId} sleeps until its approvals are answered or, if it is paused, until it is resumed`,
    {
      remedy: `list approvals: caisson approvals list ${runId}; then continue it: caisson runs resume ${runId}`,
    },
  )
}

/** @throws {CaissonError} `not_possible_now` for a run that has not ended, as it sleeps */
export function resultOf(runId: string, state: RunState, journalHead: string): RunResult {
  const { end, changes, usage, isUsageEstimated, costUsd } = state
  if (end === null) throw sleepingError(runId)
  const { structured, ...ended } = end
  const value = structured === true ? { value: JSON.parse(end.summary) as unknown } : {}
  return { runId, ...ended, ...value, changes, usage, isUsageEstimated, costUsd, journalHead }
}

/** @throws {CaissonError} `invalid_options` */
export function readForkRequest(request: Parameters<RunForks['fork']>[0]): typeof request {
  const { despite, metadata, ...given } = checkArguments(badActor, ForkFields, request)
  return {
    ...given,
    ...(despite === undefined ? {} : { despite }),
    ...(metadata === undefined ? {} : { metadata }),
  }
}

/** Turns the reason why something was not done into an error. @throws {CaissonError} `not_possible_now` */
export async function requireDone(problem: Promise<string | undefined>): Promise<void> {
  const reason = await problem
  if (reason !== undefined) throw new CaissonError('not_possible_now', reason)
}
