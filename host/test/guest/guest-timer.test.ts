// The clock is the test's; a VM that stands still is one whose monitor does not answer.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { GuestTimer } from '../../guest/guest-timer.ts'

describe('a time limit for the guest', () => {
  let ended = 0
  let open: PromiseWithResolvers<void>[] = []
  let isStill = false
  beforeEach(() => {
    ended = 0
    open = []
    isStill = false
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })
  const probe = async (): Promise<void> => {
    if (!isStill) return
    const waits = Promise.withResolvers<void>()
    open.push(waits)
    await waits.promise
  }
  const thaw = (): void => {
    isStill = false
    for (const { resolve } of open.splice(0)) resolve()
  }
  const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms)

  it.each([400, 15_000, 60_000])('of %i ms ends once while the VM runs [C.03]', async (timeoutMs) => {
    new GuestTimer(timeoutMs, () => ended++, probe)
    await pass(timeoutMs - 1)
    expect(ended).toBe(0)
    await pass(2_000)
    expect(ended).toBe(1)
    await pass(600_000)
    expect(ended).toBe(1)
  })

  it('waits for a VM that stands still, whenever that began, and then gives it the whole time again [R.02]', async () => {
    for (const beganMs of [0, 1, 500, 7_300, 13_900, 14_900]) {
      ended = 0
      const timer = new GuestTimer(15_000, () => ended++, probe)
      await pass(beganMs)
      isStill = true
      await pass(3_600_000)
      expect({ beganMs, ended }).toEqual({ beganMs, ended: 0 })
      // One question at a time, however long the VM stands still.
      expect(open.length).toBe(1)
      thaw()
      await pass(14_000)
      expect({ beganMs, ended }).toEqual({ beganMs, ended: 0 })
      await pass(3_000)
      expect({ beganMs, ended }).toEqual({ beganMs, ended: 1 })
      timer.cancel()
    }
  })

  it('counts when the monitor is gone: that says nothing for the VM [R.02]', async () => {
    new GuestTimer(
      15_000,
      () => ended++,
      () => Promise.reject(new Error('closed')),
    )
    await pass(17_000)
    expect(ended).toBe(1)
  })

  it('asks nothing of the VM when the guest answers at once [R.02]', async () => {
    isStill = true
    const timer = new GuestTimer(15_000, () => ended++, probe)
    await pass(900)
    timer.cancel()
    await pass(60_000)
    expect([ended, open.length]).toEqual([0, 0])
  })
})
