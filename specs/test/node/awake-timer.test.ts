// The clock is the test's: a stopped process is one whose timers come late.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { AwakeTimer } from '../../node/awake-timer.ts'

describe('a timeout of running time', () => {
  let ended = 0
  let stoppedMs = 0
  beforeEach(() => {
    ended = 0
    stoppedMs = 0
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })
  const clock = () => performance.now() + stoppedMs
  const start = (timeoutMs: number) => new AwakeTimer(timeoutMs, () => ended++, { clock })
  /** The clock continues, and no timer of this process fires. */
  const stopFor = (ms: number) => {
    stoppedMs += ms
  }

  it.each([1, 50, 1_000, 2_500, 60_000])('ends once after %i ms [C.03]', (timeoutMs) => {
    start(timeoutMs)
    vi.advanceTimersByTime(timeoutMs - 1)
    expect(ended).toBe(0)
    vi.advanceTimersByTime(1_001)
    expect(ended).toBe(1)
    vi.advanceTimersByTime(600_000)
    expect(ended).toBe(1)
  })

  it('does not end once it is cancelled [C.03]', () => {
    const timer = start(5_000)
    vi.advanceTimersByTime(4_000)
    timer.cancel()
    vi.advanceTimersByTime(60_000)
    expect(ended).toBe(0)
  })

  it('does not count the time in which the process was stopped [C.03]', () => {
    start(60_000)
    for (let stop = 0; stop < 5; stop++) {
      vi.advanceTimersByTime(10_000)
      stopFor(3_600_000)
    }
    vi.advanceTimersByTime(4_000)
    expect(ended).toBe(0)
    vi.advanceTimersByTime(12_000)
    expect(ended).toBe(1)
  })

  it('tells the time that has passed, without that of a stop nobody has noticed yet [C.03]', () => {
    const timer = start(Number.POSITIVE_INFINITY)
    vi.advanceTimersByTime(2_500)
    expect(timer.passedMs).toBe(2_500)
    stopFor(600_000)
    expect(timer.passedMs).toBeLessThanOrEqual(3_500)
    timer.refresh()
    expect(timer.passedMs).toBe(0)
    timer.cancel()
    vi.advanceTimersByTime(60_000)
    expect(timer.passedMs).toBe(0)
  })
})
