/**
 * `caisson approvals`: what runs of any process wait for, and the answers to it; for scripts, and for who
 * does not want to watch.
 */

import { CaissonError } from '#specs/errors.ts'
import { AnswerDuration, type AnswerReach, type ApprovalScope } from '#specs/protocol/approval.ts'
import { isAnswerTo, type UserAnswer, type UserQuestion } from '#specs/protocol/question.ts'
import type { PendingApproval, RunAnswer } from '#specs/protocol/run-state.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { describeAnswer } from '../../approvals/user-question.ts'
import { formatTime } from '../../files/format.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import type { Io } from '../io.ts'
import { describeArguments, describeQuestion, offerLines } from '../render/call-lines.ts'
import { writeLines } from '../render/fit.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { allQuestions, findAskedRun } from './asked-run.ts'

/** What an answer was decided on. */
interface Shown {
  readonly digest?: string
}

export async function approvalsList(
  io: Io,
  name: string | undefined,
  flags: { json?: boolean },
): Promise<ExitCode> {
  const waiting =
    name === undefined ? await allQuestions(io) : await (await findAskedRun(io, name)).questions()
  for (const { runId, approval, digest } of waiting) {
    if (flags.json === true) await writeJsonLine(io.stdout, { runId, ...approval, digest })
    else {
      const asked = `${runId}  ${sanitizeLine(approval.approvalId)}  ${describeQuestion({ request: approval })}`
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
  flags: { default?: boolean; hint?: string } & Shown,
): Promise<ExitCode> {
  return await answer(io, name, approval, flags, ({ approvalId, question }) => {
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
  flags: { scope: ApprovalScope; reach?: AnswerReach; for?: number } & Shown,
): Promise<ExitCode> {
  return await answer(io, name, approval, flags, ({ approvalId, question }) => {
    if (question !== undefined)
      throw new CaissonError(
        'invalid_options',
        `${approvalId} is a question; answer it: caisson approvals answer RUN ${approvalId} VALUE`,
      )
    const { scope, reach } = flags
    return { decision: 'allow', scope, ...durationOf(flags), ...(reach === undefined ? {} : { reach }) }
  })
}

export async function approvalsDeny(
  io: Io,
  name: string,
  approval: string,
  flags: { scope: ApprovalScope; hint?: string; for?: number } & Shown,
): Promise<ExitCode> {
  return await answer(io, name, approval, flags, () => ({
    decision: 'deny',
    scope: flags.scope,
    ...durationOf(flags),
    ...hintOf(flags),
  }))
}

export async function approvalsRunAnswers(
  io: Io,
  name: string,
  flags: { json?: boolean },
): Promise<ExitCode> {
  const run = await findAskedRun(io, name)
  const { runId } = run
  const answers = await run.answers()
  for (const answer of answers) {
    if (flags.json === true) await writeJsonLine(io.stdout, { runId, ...answer })
    else writeLines(io.stdout, [`${sanitizeLine(answer.approvalId)}  ${runAnswerLine(answer)}`])
  }
  if (answers.length === 0 && flags.json !== true)
    io.stdout.write(`no answer for ${runId} applies to later calls\n`)
  return exitCodes.completed
}

export async function approvalsRevoke(io: Io, name: string, approval: string): Promise<ExitCode> {
  const run = await findAskedRun(io, name)
  const { runId } = run
  const { approvalId } = findById(await run.answers(), approval, `answer for ${runId}`)
  await run.revoke(approvalId)
  io.stdout.write(`${runId}: the answer to ${sanitizeLine(approvalId)} is revoked\n`)
  return exitCodes.completed
}

function runAnswerLine({ decision, tool, arguments: given, access, name, until }: RunAnswer): string {
  const what =
    access !== undefined
      ? sanitizeLine(access.allows)
      : given === undefined
        ? `every call of ${sanitizeLine(tool, 60)}`
        : `the command: ${describeArguments(given)}`
  const who = name === undefined ? '' : ` by ${sanitizeLine(name, 100)}`
  const end = until === undefined ? '' : `, until ${formatTime(until)}`
  return `${decision === 'allow' ? 'allowed' : 'denied'}${who}${end}: ${what}`
}

async function answer(
  io: Io,
  name: string,
  approval: string,
  { digest }: Shown,
  word: (request: PendingApproval) => ApprovalAnswer,
): Promise<ExitCode> {
  const run = await findAskedRun(io, name)
  const { runId, outcome, isPaused } = run
  const isPending = (await run.questions()).some(({ approval: { approvalId } }) =>
    approvalId.startsWith(approval),
  )
  if (!isPending) await run.requireUndecided(approval)
  if (outcome !== undefined)
    throw new CaissonError(
      'run_not_found',
      `${runId} is not active: it has ended as ${sanitizeLine(outcome)}`,
    )
  const questions = (await run.questions()).map((question) => ({
    ...question,
    approvalId: question.approval.approvalId,
  }))
  const asked = findById(questions, approval, `pending approval in ${runId}`, 'pending')
  const { approvalId } = asked
  // Without a digest of the person, the answer is for the question that was found just now.
  const given = { ...word(asked.approval), digest: digest ?? asked.digest }
  const result = await run.answer(approvalId, given)
  if (!result.taken && result.reason === 'question_changed')
    throw new CaissonError(
      'not_possible_now',
      `the digest is of another question than ${sanitizeLine(approvalId)} asks, and nothing was answered; read it again: caisson approvals list ${runId} --json`,
    )
  if (!result.taken) throw new CaissonError('not_possible_now', result.message)
  io.stdout.write(`${runId}: ${sanitizeLine(approvalId)} answered\n`)
  if (isPaused) io.stdout.write(`the run is paused; continue it: caisson runs resume ${runId}\n`)
  return await run.continue()
}

/** By the ID of its approval, or a unique prefix of it. @param state that all are in, for the message */
function findById<T extends { readonly approvalId: string }>(
  all: readonly T[],
  approval: string,
  what: string,
  state = 'valid',
): T {
  const exact = all.filter(({ approvalId }) => approvalId === approval)
  const found = exact.length > 0 ? exact : all.filter(({ approvalId }) => approvalId.startsWith(approval))
  const [first, ...more] = found
  if (first !== undefined && more.length === 0) return first
  const ids = all.map(({ approvalId }) => sanitizeLine(approvalId)).join(', ')
  throw new CaissonError(
    'invalid_options',
    `${found.length === 0 ? 'no' : 'more than one'} ${what} matches "${sanitizeLine(approval, 100)}"; ${ids === '' ? `none is ${state}` : `${state}: ${ids}`}`,
  )
}

/** @throws {CaissonError} `invalid_options` for an answer to one question */
function durationOf({ scope, for: forMs }: { readonly scope: ApprovalScope; readonly for?: number }): {
  forMs?: number
} {
  if (forMs === undefined) return {}
  if (scope !== 'run')
    throw new CaissonError('invalid_options', `--for cannot be used with --scope ${scope}; add --scope run`)
  if (!AnswerDuration.safeParse(forMs).success)
    throw new CaissonError('invalid_options', '--for expects a duration from 1ms to 720h')
  return { forMs }
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
