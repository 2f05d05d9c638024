/**
 * A timeout that counts only the time in which this process runs. A stopped process (Ctrl-Z, SIGSTOP, a sleeping
 * laptop) cannot read messages, so that time says nothing about the other side.
 */

const tickMs = 1_000

/**
 * Calls `onEnd` after `timeoutMs` of running time. Returns a function that cancels it.
 * @param clock time in ms, including time in which the process was stopped
 */
export function awakeTimeout(
  timeoutMs: number,
  onEnd: () => void,
  clock = () => performance.now(),
): () => void {
  const stepMs = Math.min(timeoutMs, tickMs)
  let leftMs = timeoutMs
  let last = clock()
  const timer = setInterval(() => {
    const now = clock()
    // A very late tick means that the process was stopped: count it as one tick.
    const passedMs = now - last
    leftMs -= passedMs > stepMs + tickMs ? stepMs : passedMs
    last = now
    // Timers may fire a fraction of a millisecond early.
    if (leftMs >= 1) return
    clearInterval(timer)
    onEnd()
  }, stepMs)
  return () => clearInterval(timer)
}
