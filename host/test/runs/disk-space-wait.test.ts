import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { HostDelta, HostEvent } from '#specs/protocol/event.ts'
import { DiskSpaceWait } from '../../runs/disk-space-wait.ts'

const need = { what: 'the change set', directory: '/state', neededBytes: 1_000 }

class Bench {
  free = 10
  held = 0
  readonly notices: HostDelta[] = []
  readonly waited: HostEvent[] = []
  readonly keeper: DiskSpaceWait

  constructor(maxWaitMs = 60_000) {
    this.keeper = new DiskSpaceWait({
      onNotice: (notice) => this.notices.push(notice),
      onWaited: (event) => this.waited.push(event),
      onHold: (change) => {
        this.held += change
      },
      maxWaitMs,
      readFree: async () => this.free,
    })
  }
}

describe('a run that finds the disk full', () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  it('waits while its time stands still, says how much is needed, and continues when there is space [W.05]', async () => {
    const bench = new Bench()
    let isOver = false
    const waiting = bench.keeper.wait(need).then(() => {
      isOver = true
    })
    await vi.advanceTimersByTimeAsync(5_000)
    expect(bench.held).toBe(1)
    bench.free = 999
    await vi.advanceTimersByTimeAsync(5_000)
    expect(isOver).toBe(false)
    expect(bench.notices).toMatchObject([
      {
        type: 'disk-full',
        directory: '/state',
        freeBytes: 10,
        neededBytes: 1_000,
        text: expect.stringContaining('the change set waits for 1000 free bytes in /state; 10 are free'),
      },
    ])
    bench.free = 1_000
    await vi.advanceTimersByTimeAsync(1_100)
    await waiting
    expect(bench.held).toBe(0)
    expect(bench.waited).toMatchObject([
      { type: 'disk-wait', what: 'the change set', directory: '/state', neededBytes: 1_000 },
    ])
  })

  it('says so again and again, for whoever begins to watch [W.05]', async () => {
    const bench = new Bench()
    const waiting = bench.keeper.wait(need)
    await vi.advanceTimersByTimeAsync(50_000)
    expect(bench.notices.length).toBeGreaterThan(2)
    bench.keeper.giveUp('x')
    await expect(waiting).rejects.toThrow()
  })

  it('does not write again at once where there seems to be room: a quota says no although the disk has some [W.05]', async () => {
    const bench = new Bench()
    bench.free = 1_000_000
    let isOver = false
    void bench.keeper.wait(need).then(() => {
      isOver = true
    })
    await vi.advanceTimersByTimeAsync(500)
    expect(isOver).toBe(false)
    await vi.advanceTimersByTimeAsync(600)
    expect(isOver).toBe(true)
  })

  it.each([
    ['is cancelled', (bench: Bench) => bench.keeper.giveUp('cancelled by a person'), 'cancelled by a person'],
    ['has waited long enough', () => vi.advanceTimersByTimeAsync(61_000), 'waited long enough'],
  ])('ends with the reason that is the disk when it %s [W.05]', async (_, end, why) => {
    const bench = new Bench()
    const waiting = bench.keeper.wait(need)
    const failed = expect(waiting).rejects.toMatchObject({
      code: 'no_space',
      message: expect.stringMatching(
        new RegExp(`^the disk is full: the change set needs 1000 .*10 .*${why}`),
      ),
    })
    await vi.advanceTimersByTimeAsync(2_000)
    await end(bench)
    await failed
    expect(bench.held).toBe(0)
    // And no later wait begins.
    await expect(bench.keeper.wait(need)).rejects.toThrow('disk is full')
  })

  it('ends at once when what waits is over [W.05]', async () => {
    const bench = new Bench()
    const over = new AbortController()
    const failed = expect(bench.keeper.wait({ ...need, signal: over.signal })).rejects.toThrow('run is over')
    await vi.advanceTimersByTimeAsync(100)
    over.abort('the run is over')
    await failed
  })
})
