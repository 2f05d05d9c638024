/**
 * Answers an approval of a run that no process carries out: journals the decision under the run's lock, by the rules of
 * the live queue. Whoever continues the run gives it to the agent.
 */
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import { answersThatApply, type RunState } from '#specs/protocol/run-state.ts'
import { settleByPerson } from '../approvals/answers.ts'
import type { Answerer, AnswerResult, ApprovalAnswer, DecisionRecord } from '../approvals/decisions.ts'
import {
  explainChanged,
  explainDecided,
  explainNotOffered,
  explainUnknown,
  readAnswer,
} from '../approvals/explain-answer.ts'
import { importedLinesOf, readImported } from '../journal/imported.ts'
import { RunRecord } from '../journal/run-record.ts'
import type { RunPaths } from '../journal/run-store.ts'

/** A run that nobody carries out, as its journal says. */
export interface StoredRun {
  readonly runId: string
  readonly state: RunState
  /** Calls for each event of the journal. */
  visit(look: (event: JournalEvent) => void): Promise<void>
}

type Decision = Extract<HostEvent, { type: 'approval-decision' }>

/** @throws {CaissonError} `run_busy` while a process carries the run out, `not_possible_now` when it has ended */
export async function answerStored(
  paths: RunPaths,
  approvalId: string,
  answer: ApprovalAnswer,
  by: Answerer,
): Promise<AnswerResult> {
  await using record = await RunRecord.open(paths)
  const { state } = record
  requireOpen(paths.runId, state)
  if (Object.hasOwn(state.pendingApprovals, approvalId) && (await isImported(record, approvalId))) {
    const message = `this question came with an archive, which may word it as it likes; continue the run, and its agent asks again: caisson runs resume ${paths.runId}`
    return { taken: false, reason: 'not_offered', message }
  }
  const visit = async (look: (event: JournalEvent) => void) => {
    await record.visitPast(look, false)
  }
  const decided = await decideStored({ runId: paths.runId, state, visit }, approvalId, answer, by)
  if ('taken' in decided) return decided
  await record.host(decided)
  return { taken: true }
}

/** What an answer decides, or why it does not count. @throws {CaissonError} `not_possible_now` when the run has ended */
export async function decideStored(
  run: StoredRun,
  approvalId: string,
  answer: ApprovalAnswer,
  by: Answerer,
): Promise<Decision | AnswerResult> {
  const { runId, state } = run
  requireOpen(runId, state)
  const pending = Object.hasOwn(state.pendingApprovals, approvalId)
    ? state.pendingApprovals[approvalId]
    : undefined
  if (pending === undefined) return await explainGone(run, approvalId)
  const { kind: _, access, because: __, answers = [], ...request } = pending
  const remembers = answers.some(({ reach }) => reach === 'command')
  const asked = { request: { ...request, runId }, access, remembers, now: Date.now() }
  const given = readAnswer(answer)
  const changed = given && explainChanged(runId, pending, given)
  if (changed !== undefined) return changed
  const settled = given && settleByPerson(asked, given, (plan) => problemsOf(plan, state))
  if (settled === undefined) return explainNotOffered(asked)
  const ruling = { ...settled, name: by.name.slice(0, limits.lineMaxChars), via: by.via }
  return { type: 'approval-decision', approvalId, ...ruling }
}

/**
 * Revokes an answer for the run likewise.
 * @returns false when no such answer applied
 * @throws {CaissonError} as {@link answerStored}
 */
export async function revokeStored(paths: RunPaths, approvalId: string, by: string): Promise<boolean> {
  await using record = await RunRecord.open(paths)
  requireOpen(paths.runId, record.state)
  if (!answersThatApply(record.state).some((answer) => answer.approvalId === approvalId)) return false
  await record.host({
    type: 'approval-revoke',
    approvalId,
    by: by.slice(0, limits.lineMaxChars).toWellFormed(),
  })
  return true
}

async function isImported(record: RunRecord, approvalId: string): Promise<boolean> {
  const imported = await readImported(record.paths.directory)
  if (imported === undefined) return false
  let asked = 0
  await record.visitPast(({ event, seq }) => {
    if (event.type === 'approval-request' && event.request.approvalId === approvalId) asked = seq
  }, false)
  return asked <= importedLinesOf(imported)
}

/** @throws {CaissonError} `not_possible_now` */
export function requireOpen(runId: string, { end }: RunState): void {
  if (end !== null) throw new CaissonError('not_possible_now', `${runId} has ended (${end.outcome})`)
}

function problemsOf(
  next: Parameters<typeof findRevisionProblems>[1],
  { plan, steps }: RunState,
): readonly string[] {
  return plan === null ? [] : findRevisionProblems(plan, next, steps)
}

async function explainGone(run: StoredRun, approvalId: string): Promise<AnswerResult> {
  let decided: { readonly ruling: DecisionRecord; readonly at: number } | undefined
  await run.visit(({ event, at }) => {
    if (event.type !== 'approval-decision' || event.approvalId !== approvalId) return
    const { type: _, approvalId: __, ...ruling } = event
    decided ??= { ruling, at }
  })
  return decided === undefined ? explainUnknown(approvalId) : explainDecided(approvalId, decided)
}
