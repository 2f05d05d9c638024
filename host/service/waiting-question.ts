/** One question of a run: as it waits, or why it does not. */
import type { Host, RunApproval } from '../index.ts'
import { Refusal } from './problems.ts'

const deciders = {
  rule: 'a rule',
  mode: 'the approval mode',
  cancel: 'the end of the run',
  agent: 'the agent, which withdrew it',
} as const

/**
 * @throws {Refusal} 409 where it is decided, with who did it; 404 where there never was one
 * @throws {CaissonError} `run_not_found`
 */
export async function findQuestion(
  runs: Host['runs'],
  runId: string,
  approvalId: string,
): Promise<RunApproval> {
  const { runId: id } = await runs.find(runId)
  const waiting = await runs.pendingApprovals(id)
  const question = waiting.find(({ approval }) => approval.approvalId === approvalId)
  return question ?? (await explainGone(runs, id, approvalId))
}

/** For an answer to another question than the run asks by now. */
export function questionChanged(runId: string): Refusal {
  return new Refusal(
    409,
    'question_changed',
    'the run asks something else under this ID than the answer was for; nothing was answered',
    { remedy: `read the question again: GET /v1/approvals?run=${runId}` },
  )
}

async function explainGone(runs: Host['runs'], runId: string, approvalId: string): Promise<never> {
  let isKnown = false
  let decision: string | undefined
  await runs.visit(runId, ({ event, at }) => {
    if (event.type === 'approval-request' && event.request.approvalId === approvalId) isKnown = true
    if (event.type !== 'approval-decision' || event.approvalId !== approvalId) return
    const who = event.by === 'person' ? (event.name ?? 'a person') : deciders[event.by]
    const word = event.decision === 'allow' ? 'allowed' : 'denied'
    decision ??= `${word} by ${who} at ${new Date(at).toISOString()}`
  })
  if (decision !== undefined)
    throw new Refusal(409, 'decided', `the question was already ${decision}; the first answer counts`)
  throw isKnown
    ? new Refusal(409, 'decided', 'the question no longer waits: its run has ended, or cannot be continued')
    : new Refusal(404, 'unknown', `the run has no question with the ID ${JSON.stringify(approvalId)}`, {
        remedy: `list the questions: GET /v1/approvals?run=${runId}`,
      })
}
