/** Maps the system's file errors to stable codes and sentences. */

import type { Result, ToolErrorCode } from '#specs/protocol/error.ts'
import { errorMessage } from '../errors.ts'

const meanings: Readonly<Record<string, readonly [ToolErrorCode, string]>> = {
  ENOENT: ['not_found', 'it does not exist'],
  EEXIST: ['already_exists', 'it exists already'],
  ENOTEMPTY: ['already_exists', 'the directory is not empty'],
  ENOTDIR: ['not_a_directory', 'a part of the path is not a directory'],
  EISDIR: ['not_a_file', 'it is a directory'],
  EACCES: ['permission_denied', 'permission denied'],
  EPERM: ['permission_denied', 'the system does not permit it'],
  EROFS: ['permission_denied', 'the file system is read-only'],
  ENOSPC: ['no_space', 'the disk is full; delete something that is not needed'],
  EDQUOT: ['no_space', 'the disk quota is used up'],
  EFBIG: ['too_large', 'the file would become too large'],
  ENAMETOOLONG: ['invalid_input', 'the name is too long (255 bytes for one name, 4095 for a path)'],
  EINVAL: ['invalid_input', 'the system refuses this, such as moving a directory into itself'],
  ENXIO: ['not_a_file', 'it is not a regular file'],
}
/** Transient conditions. */
const passing: Readonly<Record<string, string>> = {
  ELOOP: 'it became a symbolic link while it was used; try again',
  EBUSY: 'it is in use; try again',
  ETXTBSY: 'it is being executed; try again when that has ended',
  EMFILE: 'too many files are open; try again',
  ENFILE: 'too many files are open; try again',
  EAGAIN: 'it is not available at this moment; try again',
  ESTALE: 'it changed while it was used; try again',
}

/**
 * Converts an error of node:fs to a failed result.
 * @param doing the beginning of the sentence, with the path, such as `cannot read "a.txt"`
 */
export function fileFailure(doing: string, thrown: unknown): Extract<Result<never>, { ok: false }> {
  const errno = errnoOf(thrown)
  const meaning = meanings[errno]
  if (meaning !== undefined) return failure(meaning[0], `${doing}: ${meaning[1]}.`)
  const reason = passing[errno]
  if (reason !== undefined) return failure('unavailable', `${doing}: ${reason}.`, true)
  return failure('internal', `${doing}: ${errorMessage(thrown)}`)
}

/** The reason of a node:fs error, as the end of a sentence. */
export function reasonOf(thrown: unknown): string {
  const errno = errnoOf(thrown)
  return meanings[errno]?.[1] ?? passing[errno] ?? errorMessage(thrown)
}

/** A failed result with our own message. */
export function failure(
  code: ToolErrorCode,
  message: string,
  retryable = false,
): Extract<Result<never>, { ok: false }> {
  return { ok: false, error: { code, message, retryable } }
}

/** The errno name of a node:fs error, or an empty string. */
export function errnoOf(thrown: unknown): string {
  return thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : ''
}

/** Runs `action`; returns its value, or its error as a failed result. */
export function attempt<T>(doing: string, action: () => T): Result<T> {
  try {
    return { ok: true, value: action() }
  } catch (thrown) {
    return fileFailure(doing, thrown)
  }
}

/** Runs an operation that may be forbidden: a process without the right keeps the current owner. */
export function ifPermitted(action: () => void): void {
  try {
    action()
  } catch (thrown) {
    if (errnoOf(thrown) !== 'EPERM') throw thrown
  }
}
