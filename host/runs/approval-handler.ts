/** Lets an application answer the approvals of a run with a function, and warns when nothing answers them. */
import { errorMessage } from '#specs/errors.ts'
import { initialRunState, type PendingApproval, reduceRun } from '#specs/protocol/run-state.ts'
import type { ApprovalAnswer } from '../approvals/queue.ts'
import { isTimedWait } from '../approvals/timed-waits.ts'
import type { RunHandle } from '../control/run-handle.ts'

export type { PendingApproval }

/** `allow` and `deny` are short for an answer of scope `once`. */
export type ApprovalReply =
  | ApprovalAnswer['decision']
  | (Omit<ApprovalAnswer, 'scope'> & Partial<Pick<ApprovalAnswer, 'scope'>>)

/** @param signal aborted when the approval no longer waits: another process answered it, or the run ended */
export type OnApproval = (
  approval: PendingApproval,
  context: { readonly signal: AbortSignal },
) => ApprovalReply | Promise<ApprovalReply>

/** A run of this process or of another. */
interface AnsweredRun extends Pick<RunHandle, 'id' | 'watch' | 'answer'> {
  hasPendingApproval(approvalId: string): boolean
  /** Resolves when the approval no longer waits. */
  whenResolved(approvalId: string): Promise<void>
}

/** Called once for each approval that waits, several at once. A handler that throws denies. */
export async function answerApprovals(
  run: AnsweredRun,
  onApproval: OnApproval,
  warn: (text: string) => void,
): Promise<void> {
  const asked = new Set<string>()
  for await (const item of run.watch()) {
    if (item.source !== 'host' || item.event.type !== 'approval-request') continue
    // The clock answers it.
    if (isTimedWait(item.event.request)) continue
    const { approvalId } = item.event.request
    if (!run.hasPendingApproval(approvalId) || asked.has(approvalId)) continue
    const approval = reduceRun(initialRunState, item).pendingApprovals[approvalId]
    if (approval === undefined) continue
    // It comes again when another agent of the run asks it.
    asked.add(approvalId)
    void answerOne(run, approval, onApproval, warn).finally(() => asked.delete(approvalId))
  }
}

async function answerOne(
  run: AnsweredRun,
  approval: PendingApproval,
  onApproval: OnApproval,
  warn: (text: string) => void,
): Promise<void> {
  const { approvalId, tool } = approval
  const resolved = new AbortController()
  void run.whenResolved(approvalId).then(() => resolved.abort())
  const deny = async (why: string): Promise<void> => {
    warn(`${run.id}: the approval of ${tool} was denied: ${why}`)
    await run.answer(approvalId, { decision: 'deny', scope: 'once' }, { by: 'onApproval' })
  }
  try {
    const reply = await onApproval(approval, { signal: resolved.signal })
    const answer = typeof reply === 'string' ? { decision: reply } : reply
    const result = await run.answer(approvalId, { scope: 'once', ...answer }, { by: 'onApproval' })
    if (!result.taken && run.hasPendingApproval(approvalId))
      await deny(`onApproval returned an answer that does not fit it: ${result.message}`)
  } catch (error) {
    if (run.hasPendingApproval(approvalId)) await deny(`onApproval failed: ${errorMessage(error)}`)
  }
}

/** Warns at the first approval that is denied because nothing answers it. */
export async function warnOfUnanswered(run: AnsweredRun, warn: (text: string) => void): Promise<void> {
  for await (const item of run.watch()) {
    if (item.source !== 'host' || item.event.type !== 'approval-decision') continue
    if (item.event.by !== 'mode' || item.event.decision !== 'deny') continue
    warn(
      "An approval was denied because nothing answers approvals; pass onApproval, approvals: { mode: 'all' } or approvals: { rules }. " +
        'To deny without this warning, pass approvals: { interactive: false }.',
    )
    return
  }
}
