/** Failures of the workspace's functions: closed codes, and messages that say what to do. */
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'

const workspaceErrorCodes = [
  /** The directory cannot be a workspace. */
  'refused_directory',
  /** More bytes or entries than may be copied in or received back. */
  'too_large',
  'no_space',
  /** Another run uses the directory. */
  'in_use',
  /** A manifest, change set or log on disk was modified. */
  'damaged',
  /** The guest's change stream is invalid. */
  'invalid_changes',
  /** The change stream ended early. */
  'cut_short',
  'unreadable',
  'cancelled',
  'internal',
] as const

export type WorkspaceErrorCode = (typeof workspaceErrorCodes)[number]

export interface WorkspaceError {
  readonly code: WorkspaceErrorCode
  /** The phase, what was expected, what was seen, what to do; may contain untrusted text. */
  readonly message: string
}

export type WorkspaceResult<T> = Result<T, WorkspaceError>

export function workspaceFailure(
  code: WorkspaceErrorCode,
  message: string,
): Extract<WorkspaceResult<never>, { ok: false }> {
  return { ok: false, error: { code, message } }
}

export function workspaceSuccess<T>(value: T): { ok: true; value: T } {
  return { ok: true, value }
}

/** Carries a failure out of nested callbacks; never leaves this folder. */
export class WorkspaceFailure extends Error {
  override readonly name = 'WorkspaceFailure'
  readonly failure: WorkspaceError

  constructor(code: WorkspaceErrorCode, message: string) {
    super(message)
    this.failure = { code, message }
  }
}

const errnoCodes: Readonly<Record<string, WorkspaceErrorCode>> = {
  ENOSPC: 'no_space',
  EDQUOT: 'no_space',
  EFBIG: 'too_large',
  EACCES: 'unreadable',
  EPERM: 'unreadable',
  AbortError: 'cancelled',
  ABORT_ERR: 'cancelled',
  state_corrupted: 'damaged',
}

/** Wraps an error thrown while `doing` (a phrase such as `writing the workspace disk`) as a failed result. */
export function failureOf(doing: string, thrown: unknown): Extract<WorkspaceResult<never>, { ok: false }> {
  if (thrown instanceof WorkspaceFailure) return { ok: false, error: thrown.failure }
  const errno = thrown instanceof Error && 'code' in thrown ? String(thrown.code) : ''
  const name = thrown instanceof Error ? thrown.name : ''
  const code = errnoCodes[errno] ?? errnoCodes[name] ?? 'internal'
  const hint = code === 'no_space' ? '; free some disk space and start again' : ''
  return workspaceFailure(code, `${doing}: ${errorMessage(thrown)}${hint}`)
}
