import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import {
  type QueueLimits,
  type QueueTurn,
  type QueueWait,
  RequestQueue,
  sharedQueue,
} from '../../providers/queue.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const never = new AbortController().signal

/** A queue whose turns are kept as they come. */
function startQueue(limits: Partial<QueueLimits> = {}) {
  const queue = new RequestQueue(
    { maxConcurrent: 4, requestsPerMinute: null, ...limits },
    { random: () => 1 },
  )
  const got: { runId: string; turn: QueueTurn | string }[] = []
  const ask = (runId: string, more: object = {}) => {
    const request = { runId, model: 'm', signal: never, maxWaitMs: 600_000, ...more }
    void queue
      .take(request)
      .then((result) => got.push({ runId, turn: result.ok ? result.value : result.error }))
  }
  const turnOf = (at: number): QueueTurn => {
    const turn = got[at]?.turn
    if (turn === undefined || typeof turn === 'string') throw new Error(`no turn ${at}: ${turn}`)
    return turn
  }
  const wait = (ms: number) => vi.advanceTimersByTimeAsync(ms)
  return { queue, got, ask, turnOf, wait }
}

describe('the queue of a key', () => {
  it('lets so many requests be open at once, and the next one when one is over [G.05]', async () => {
    const { got, ask, turnOf, wait } = startQueue({ maxConcurrent: 2 })
    for (let index = 0; index < 4; index += 1) ask('a')
    await wait(0)
    expect(got).toHaveLength(2)
    turnOf(0).release()
    turnOf(0).release()
    await wait(0)
    expect(got).toHaveLength(3)
  })

  it('begins no more than the rate within any minute, and all in the end [G.05]', async () => {
    const pauses = fc.array(fc.integer({ min: 0, max: 30_000 }), { minLength: 1, maxLength: 20 })
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 5 }), pauses, async (rate, gaps) => {
        const { queue, wait } = startQueue({ maxConcurrent: 100, requestsPerMinute: rate })
        const begun: number[] = []
        const request = { runId: 'a', model: 'm', signal: never, maxWaitMs: 2 ** 30 }
        for (const gap of gaps) {
          await wait(gap)
          void queue.take(request).then(() => begun.push(performance.now()))
        }
        await wait(60_001 * Math.ceil(gaps.length / rate))
        expect(begun).toHaveLength(gaps.length)
        for (const at of begun) {
          expect(begun.filter((other) => other >= at && other < at + 60_000).length).toBeLessThanOrEqual(rate)
        }
      }),
      { numRuns: 50, seed: 7 },
    )
  })

  it('waits out the minute before one more than the rate [G.05]', async () => {
    const { got, ask, wait } = startQueue({ requestsPerMinute: 2 })
    ask('a')
    await wait(10_000)
    ask('a')
    ask('a')
    await wait(49_000)
    expect(got).toHaveLength(2)
    await wait(1_500)
    expect(got).toHaveLength(3)
    expect(got[2]).toMatchObject({ turn: { waitedMs: expect.closeTo(50_000, -2) } })
  })

  it('takes turns between runs, however many requests one of them has waiting [G.05]', async () => {
    const { got, ask, turnOf, wait } = startQueue({ maxConcurrent: 1 })
    for (let index = 0; index < 5; index += 1) ask('greedy')
    ask('modest')
    ask('late')
    for (let index = 0; index < 6; index += 1) {
      await wait(0)
      turnOf(index).release()
    }
    await wait(0)
    expect(got.map(({ runId }) => runId).slice(0, 4)).toEqual(['greedy', 'greedy', 'modest', 'late'])
  })

  it('holds a model back for every run as long as the server asked, and no other model [G.05]', async () => {
    const { got, ask, turnOf, wait } = startQueue()
    ask('a')
    await wait(0)
    expect(turnOf(0).refused(30_000)).toBe(30_000)
    turnOf(0).release()
    ask('a')
    ask('b')
    ask('a', { model: 'other' })
    await wait(0)
    // It does not wait behind the held request of its own run either.
    expect(got).toHaveLength(2)
    expect(turnOf(1).refused(60_000)).toBe(60_000)
    ask('b', { model: 'other' })
    await wait(29_000)
    expect(got).toHaveLength(2)
    await wait(1_100)
    expect(got.slice(2).map(({ runId }) => runId)).toEqual(['b', 'a'])
    await wait(30_000)
    expect(got).toHaveLength(5)
  })

  it('lets requests for a model that is limited for hours go at once, and one in ten minutes find out more [G.05]', async () => {
    const { queue, got, ask, turnOf, wait } = startQueue({ maxConcurrent: 1 })
    ask('a')
    ask('b')
    ask('c', { model: 'other' })
    await wait(0)
    expect(turnOf(0).refused(5 * 3_600_000)).toBe(600_000)
    expect(queue.limitedMs('m')).toBe(5 * 3_600_000)
    turnOf(0).release()
    ask('d')
    await wait(0)
    expect(got.slice(1)).toMatchObject([
      { runId: 'b', turn: 'limited' },
      { runId: 'c', turn: { waitedMs: expect.any(Number) } },
      { runId: 'd', turn: 'limited' },
    ])
    turnOf(2).release()
    await wait(600_000)
    expect(queue.limitedMs('m')).toBe(0)
    ask('e')
    await wait(0)
    turnOf(4).accepted()
    turnOf(4).release()
    ask('f')
    await wait(0)
    expect(turnOf(5).waitedMs).toBe(0)
  })

  it('keeps what the server said of a limit for the other requests of that run, and for no other run [G.05]', async () => {
    const { queue, got, ask, turnOf, wait } = startQueue({ maxConcurrent: 1 })
    ask('a')
    ask('a')
    await wait(0)
    turnOf(0).refused(5 * 3_600_000, 'try again in 5 hours')
    turnOf(0).release()
    await wait(0)
    expect(got[1]).toMatchObject({ runId: 'a', turn: 'limited' })
    expect(queue.refusalWords('m', 'a')).toBe('try again in 5 hours')
    expect([queue.refusalWords('m', 'b'), queue.refusalWords('other', 'a')]).toEqual([undefined, undefined])
  })

  it('tells each request the pause of its own model [G.05]', async () => {
    const { ask, turnOf, wait } = startQueue({ maxConcurrent: 1 })
    ask('a')
    await wait(0)
    const told: unknown[] = []
    const onWait = (wait: QueueWait, inMs?: number) => told.push([wait.for, inMs])
    turnOf(0).refused(30_000)
    ask('b', { onWait })
    ask('c', { model: 'other', onWait })
    expect(told).toEqual([
      ['pause', 30_000],
      ['turn', undefined],
    ])
  })

  it('pauses 2 s and twice as long each time while a model refuses, at most 60 s [G.05]', async () => {
    const { ask, turnOf, wait } = startQueue()
    const pauses: number[] = []
    for (let index = 0; index < 7; index += 1) {
      ask('a')
      await wait(61_000)
      pauses.push(turnOf(index).refused(null) / 1000)
      turnOf(index).release()
    }
    expect(pauses).toEqual([2, 4, 8, 16, 32, 60, 60])
    ask('a')
    await wait(61_000)
    turnOf(7).accepted()
    turnOf(7).release()
    ask('a')
    await wait(0)
    expect(turnOf(8).refused(null)).toBe(2_000)
  })

  it('pauses longer than a request that proved too short, so that nobody asks without end [G.05]', async () => {
    const { ask, turnOf, wait } = startQueue()
    const pauses: number[] = []
    for (let index = 0; index < 3; index += 1) {
      ask('a')
      await wait(61_000)
      pauses.push(turnOf(index).refused(0))
      turnOf(index).release()
    }
    expect(pauses).toEqual([0, 4_000, 8_000])
  })

  it('counts the refusals of requests that were open together as one [G.05]', async () => {
    const { ask, turnOf, wait } = startQueue()
    for (let index = 0; index < 4; index += 1) ask('a')
    await wait(100)
    const pauses = [0, 1, 2, 3].map((index) => turnOf(index).refused(null))
    expect(pauses).toEqual([2_000, 2_000, 2_000, 2_000])
  })

  it('lets a cancelled request and one past its deadline go, and the others come [G.05]', async () => {
    const { got, ask, turnOf, wait } = startQueue({ maxConcurrent: 1 })
    const controller = new AbortController()
    ask('first')
    ask('cancelled', { signal: controller.signal })
    ask('late', { maxWaitMs: 5_000 })
    ask('patient')
    await wait(10)
    controller.abort()
    await wait(5_000)
    expect(got.slice(1)).toEqual([
      { runId: 'cancelled', turn: 'cancelled' },
      { runId: 'late', turn: 'timed_out' },
    ])
    turnOf(0).release()
    await wait(0)
    expect(got[3]).toMatchObject({ runId: 'patient', turn: { waitedMs: expect.any(Number) } })
    ask('gone', { signal: controller.signal })
    await wait(0)
    expect(got[4]).toEqual({ runId: 'gone', turn: 'cancelled' })
  })

  it('is one for all runs with the same server and key, and another for another key [G.05]', () => {
    const limits = { maxConcurrent: 1, requestsPerMinute: null }
    const queue = sharedQueue('https://a.test/v1', 'key', limits)
    expect(sharedQueue('https://a.test/v1/other', 'key', limits)).toBe(queue)
    expect(sharedQueue('https://a.test/v1', 'key2', limits)).not.toBe(queue)
    expect(sharedQueue('https://b.test/v1', 'key', limits)).not.toBe(queue)
  })
})
