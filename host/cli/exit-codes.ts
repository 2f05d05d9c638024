/** What `caisson` exits with; the same in every command. */

import type { RunReason } from '#specs/protocol/error.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { RunFailure } from '../runs/ending.ts'

export const exitCodes = {
  completed: 0,
  failed: 1,
  usage: 2,
  denied: 3,
  environment: 4,
  /** The run completed, but not everything it changed was applied, though nobody said that nothing should be. */
  notAllApplied: 5,
} as const
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

/** A mistake on the command line; its message goes to the person as it is. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

const environmentErrors: ReadonlySet<string> = new Set([
  'VmError',
  'ImageError',
  'FolderError',
  'ProviderError',
  'KeyringError',
  'GrantFileError',
  'NoteStoreError',
  'RunBusyError',
  'KeptBoundsError',
])
const usageErrors: ReadonlySet<string> = new Set([
  'UsageError',
  'ConfigError',
  'OptionsError',
  'RuleError',
  'PlanError',
  'ToolListError',
  'UnknownRunError',
  'RecordingError',
  'UnknownVmError',
  'UnknownPathError',
  'WorkspaceRefusedError',
])

const codesByReason: Readonly<Partial<Record<RunReason, ExitCode>>> = {
  completed: exitCodes.completed,
  denied: exitCodes.denied,
  cancelled: exitCodes.denied,
  environment: exitCodes.environment,
  // Keys, address and network of the model are as much the machine's as QEMU is.
  model_unreachable: exitCodes.environment,
  model_refused: exitCodes.environment,
}

/** The exit code that an error stands for. */
export function exitCodeOf(error: unknown): ExitCode {
  const name = error instanceof Error ? error.name : ''
  if (usageErrors.has(name)) return exitCodes.usage
  if (environmentErrors.has(name)) return exitCodes.environment
  return error instanceof RunFailure ? exitCodeOfReason(error.reason) : exitCodes.failed
}

/** The exit code of a run by its end; 1 when it has none. */
export function exitCodeOfEnd(end: Pick<NonNullable<RunState['end']>, 'reason'> | null): ExitCode {
  return end === null ? exitCodes.failed : exitCodeOfReason(end.reason)
}

function exitCodeOfReason(reason: RunReason): ExitCode {
  return codesByReason[reason] ?? exitCodes.failed
}
