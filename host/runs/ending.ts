/** Maps an error to the outcome and reason of a run. */
import { CaissonError, errorCodes, errorMessage, hasCode } from '#specs/errors.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Completion, RunOutcome } from '#specs/protocol/task.ts'
import { VmError } from '../vm/vm-error.ts'

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
