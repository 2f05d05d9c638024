/**
 * Answers an approval of a run, and revokes an answer, wherever the run is: in the process that carries it out, or in its
 * journal. A run that starts, ends its part or goes to sleep meanwhile is asked again, for a bounded time.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '#specs/errors.ts'
import type { AnswerResult, ApprovalAnswer } from '../approvals/decisions.ts'
import { RunClient } from '../control/run-client.ts'
import { requireRevoked } from '../control/run-handle.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { answerStored, revokeStored } from './stored-answer.ts'

/** Time for a process to open the control socket of a run that it has, or to close its journal. */
const settleMs = 15_000
const askMs = 50

/** @throws {CaissonError} `run_busy`, `not_possible_now` when the run has ended, `state_corrupted` */
export async function answerAnywhere(
  paths: RunPaths,
  approvalId: string,
  answer: ApprovalAnswer,
  by: string,
): Promise<AnswerResult> {
  return await doAnywhere(
    paths,
    async (run) => {
      const result = await run.answer(approvalId, answer, { by })
      return { value: result, isLost: !result.taken && result.reason === 'connection_lost' }
    },
    async () => await answerStored(paths, approvalId, answer, { name: by, via: 'journal' }),
  )
}

/**
 * Revokes an answer for the run likewise.
 * @throws {CaissonError} `not_possible_now` when it has ended, or the approval has no answer that applies; `run_busy`,
 * `state_corrupted`
 */
export async function revokeAnywhere(paths: RunPaths, approvalId: string, by: string): Promise<void> {
  await doAnywhere(
    paths,
    async (run) => {
      await run.revokeAnswer(approvalId, { by })
      return { value: undefined, isLost: false }
    },
    async () => requireRevoked(paths.runId, approvalId, await revokeStored(paths, approvalId, by)),
  )
}

async function doAnywhere<T>(
  paths: RunPaths,
  inProcess: (run: RunClient) => Promise<{ readonly value: T; readonly isLost: boolean }>,
  inJournal: () => Promise<T>,
): Promise<T> {
  const until = performance.now() + settleMs
  for (;;) {
    const isLast = performance.now() > until
    const run = await RunClient.connect(paths.runId, paths.control).catch(() => null)
    try {
      if (run === null) return await inJournal()
      const { value, isLost } = await inProcess(run)
      if (!isLost || isLast) return value
    } catch (error) {
      if (!hasCode(error, 'run_busy', 'connection_lost') || isLast) throw error
    } finally {
      await run?.detach()
    }
    await sleep(askMs)
  }
}
