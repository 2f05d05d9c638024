import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { FairOrder, lanesMax, type Waiting } from '../../queue/fair-order.ts'

let position = 0
const waiting = (lane: string, name: string, more: Partial<Waiting> = {}): Waiting => ({
  ...{ runId: name, lane, priority: 'normal', isContinued: false, position: ++position },
  ...more,
})
const idsOf = (order: FairOrder) => order.list.map(({ runId }) => runId)

describe('the order of waiting runs', () => {
  it('serves the lane with the fewest runs at work, then the one that was served longest ago [S4.12]', () => {
    const order = new FairOrder()
    order.begin('a')
    order.begin('a')
    order.begin('b')
    for (const name of ['a1', 'a2', 'b1', 'b2', 'c1', 'c2']) order.add(waiting(name.slice(0, 1), name))
    expect(idsOf(order)).toEqual(['c1', 'b1', 'c2', 'a1', 'b2', 'a2'])
    order.end('a')
    order.end('a')
    expect(idsOf(order)).toEqual(['c1', 'a1', 'b1', 'c2', 'a2', 'b2'])
  })

  it('puts those that have begun first, then priorities, then who came first, within a lane alone [S4.12]', () => {
    const order = new FairOrder()
    order.add(waiting('a', 'low', { priority: 'low' }))
    order.add(waiting('a', 'first'))
    order.add(waiting('a', 'second'))
    order.add(waiting('a', 'high', { priority: 'high' }))
    order.add(waiting('a', 'begun', { priority: 'low', isContinued: true }))
    order.add(waiting('b', 'other', { priority: 'low' }))
    expect(idsOf(order)).toEqual(['begun', 'other', 'high', 'first', 'second', 'low'])
    expect(order.remove({ runId: 'first', lane: 'a' })).toBe(true)
    expect(order.remove({ runId: 'first', lane: 'a' })).toBe(false)
    expect([order.waitingOf('a'), order.waitingOf('b'), order.waitingOf('c')]).toEqual([4, 1, 0])
  })

  it('continues where an earlier process stopped [S4.12]', () => {
    const order = new FairOrder(
      new Map([
        ['a', 7],
        ['b', 3],
      ]),
    )
    for (const name of ['a1', 'b1', 'c1']) order.add(waiting(name.slice(0, 1), name))
    expect(idsOf(order)).toEqual(['c1', 'b1', 'a1'])
    expect(order.begin('b')).toBe(8)
  })

  it('is the order in which runs start one after another, and lets no lane wait for two turns of another [S4.12]', () => {
    const runs = fc.array(fc.record({ lane: fc.constantFrom('a', 'b', 'c', 'd'), high: fc.boolean() }), {
      maxLength: 30,
    })
    void fc.assert(
      fc.property(runs, (given) => {
        const order = new FairOrder()
        for (const [at, { lane, high }] of given.entries())
          order.add(waiting(lane, `${at}`, { priority: high ? 'high' : 'low' }))
        const told = idsOf(order)
        const started: Waiting[] = []
        for (let [next] = order.list; next !== undefined; [next] = order.list) {
          started.push(next)
          order.remove(next)
          order.begin(next.lane)
        }
        expect(started.map(({ runId }) => runId)).toEqual(told)
        const lanes = new Set(given.map(({ lane }) => lane))
        for (const lane of lanes) {
          const own = given.filter((run) => run.lane === lane).length
          const last = started.findLastIndex((run) => run.lane === lane)
          for (const other of lanes) {
            const before = started.slice(0, last).filter((run) => run.lane === other).length
            expect(before).toBeLessThanOrEqual(own)
          }
        }
      }),
      { seed: 4_12, numRuns: 200 },
    )
  })

  it('forgets lanes that neither wait nor work [S4.12]', () => {
    const order = new FairOrder()
    order.add(waiting('waits', 'w'))
    for (let at = 0; at < 2 * lanesMax; at++) {
      order.begin(`lane-${at}`)
      order.end(`lane-${at}`)
    }
    expect(idsOf(order)).toEqual(['w'])
    // It was served last of all, which is forgotten.
    order.add(waiting('lane-0', 'again'))
    order.add(waiting(`lane-${2 * lanesMax - 1}`, 'recent'))
    expect(idsOf(order)).toEqual(['w', 'again', 'recent'])
  })
})
