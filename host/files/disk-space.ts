/** Writing where the disk may be full: tells that failure from others, and tries again once somebody made room. */

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

/** Resolves when there may be room; rejects when nobody waits any longer, with the reason. */
export type WaitForDiskSpace = (need: DiskSpaceNeed) => Promise<void>

/** Whether the disk, or the user's share of it, is full. */
export function isDiskFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT')
}

/**
 * Does `write`, and again whenever the disk was full and there is room. `write` must not depend on what a failed try left.
 * @param wait absent: the failure is thrown at once
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
