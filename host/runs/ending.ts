/** How a run ends, and which end an error stands for. */
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunOutcome } from '#specs/protocol/task.ts'

export interface Ending {
  readonly outcome: RunOutcome
  readonly reason: RunReason
  /** For people: which phase, what was expected, what was seen, what to do. */
  readonly message: string
  /** The agent's answer; empty when it gave none. */
  readonly summary: string
}

/** Ends the run with a reason of its own. */
export class RunFailure extends Error {
  override readonly name = 'RunFailure'
  readonly reason: RunReason

  constructor(reason: RunReason, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}

const reasonsByName: Readonly<Record<string, RunReason>> = {
  VmError: 'environment',
  ImageError: 'environment',
  FolderError: 'environment',
  JournalError: 'environment',
}

/** The end that an error stands for. */
export function endingOf(error: unknown): Ending {
  const name = error instanceof Error ? error.name : ''
  const reason = error instanceof RunFailure ? error.reason : (reasonsByName[name] ?? 'internal')
  const text = error instanceof Error ? error.message : String(error)
  const message = reason === 'internal' ? `a fault of Caisson itself: ${text}` : text
  const outcome = reason === 'cancelled' ? 'cancelled' : 'failed'
  return { outcome, reason, message: message.slice(0, limits.textMaxChars), summary: '' }
}
