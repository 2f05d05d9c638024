// What can go wrong when an image is built, found or checked, as one error class with closed codes.

export type ImageErrorCode =
  /** Not a system that can build an image. */
  | 'platform_unsupported'
  /** Programs that the build needs are not installed; the message names them all. */
  | 'tools_missing'
  /** The mirror no longer has a locked version. */
  | 'lock_unsatisfied'
  /** packages.lock.json cannot be read or has nothing for the architecture. */
  | 'lock_unreadable'
  /** A download failed: network, mirror or registry. */
  | 'download_failed'
  /** A downloaded file is not the locked one. */
  | 'digest_mismatch'
  | 'build_failed'
  /** A file of the image is not what its manifest says. */
  | 'image_damaged'
  /** The recipe or the agent's source is not where it should be. */
  | 'sources_missing'
  | 'bundle_failed'
  /** The file system of the cache did not take what was to be written: full, read-only, or not this user's. */
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
    `what is built cannot be written to the cache ${cacheDir}: ${error.message}`,
    'make room or correct its rights, or set CAISSON_CACHE to a folder of your own',
    { cause: error },
  )
}

/** Its message says what was expected, what was seen, and what to do next; `remedy` is that last part alone. */
export class ImageError extends Error {
  override readonly name = 'ImageError'
  readonly code: ImageErrorCode
  readonly remedy: string

  constructor(code: ImageErrorCode, seen: string, remedy: string, options?: ErrorOptions) {
    super(`VM image: ${seen}${remedy === '' ? '' : `; ${remedy}`}`, options)
    this.code = code
    this.remedy = remedy
  }
}
