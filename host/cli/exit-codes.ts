/** What `caisson` exits with; the same in every command. Errors have theirs from the table of codes in `specs/errors.ts`. */
import { CaissonError, type ExitCode, errorCodes, exitCodes } from '#specs/errors.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import type { RunState } from '#specs/protocol/run-state.ts'

export { type ExitCode, exitCodes } from '#specs/errors.ts'

const codesByReason: Readonly<Partial<Record<RunReason, ExitCode>>> = {
  completed: exitCodes.completed,
  denied: exitCodes.cancelled,
  cancelled: exitCodes.cancelled,
  environment: exitCodes.environment,
  // Keys, address and network of the model are as much the machine's as QEMU is.
  model_unreachable: exitCodes.environment,
  model_refused: exitCodes.environment,
}

/** The exit code of a command that failed with this. */
export function exitCodeOf(error: unknown): ExitCode {
  return errorCodes[CaissonError.from(error).code].exit
}

/** The exit code of a run by its end; 1 when it has none. */
export function exitCodeOfEnd(end: Pick<NonNullable<RunState['end']>, 'reason'> | null): ExitCode {
  return end === null ? exitCodes.failed : (codesByReason[end.reason] ?? exitCodes.failed)
}
