// What can go wrong when an image is built, found or checked, as one error class with closed kinds.
import { CaissonError, type ErrorCode } from '#specs/errors.ts'

export type ImageErrorKind =
  /** Not a system that can build an image. */
  | 'platform_unsupported'
  /** Programs that the build needs are not installed; the message names them all. */
  | 'tools_missing'
  /** The mirror no longer has a locked version. */
  | 'lock_unsatisfied'
  /** packages.lock.json cannot be read or has nothing for the architecture. */
  | 'lock_unreadable'
  /** A download failed: the network or a mirror. */
  | 'download_failed'
  /** A downloaded file is not the locked one. */
  | 'digest_mismatch'
  | 'build_failed'
  /** A file of the image is not what its manifest says. */
  | 'image_damaged'
  /** The recipe or the agent's source is not where it should be. */
  | 'sources_missing'
  | 'bundle_failed'
  /** The file system of the cache refused a write: full, read-only, or not this user's. */
  | 'cache_unwritable'
  | 'cancelled'

/** A system call that failed in the cache as an error that says what to do; every other error as it is. */
export function errorOfCache(error: unknown, cacheDir: string): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error
  // An error of writing names no path.
  const isThere = 'path' in error && String(error.path).startsWith(cacheDir)
  if (!isThere && error.code !== 'ENOSPC' && error.code !== 'EDQUOT') return error
  return new ImageError(
    'cache_unwritable',
    `cannot write the built files to the cache ${cacheDir}: ${error.message}`,
    'free disk space, correct its permissions, or set CAISSON_CACHE to a folder that you own',
    { cause: error },
  )
}

const commonCodes: Readonly<Partial<Record<ImageErrorKind, ErrorCode>>> = {
  cache_unwritable: 'state_unavailable',
  cancelled: 'cancelled',
}

export class ImageError extends CaissonError {
  override readonly name = 'ImageError'
  /** What failed in particular; `code` is the common one. */
  readonly kind: ImageErrorKind
  /** Empty when the message of a program says all there is. */
  declare readonly remedy: string

  constructor(kind: ImageErrorKind, seen: string, remedy: string, { cause }: ErrorOptions = {}) {
    super(commonCodes[kind] ?? 'image_unavailable', `VM image: ${seen}`, { remedy, cause })
    this.kind = kind
  }
}
