/** The single public error class and the closed table of its codes. `specs/errors.md` explains them. */
import type { RunReason } from './protocol/error.ts'

/** Exit codes of `caisson`. */
export const exitCodes = {
  completed: 0,
  failed: 1,
  usage: 2,
  cancelled: 3,
  environment: 4,
  /** The run completed, but some changes were not applied although nobody excluded them. */
  notAllApplied: 5,
} as const
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

interface ErrorEffect {
  /** Exit code of a command that fails with this code. */
  readonly exit: ExitCode
  /** Reason of a run that fails with this code. */
  readonly reason: RunReason
}

const { failed, usage, cancelled, environment } = exitCodes

/** Every code with its effect. `specs/errors.md` explains each and what to do. */
export const errorCodes = {
  invalid_options: { exit: usage, reason: 'environment' },
  invalid_config: { exit: usage, reason: 'environment' },
  price_unknown: { exit: usage, reason: 'environment' },
  invalid_rules: { exit: usage, reason: 'environment' },
  invalid_plan: { exit: usage, reason: 'plan_invalid' },
  invalid_workflow: { exit: usage, reason: 'plan_invalid' },
  invalid_recording: { exit: usage, reason: 'environment' },
  invalid_archive: { exit: usage, reason: 'environment' },
  workspace_refused: { exit: usage, reason: 'environment' },
  run_not_found: { exit: usage, reason: 'environment' },
  vm_not_found: { exit: usage, reason: 'environment' },
  file_not_found: { exit: usage, reason: 'environment' },
  run_busy: { exit: environment, reason: 'environment' },
  not_possible_now: { exit: failed, reason: 'environment' },
  connection_lost: { exit: failed, reason: 'environment' },
  version_mismatch: { exit: environment, reason: 'environment' },
  state_corrupted: { exit: environment, reason: 'environment' },
  state_unavailable: { exit: environment, reason: 'environment' },
  lock_unsupported: { exit: environment, reason: 'environment' },
  permission_denied: { exit: environment, reason: 'environment' },
  no_space: { exit: environment, reason: 'environment' },
  limit_reached: { exit: environment, reason: 'environment' },
  queue_full: { exit: environment, reason: 'environment' },
  queue_timeout: { exit: environment, reason: 'queue_timeout' },
  provider_unavailable: { exit: environment, reason: 'environment' },
  image_unavailable: { exit: environment, reason: 'environment' },
  vm_failed: { exit: environment, reason: 'environment' },
  vm_lost: { exit: failed, reason: 'vm_lost' },
  agent_lost: { exit: failed, reason: 'agent_lost' },
  protocol_violation: { exit: failed, reason: 'protocol_violation' },
  model_unreachable: { exit: environment, reason: 'model_unreachable' },
  model_refused: { exit: environment, reason: 'model_refused' },
  model_broken: { exit: failed, reason: 'model_broken' },
  tool_failed: { exit: failed, reason: 'environment' },
  script_mismatch: { exit: failed, reason: 'model_broken' },
  denied: { exit: cancelled, reason: 'denied' },
  cancelled: { exit: cancelled, reason: 'cancelled' },
  internal: { exit: failed, reason: 'internal' },
} as const satisfies Readonly<Record<string, ErrorEffect>>

export type ErrorCode = keyof typeof errorCodes

export interface CaissonErrorOptions {
  /** What to do about it; becomes the end of the message. Absent: nothing but reporting it. */
  readonly remedy?: string | undefined
  /** The underlying error: for logs, never sent to the guest or a model. */
  readonly cause?: unknown
}

export class CaissonError extends Error {
  override readonly name: string = 'CaissonError'
  readonly code: ErrorCode
  /** What to do about it; undefined when the message has no such part. */
  readonly remedy: string | undefined

  /** @param message what failed, what was expected and what was seen. May contain text of the guest or of files */
  constructor(code: ErrorCode, message: string, { remedy, cause }: CaissonErrorOptions = {}) {
    super(
      remedy === undefined || remedy === ''
        ? message
        : `${message}${message.endsWith('.') ? '' : ';'} ${remedy}`,
      cause === undefined ? undefined : { cause },
    )
    this.code = code
    this.remedy = remedy === '' ? undefined : remedy
  }

  /** `thrown` itself if it has one of our codes, else an error with a code and it as `cause`. */
  static from(thrown: unknown): CaissonError {
    const error = errorOf(thrown)
    if (error instanceof CaissonError) return error
    // What failed first is the cause; the other error came when its parts were closed.
    if (error instanceof SuppressedError) return CaissonError.from(error.suppressed)
    return new CaissonError(codeOfSystem(error), errorMessage(thrown), { cause: thrown })
  }
}

/** Whether a thrown value is a {@link CaissonError} with one of these codes. */
export function hasCode(thrown: unknown, ...codes: readonly ErrorCode[]): thrown is CaissonError {
  return thrown instanceof CaissonError && codes.includes(thrown.code)
}

/**
 * Runs `work` and throws only errors with a code; the reason of the caller's own signal becomes `cancelled`.
 * @param options of the caller; read only after a failure, since they may be of any kind
 */
export async function withCode<T>(
  work: () => Promise<T>,
  options?: { readonly signal?: AbortSignal },
): Promise<T> {
  try {
    return await work()
  } catch (thrown) {
    if (isReason(thrown, options))
      throw new CaissonError('cancelled', `cancelled by the caller: ${errorMessage(thrown)}`, {
        cause: thrown,
      })
    throw CaissonError.from(thrown)
  }
}

function isReason(thrown: unknown, options: { readonly signal?: AbortSignal } | undefined): boolean {
  try {
    return options?.signal?.aborted === true && thrown === options.signal.reason
  } catch {
    return false
  }
}

/** @param name of the argument. @throws {CaissonError} `invalid_options` unless it is a string */
export function requireText(name: string, value: unknown): asserts value is string {
  if (typeof value === 'string') return
  throw new CaissonError(
    'invalid_options',
    `${name}: must be a text, got ${value === null ? 'null' : typeof value}`,
  )
}

/** @param name of the argument. @throws {CaissonError} `invalid_options` unless it is an object */
export function requireObject(name: string, value: unknown): asserts value is object {
  if (typeof value === 'object' && value !== null) return
  throw new CaissonError(
    'invalid_options',
    `${name}: must be an object, got ${value === null ? 'null' : typeof value}`,
  )
}

/** @throws {CaissonError} `invalid_options` for a value other than an AbortSignal */
export function requireSignal(name: string, value: unknown): void {
  if (value === undefined || value instanceof AbortSignal) return
  throw new CaissonError('invalid_options', `${name}: must be an AbortSignal`)
}

/** The message of a thrown value; a value that throws when it is read, such as a proxy, has a fixed one. */
export function errorMessage(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown)
  } catch {
    return 'a value that cannot be shown was thrown'
  }
}

/** The value if it is an error that can be read. */
function errorOf(thrown: unknown): Error | undefined {
  try {
    return thrown instanceof Error ? thrown : undefined
  } catch {
    return undefined
  }
}

const codesOfSystem: Readonly<Record<string, ErrorCode>> = {
  EACCES: 'permission_denied',
  EPERM: 'permission_denied',
  EROFS: 'permission_denied',
  ENOSPC: 'no_space',
  EDQUOT: 'no_space',
  AbortError: 'cancelled',
}

function codeOfSystem(error: Error | undefined): ErrorCode {
  if (error === undefined) return 'internal'
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  return codesOfSystem[code] ?? codesOfSystem[error.name] ?? 'internal'
}
