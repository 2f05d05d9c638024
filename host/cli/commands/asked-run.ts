/** The questions of one run for `caisson approvals`, whether the run is one of this host or of its fleet. */
import { CaissonError, hasCode } from '#specs/errors.ts'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { RunAnswer } from '#specs/protocol/run-state.ts'
import { explainDecided } from '../../approvals/explain-answer.ts'
import type { AnswerResult, ApprovalAnswer } from '../../approvals/queue.ts'
import { formatCount } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import { findAnyRun } from '../any-run.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io, userName } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { type AskedQuestion, RunsOfFleet } from '../runs-of-fleet.ts'
import { resumeDetached } from './detach.ts'

export interface AskedRun {
  readonly runId: string
  /** How it has ended. Undefined: it has not. */
  readonly outcome: string | undefined
  /** Answers alone do not continue it. */
  readonly isPaused: boolean
  /** Open questions, oldest first. */
  questions(): Promise<readonly AskedQuestion[]>
  /** Says who answered before. @throws {CaissonError} `not_possible_now` */
  requireUndecided(approvalId: string): Promise<void>
  answer(approvalId: string, answer: ApprovalAnswer): Promise<AnswerResult>
  /** Continues a run that no process has, once nothing waits for an answer. */
  continue(): Promise<ExitCode>
  /** What was answered for later calls. */
  answers(): Promise<readonly RunAnswer[]>
  revoke(approvalId: string): Promise<void>
}

/** Of all runs that this host knows. */
export async function allQuestions(io: Io): Promise<readonly AskedQuestion[]> {
  const fleet = await RunsOfFleet.find(io)
  return fleet === undefined ? await ownQuestions(hostOf(io)) : await fleet.questions(io)
}

/** @throws {CaissonError} `run_not_found`, and what the service says */
export async function findAskedRun(io: Io, name: string): Promise<AskedRun> {
  const { runId, shared } = await findAnyRun(io, name)
  if (shared === undefined) return await ownRun(io, runId)
  const { fleet, resource } = shared
  const run = fleet.run(runId)
  return {
    runId,
    outcome: resource.end?.outcome,
    isPaused: resource.isPaused === true,
    questions: () => fleet.questions(io, runId),
    requireUndecided: (approvalId) => fleet.requireUndecided(runId, approvalId),
    answer: (approvalId, answer) => run.answer(approvalId, answer, { by: userName() }),
    continue: async () => exitCodes.completed,
    answers: () => fleet.answers(runId),
    revoke: (approvalId) => run.revokeAnswer(approvalId, { by: userName() }),
  }
}

async function ownRun(io: Io, runId: string): Promise<AskedRun> {
  const host = hostOf(io)
  const { state, isLive, isPaused = false } = await host.runs.summary(runId)
  return {
    runId,
    ...{ outcome: state.end?.outcome, isPaused },
    questions: () => ownQuestions(host, runId),
    requireUndecided: (approvalId) => requireUndecided(host, runId, approvalId),
    answer: (approvalId, answer) => host.answer(runId, approvalId, answer, { by: userName() }),
    continue: async () =>
      isLive || isPaused ? exitCodes.completed : await continueAnswered(io, host, runId),
    answers: () => host.runs.runAnswers(runId),
    revoke: (approvalId) => host.revokeAnswer(runId, approvalId, { by: userName() }),
  }
}

async function ownQuestions(host: Host, runId?: string): Promise<AskedQuestion[]> {
  const waiting = await host.runs.pendingApprovals(runId)
  return waiting.map(({ runId: id, approval }) => ({
    ...{ runId: id, approval },
    digest: digestOfQuestion({ runId: id, approval }),
  }))
}

async function requireUndecided(host: Host, runId: string, approvalId: string): Promise<void> {
  for await (const { event, at } of host.runs.stream(runId)) {
    if (event.type !== 'approval-decision' || event.approvalId !== approvalId) continue
    const decided = explainDecided(approvalId, { ruling: event, at })
    if (!decided.taken) throw new CaissonError('not_possible_now', sanitizeLine(decided.message, 500))
  }
}

async function continueAnswered(io: Io, host: Host, runId: string): Promise<ExitCode> {
  const left = (await host.runs.pendingApprovals(runId)).length
  if (left === 0) {
    try {
      return await resumeDetached(io, runId)
    } catch (error) {
      if (!hasCode(error, 'run_busy')) throw error
      io.stdout.write(`another process continues the run; watch: caisson attach ${runId}\n`)
      return exitCodes.completed
    }
  }
  io.stdout.write(
    `${formatCount(left, 'more approval')} pending; continue before: caisson runs resume ${runId} --detach\n`,
  )
  return exitCodes.completed
}
