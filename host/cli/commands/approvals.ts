/**
 * `caisson approvals`: what runs of any process wait for, and the answers to it; for scripts, and for who
 * does not want to watch.
 */

import { CaissonError } from '#specs/errors.ts'
import type { AnswerReach, ApprovalScope } from '#specs/protocol/approval.ts'
import { isAnswerTo, type UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { describeAnswer } from '../../approvals/user-question.ts'
import type { RunClient } from '../../control/run-client.ts'
import { mapBounded } from '../../files/bounded-map.ts'
import type { Host } from '../../host.ts'
import type { RunApproval } from '../../journal/run-store.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { findRun, hostOf, type Io, userName } from '../io.ts'
import { describeQuestion, offerLines } from '../render/call-lines.ts'
import { writeLines } from '../render/fit.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { findLive } from './runs.ts'

type Pending = RunApproval['approval']

export async function approvalsList(
  io: Io,
  name: string | undefined,
  flags: { json?: boolean },
): Promise<ExitCode> {
  const host = hostOf(io)
  const waiting =
    name === undefined ? await answerable(host) : await host.runs.pendingApprovals(await findRun(io, name))
  for (const { runId, approval } of waiting) {
    if (flags.json === true) await writeJsonLine(io.stdout, { runId, ...approval })
    else {
      const asked = `${runId}  ${approval.approvalId}  ${describeQuestion({ request: approval })}`
      writeLines(io.stdout, [asked, ...offerLines(approval)])
    }
  }
  if (waiting.length === 0 && flags.json !== true) io.stdout.write('no run waits for an answer\n')
  return exitCodes.completed
}

/** @param values one, of `choices` any number */
export async function approvalsAnswer(
  io: Io,
  name: string,
  approval: string,
  values: readonly string[],
  flags: { default?: boolean; hint?: string },
): Promise<ExitCode> {
  return await answer(io, name, approval, ({ approvalId, question }) => {
    if (question === undefined)
      throw new CaissonError(
        'invalid_options',
        `${approvalId} is an approval, not a question; use: caisson approvals allow, or caisson approvals deny`,
      )
    return {
      decision: 'allow',
      scope: 'once',
      answer: flags.default === true ? defaultOf(question, values) : readGiven(question, values),
      ...hintOf(flags),
    }
  })
}

export async function approvalsAllow(
  io: Io,
  name: string,
  approval: string,
  flags: { scope: ApprovalScope; reach?: AnswerReach },
): Promise<ExitCode> {
  return await answer(io, name, approval, ({ approvalId, question }) => {
    if (question !== undefined)
      throw new CaissonError(
        'invalid_options',
        `${approvalId} is a question; answer it: caisson approvals answer RUN ${approvalId} VALUE`,
      )
    const { scope, reach } = flags
    return { decision: 'allow', scope, ...(reach === undefined ? {} : { reach }) }
  })
}

export async function approvalsDeny(
  io: Io,
  name: string,
  approval: string,
  flags: { scope: ApprovalScope; hint?: string },
): Promise<ExitCode> {
  return await answer(io, name, approval, () => ({ decision: 'deny', scope: flags.scope, ...hintOf(flags) }))
}

async function answer(
  io: Io,
  name: string,
  approval: string,
  word: (request: Pending) => ApprovalAnswer,
): Promise<ExitCode> {
  const run = await findLive(io, name)
  try {
    const request = await findPending(hostOf(io), run, approval)
    const given = word(request)
    const result = await run.answer(request.approvalId, given, { by: userName() })
    if (!result.taken) throw new CaissonError('not_possible_now', result.message)
    io.stdout.write(`${run.id}: ${request.approvalId} answered\n`)
    return exitCodes.completed
  } finally {
    await run.detach()
  }
}

async function findPending(host: Host, run: RunClient, approval: string): Promise<Pending> {
  const pending = await pendingOf(host, run.id)
  const exact = pending.filter(({ approvalId }) => approvalId === approval)
  const found = exact.length > 0 ? exact : pending.filter(({ approvalId }) => approvalId.startsWith(approval))
  const [first, ...more] = found
  if (first !== undefined && more.length === 0) return first
  const ids = pending.map(({ approvalId }) => sanitizeLine(approvalId)).join(', ')
  throw new CaissonError(
    'invalid_options',
    `${found.length === 0 ? 'no pending approval' : 'more than one pending approval'} in ${run.id} matches "${sanitizeLine(approval, 100)}"; ${ids === '' ? 'none is pending' : `pending: ${ids}`}`,
  )
}

async function pendingOf(host: Host, runId: string): Promise<Pending[]> {
  return (await host.runs.pendingApprovals(runId)).map(({ approval }) => approval)
}

/** What all runs wait for whose process can be answered, oldest first. */
async function answerable(host: Host): Promise<RunApproval[]> {
  const waiting = await host.runs.pendingApprovals()
  const runIds = [...new Set(waiting.map(({ runId }) => runId))]
  const answering = await mapBounded(runIds, async (runId) => {
    const run = await host.attach(runId)
    await run?.detach()
    return run === null ? [] : [runId]
  })
  const reached = new Set(answering.flat())
  return waiting.filter(({ runId }) => reached.has(runId))
}

/** The words of a command line as an answer: options by their values, yes and no as `true` and `false` or in words. */
function readGiven(question: UserQuestion, values: readonly string[]): UserAnswer {
  const [first = '', ...more] = values
  const given = question.kind === 'choices' ? [...values] : readOne(question.kind, first)
  if (
    (question.kind === 'choices' || (values.length > 0 && more.length === 0)) &&
    isAnswerTo(question, given)
  )
    return given
  const seen = values.length === 0 ? 'nothing' : values.map((value) => JSON.stringify(value)).join(' ')
  throw new CaissonError(
    'invalid_options',
    `${sanitizeLine(seen, 200)} is not a valid answer; expected ${sanitizeLine(describeAnswer(question))}`,
  )
}

function readOne(kind: UserQuestion['kind'], value: string): UserAnswer {
  if (kind === 'number') return value.trim() === '' ? Number.NaN : Number(value)
  if (kind === 'confirm' && /^(true|yes|y)$/i.test(value)) return true
  return kind === 'confirm' && /^(false|no|n)$/i.test(value) ? false : value
}

function defaultOf({ defaultAnswer }: UserQuestion, values: readonly string[]): UserAnswer {
  if (defaultAnswer === undefined) throw new CaissonError('invalid_options', 'the question has no default')
  if (values.length > 0)
    throw new CaissonError('invalid_options', 'an answer and --default cannot be combined; use one of them')
  return defaultAnswer
}

function hintOf({ hint }: { readonly hint?: string }): { hint?: string } {
  return hint === undefined ? {} : { hint }
}
