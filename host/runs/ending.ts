/** How a run ends, and which end an error stands for. */
import { CaissonError, errorCodes, errorMessage } from '#specs/errors.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunOutcome } from '#specs/protocol/task.ts'
import { VmError } from '../vm/vm-error.ts'

export interface Ending {
  readonly outcome: RunOutcome
  readonly reason: RunReason
  /** For people: which phase, what was expected, what was seen, what to do. */
  readonly message: string
  /** The agent's answer; empty when it gave none. */
  readonly summary: string
}

/** The end that an error stands for. */
export function endingOf(error: unknown): Ending {
  const { reason } = errorCodes[CaissonError.from(error).code]
  const text = wordsOf(error)
  const message = reason === 'internal' ? `a fault of Caisson itself: ${text}` : text
  const outcome = reason === 'cancelled' ? 'cancelled' : 'failed'
  return { outcome, reason, message: message.slice(0, limits.textMaxChars), summary: '' }
}

/** Lines of each tail that go into a message. */
const tailMaxLines = 20

/** An error's message, for a VM's with what QEMU and the guest said last. Holds foreign text. */
export function wordsOf(error: unknown): string {
  if (!(error instanceof VmError)) return errorMessage(error)
  return [
    error.message,
    ...tailOf("QEMU's last words:", error.stderrTail),
    ...tailOf("the guest's console ends with:", error.consoleTail),
  ].join('\n')
}

function tailOf(title: string, text: string): string[] {
  const lines = text.trimEnd().split(/\r?\n/)
  return text.trim() === '' ? [] : [title, ...lines.slice(-tailMaxLines)]
}
