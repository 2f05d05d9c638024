/** Writes files on a disk that may be full: detects that failure and retries once there is space. */

export interface DiskSpaceNeed {
  /** What cannot be written, for a sentence: `the change set`. */
  readonly what: string
  /** A folder on that disk. */
  readonly directory: string
  /** Free bytes at which it is tried again. */
  readonly neededBytes: number
  /** Ends the wait; it then rejects. */
  readonly signal?: AbortSignal
}

/** Resolves when there may be space; rejects with the reason when the wait is given up. */
export type WaitForDiskSpace = (need: DiskSpaceNeed) => Promise<void>

/** Whether the disk, or the user's share of it, is full. */
function isDiskFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT')
}

/**
 * Executes `write`, and repeats it when the disk was full and has space again. `write` must not depend on a failed
 * attempt.
 * @param wait absent: throws the failure immediately
 */
export async function writeWithDiskSpace<T>(
  write: () => Promise<T>,
  wait: (() => Promise<void>) | undefined,
): Promise<T> {
  for (;;) {
    try {
      return await write()
    } catch (error) {
      if (wait === undefined || !isDiskFull(error)) throw error
      await wait()
    }
  }
}
