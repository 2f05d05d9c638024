import { setImmediate as soon } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { type QueueEntry, RunQueue, type Turn } from '../../queue/run-queue.ts'

const limits = { maxAtWork: 1, maxWaiting: 3, maxWaitingPerLane: 2 }
const entry = (runId: string, more: Partial<QueueEntry> = {}): QueueEntry => ({
  ...{ runId, lane: '', priority: 'normal', isContinued: false },
  ...more,
})
const never = new AbortController().signal
const atWorkOf = (turns: readonly Turn[]) => turns.map(({ isAtWork }) => isAtWork)

describe('the queue of a host', () => {
  it('lets as many runs begin as may be at work, and the next when one leaves [S4.12]', async () => {
    const queue = new RunQueue({ ...limits, maxAtWork: 2 })
    const turns = ['a', 'b', 'c', 'd'].map((runId) => queue.enter(entry(runId)))
    expect(atWorkOf(turns)).toEqual([true, true, false, false])
    expect(queue.counts).toEqual({ atWork: 2, waiting: 2 })
    expect([queue.placeOf('a'), queue.placeOf('d'), queue.placeOf('none')]).toEqual([
      null,
      { place: 2, waiting: 2, priority: 'normal' },
      null,
    ])
    const third = turns[2]?.wait({ signal: never })
    turns[0]?.leave()
    turns[0]?.leave()
    expect(await third).toBe('begun')
    for (const turn of turns) turn.leave()
    expect(queue.counts).toEqual({ atWork: 0, waiting: 0 })
  })

  it('lets no more runs of a lane work than its bound, and those of others begin before it [S4.12, S4.10]', () => {
    const queue = new RunQueue({ maxAtWork: 3, maxWaiting: 2, maxWaitingPerLane: 1 })
    const bounded = { lane: 'a', laneMaxAtWork: 1 }
    const [first, second] = ['a1', 'a2'].map((runId) => queue.enter(entry(runId, bounded)))
    expect(atWorkOf([first as Turn, second as Turn])).toEqual([true, false])
    // One more would have to wait, and one of another lane would not.
    expect(() => queue.requireRoom('a', 1)).toThrow(/1 of at most 1 of this caller/)
    queue.requireRoom('b')
    const other = queue.enter(entry('b1', { lane: 'b' }))
    expect([other.isAtWork, second?.isAtWork]).toEqual([true, false])
    other.leave()
    expect(second?.isAtWork).toBe(false)
    first?.leave()
    expect(second?.isAtWork).toBe(true)
  })

  it('refuses beyond its bounds, in total and of a lane, but never what was accepted before [S4.12]', () => {
    const queue = new RunQueue(limits)
    queue.requireRoom('a')
    for (const runId of ['a', 'b', 'c']) queue.enter(entry(runId, { lane: 'a' }))
    expect(() => queue.requireRoom('a')).toThrow(
      '2 of at most 3 runs wait, and 2 of at most 2 of this caller',
    )
    queue.requireRoom('b')
    queue.enter(entry('d', { lane: 'b' }))
    expect(() => queue.requireRoom('c')).toThrow(/^the queue is full: 3 of at most 3/)
    queue.enter(entry('e', { lane: 'b', isContinued: true }))
    expect(queue.counts.waiting).toBe(4)
    const none = new RunQueue({ maxAtWork: 1, maxWaiting: 0, maxWaitingPerLane: 0 })
    none.requireRoom()
    none.enter(entry('a'))
    expect(() => none.requireRoom()).toThrow(expect.objectContaining({ code: 'queue_full' }))
  })

  it('ends a wait by its signal, by its time and by the end of the host, and the place is free [S4.12]', async () => {
    const queue = new RunQueue({ ...limits, maxWaiting: 10 })
    queue.enter(entry('a'))
    const stop = new AbortController()
    const stopped = queue.enter(entry('b')).wait({ signal: stop.signal })
    const late = queue.enter(entry('c', { startBy: Date.now() - 1 })).wait({ signal: never })
    const left = queue.enter(entry('d')).wait({ signal: never })
    stop.abort(new Error('not any more'))
    await expect(stopped).rejects.toThrow('not any more')
    await expect(late).rejects.toMatchObject({ code: 'queue_timeout' })
    expect(queue.counts.waiting).toBe(1)
    queue.close()
    expect(await left).toBe('closed')
    expect(await queue.enter(entry('e')).wait({ signal: never })).toBe('closed')
  })

  it('tells each place once, and lets a run continue without its turn [S4.12]', async () => {
    const queue = new RunQueue(limits)
    const [first, second, third] = ['a', 'b', 'c'].map((runId) => queue.enter(entry(runId))) as [
      Turn,
      Turn,
      Turn,
    ]
    const places: number[][] = []
    const waited = third.wait({ signal: never, onPlace: (...at) => places.push(at) })
    await soon()
    second.leave()
    await soon()
    await soon()
    expect(places).toEqual([
      [2, 2],
      [1, 1],
    ])
    first.leave()
    expect(await waited).toBe('begun')
    first.again()
    expect(queue.placeOf('a')).toMatchObject({ place: 1 })
    const cancelled = Promise.resolve()
    expect(await first.wait({ signal: never, skip: cancelled })).toBe('begun')
    expect(queue.counts).toEqual({ atWork: 2, waiting: 0 })
    // One that has not begun has nothing to end in order.
    const fresh = queue.enter(entry('d')).wait({ signal: AbortSignal.timeout(20), skip: cancelled })
    await expect(fresh).rejects.toThrow()
  })

  it('starts nothing while it is held, and then in order [S4.12]', async () => {
    const queue = new RunQueue(limits)
    const hold = queue.hold()
    const turns = [queue.enter(entry('a')), queue.enter(entry('b', { priority: 'high' }))]
    expect(atWorkOf(turns)).toEqual([false, false])
    hold[Symbol.dispose]()
    hold[Symbol.dispose]()
    expect(atWorkOf(turns)).toEqual([false, true])
  })

  it('estimates the time until the next start by those before [S4.12]', () => {
    const queue = new RunQueue(limits)
    expect(queue.nextStartMs).toBe(10_000)
    const turns = ['a', 'b', 'c', 'd'].map((runId) => queue.enter(entry(runId)))
    for (const turn of turns) turn.leave()
    expect(queue.nextStartMs).toBe(1_000)
  })
})
