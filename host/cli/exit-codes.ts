/** What `caisson` exits with; the same in every command. */
import { FolderError } from '../state/folders.ts'

export const exitCodes = {
  completed: 0,
  failed: 1,
  usage: 2,
  denied: 3,
  environment: 4,
  /** The run completed, but not everything it changed was applied. */
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
  'LockError',
])
const usageErrors: ReadonlySet<string> = new Set([
  'UsageError',
  'RuleError',
  'UnknownRunError',
  'WorkspaceError',
])

/** The exit code that an error stands for. */
export function exitCodeOf(error: unknown): ExitCode {
  const name = error instanceof Error ? error.name : ''
  if (usageErrors.has(name)) return exitCodes.usage
  if (environmentErrors.has(name) || error instanceof FolderError) return exitCodes.environment
  return exitCodes.failed
}
