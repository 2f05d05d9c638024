/** The outcome, reason and message of a run's end, from an error or from what the agent reports. */
import { CaissonError, errorCodes, errorMessage, hasCode } from '#specs/errors.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { Completion, RunOutcome } from '#specs/protocol/task.ts'
import { findSavedVm } from '../vm/hibernation/hibernate.ts'
import { VmError } from '../vm/vm-error.ts'
import type { PlannedRun } from './resolved-run.ts'

export interface Ending {
  readonly outcome: RunOutcome
  readonly reason: RunReason
  /** For people: the phase, what was expected, what was seen, what to do. */
  readonly message: string
  /** The agent's answer; empty if it gave none. */
  readonly summary: string
  /** Whether `summary` is JSON that fits the run's output schema. Absent: no. */
  readonly structured?: true
}

/** Maps an error to the end of a run. */
export function runEnding(error: unknown): Ending {
  const { reason } = errorCodes[CaissonError.from(error).code]
  const text = wordsOf(error)
  const message = reason === 'internal' ? `internal error in Caisson: ${text}` : text
  const outcome = reason === 'cancelled' ? 'cancelled' : 'failed'
  return { outcome, reason, message: message.slice(0, limits.textMaxChars), summary: '' }
}

/** Maximum lines of each log tail in a message. */
const tailMaxLines = 20

/** The error's message; for a VM error, with the last output of QEMU and the guest. Contains untrusted text. */
export function wordsOf(error: unknown): string {
  if (!(error instanceof VmError)) return errorMessage(error)
  return [
    error.message,
    ...tailOf("QEMU's last output:", error.stderrTail),
    ...tailOf("the guest's console ends with:", error.consoleTail),
  ].join('\n')
}

function tailOf(title: string, text: string): string[] {
  const lines = text.trimEnd().split(/\r?\n/)
  return text.trim() === '' ? [] : [title, ...lines.slice(-tailMaxLines)]
}

/** A lost or invalid agent ends the run, but its VM may still return the changes. */
export function endingWithoutAgent(error: unknown): Ending {
  if (hasCode(error, 'agent_lost', 'protocol_violation')) return runEnding(error)
  throw error
}

export function endingOfCompletion({ outcome, reason, message, summary }: Completion): Ending {
  // The agent's own end is untrusted: an outcome that contradicts its reason counts as a failure of the agent.
  if ((outcome === 'completed') !== (reason === 'completed')) {
    return {
      outcome: 'failed',
      reason: 'protocol_violation',
      message: `the agent reported ${outcome} because of ${reason}`,
      summary,
    }
  }
  return { outcome, reason, message, summary }
}

/** A plan-only run returns only its plan, which is in the journal. */
export function checkPlan(ending: Ending, plan: Plan | null): Ending {
  if (ending.outcome !== 'completed' || plan !== null) return ending
  const message = 'the agent says that its plan is made, but gave none'
  return { ...ending, outcome: 'failed', reason: 'protocol_violation', message }
}

/** A run that ended before it used the kept VM leaves it on disk; the message says so. */
export async function nameKeptVm(ending: Ending, continues: PlannedRun['continues']): Promise<Ending> {
  if (continues === undefined || ending.outcome === 'completed') return ending
  if ((await findSavedVm(continues.kept).catch(() => undefined)) === undefined) return ending
  const { keptBy } = continues
  const message =
    `${ending.message.slice(0, 7_500)}\nThe VM of ${keptBy} is kept. Continue in it: caisson run --continue ${keptBy} "TASK". ` +
    `Remove it with its run: caisson runs rm ${keptBy}`
  return { ...ending, message }
}
