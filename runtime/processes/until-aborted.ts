/** Waiting that a signal ends, whatever becomes of what is waited for. */

/** The value of `work`, unless the signal is aborted first: then its reason is thrown, and nobody waits for the work. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const onAbort = () => reject(signal.reason)
  if (signal.aborted) onAbort()
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([promise, work])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
