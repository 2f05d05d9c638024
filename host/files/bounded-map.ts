/** Work on many items, a bounded number at a time: each may hold a file open, and their number is not known. */

const maxAtOnce = 16

/** The results in the order of the items; the first failure ends it once what has begun is done. */
export async function mapBounded<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  let next = 0
  const worker = async () => {
    while (next < items.length) {
      const at = next
      next += 1
      try {
        results[at] = await work(items[at] as T)
      } catch (error) {
        next = items.length
        throw error
      }
    }
  }
  const workers = Array.from({ length: Math.min(maxAtOnce, items.length) }, worker)
  const settled = await Promise.allSettled(workers)
  const failed = settled.find(({ status }) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
  return results
}
