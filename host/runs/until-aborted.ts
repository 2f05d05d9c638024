/** Resolves like `work`, or rejects with the signal's reason. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  // `work` may reject after the run has ended; an unhandled rejection would end the process.
  work.catch(() => undefined)
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([work, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
