/** What copying into a VM and out of it share: paths of the guest, options, and the account of what was copied. */
import path from 'node:path'
import * as z from 'zod'
import { CaissonError, requireText } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import { checkArguments, FunctionOption, type Names, SignalOption } from '../files/check-arguments.ts'

/** Where relative paths of the guest begin. */
const guestWorkspace = '/mnt/workspace'
const leftOutMaxCount = 100

export const copyDefaults = { maxBytes: 16 * 1024 ** 3, silenceMs: 60_000 } as const

export interface CopyOptions {
  /** Ends the copy, which then rejects with `cancelled`. What was copied stays. */
  readonly signal?: AbortSignal
  /**
   * Bytes of files, also of those left out, or of an archive. With more the copy rejects with `limit_reached`. Default 16 GiB.
   */
  readonly maxBytes?: number
  /** Milliseconds without a byte of the VM, after which the copy rejects with `not_possible_now`. Default 60,000. */
  readonly silenceMs?: number
  /** Called with the path of each file, directory and link: untrusted text. */
  readonly onFile?: (path: string) => void
}

const Options = z.strictObject({
  signal: SignalOption,
  maxBytes: z.int().min(0).optional(),
  silenceMs: z.int().min(1).max(0x7fff_ffff).optional(),
  onFile: FunctionOption,
})
const names: Names = { '': Object.keys(Options.shape) }

/** @throws {CaissonError} `invalid_options` */
export function checkCopy(local: unknown, options: unknown): void {
  requireText('the local path', local)
  if (local === '' || local.includes('\0'))
    throw new CaissonError('invalid_options', 'the local path is empty or has a NUL')
  checkCopyOptions(options)
}

/** @throws {CaissonError} `invalid_options` */
export function checkCopyOptions(options: unknown): void {
  checkArguments('the options of the copy cannot be used', Options, options, names)
}

export interface CopyResult {
  /** Files and links. */
  readonly files: number
  readonly bytes: number
  /** What was not copied, the first 100. `path` is untrusted text. */
  readonly leftOut: readonly { readonly path: string; readonly reason: string }[]
  readonly leftOutCount: number
}

export class CopyLog {
  readonly #leftOut: { path: string; reason: string }[] = []
  #leftOutCount = 0
  #files = 0
  bytes = 0

  count(bytes: number): void {
    this.#files += 1
    this.bytes += bytes
  }

  leaveOut(path: string, reason: string): void {
    this.#leftOutCount += 1
    if (this.#leftOut.length < leftOutMaxCount) this.#leftOut.push({ path, reason })
  }

  result(): CopyResult {
    const { bytes } = this
    return { files: this.#files, bytes, leftOut: this.#leftOut, leftOutCount: this.#leftOutCount }
  }
}

/** A path of the guest as a name in a directory. */
export interface GuestPath {
  readonly given: string
  /** Absolute. */
  readonly directory: string
  /** `.` for what is in the directory. */
  readonly name: string
  /** Whether it was written as a directory, with a slash at its end. */
  readonly isDirectory: boolean
}

/** @throws {CaissonError} `invalid_options` */
export function readGuestPath(given: string): GuestPath {
  requireText('the path in the VM', given)
  if (given === '' || given.includes('\0') || !given.isWellFormed() || given.length > limits.pathMaxBytes)
    throw new CaissonError('invalid_options', 'the path in the VM is empty, too long, or no text without NUL')
  const full = path.posix.resolve(guestWorkspace, given)
  const isDirectory = /\/\.?$/.test(given)
  if (full === '/' || given === '.' || given.endsWith('/.')) {
    return { given, directory: full, name: '.', isDirectory: true }
  }
  return { given, directory: path.posix.dirname(full), name: path.posix.basename(full), isDirectory }
}
