// The clock is the test's; a stopped process is one whose timers come late.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Deadline } from '../../runs/deadline.ts'

describe('the time limit of a run', () => {
  let stoppedMs = 0
  beforeEach(() => {
    stoppedMs = 0
    vi.useFakeTimers()
    const { now } = performance
    vi.spyOn(performance, 'now').mockImplementation(() => now.call(performance) + stoppedMs)
  })
  afterEach(() => {
    vi.restoreAllMocks()
    vi.useRealTimers()
  })

  it('does not count time in which the host process was stopped [R.02]', () => {
    const onExpire = vi.fn()
    using deadline = new Deadline(60_000, onExpire)
    for (let stop = 0; stop < 3; stop++) {
      vi.advanceTimersByTime(10_000)
      stoppedMs += 3_600_000
    }
    expect(deadline.leftMs).toBeGreaterThan(25_000)
    vi.advanceTimersByTime(20_000)
    expect(onExpire).not.toHaveBeenCalled()
    vi.advanceTimersByTime(15_000)
    expect(onExpire).toHaveBeenCalledTimes(1)
  })

  it('stands during a wait and continues with what was left [S0.07]', () => {
    const onExpire = vi.fn()
    using deadline = new Deadline(10_000, onExpire)
    vi.advanceTimersByTime(4_000)
    deadline.hold(1, 'approval')
    vi.advanceTimersByTime(3_600_000)
    expect(deadline.leftMs).toBe(6_000)
    deadline.hold(-1, 'approval')
    vi.advanceTimersByTime(5_999)
    expect(onExpire).not.toHaveBeenCalled()
    vi.advanceTimersByTime(1)
    expect(onExpire).toHaveBeenCalledTimes(1)
    expect(deadline.leftMs).toBe(0)
  })
})
