/**
 * A timeout that counts only the time during which this process runs. A process that was stopped (Ctrl-Z, SIGSTOP, a
 * laptop asleep) could not read what the other side sent meanwhile, so that time says nothing about the other side.
 */

const tickMs = 1_000

/**
 * Calls `onEnd` after `timeoutMs` of running time. Returns a function that cancels it.
 * @param clock ms, also of the time in which the process was stopped
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
    // A tick that is far too late comes from a process that was stopped: it counts as one tick.
    const passedMs = now - last
    leftMs -= passedMs > stepMs + tickMs ? stepMs : passedMs
    last = now
    // The part of a millisecond by which timers may be early.
    if (leftMs >= 1) return
    clearInterval(timer)
    onEnd()
  }, stepMs)
  return () => clearInterval(timer)
}
