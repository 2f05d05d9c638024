import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { Deadline } from '../../runs/deadline.ts'
import { Feed, type FeedItem } from '../../runs/feed.ts'

const event = (seq: number) => ({ seq, source: 'host', event: { type: 'note' } }) as unknown as JournalEvent
const delta = (text: string): FeedItem => ({
  source: 'delta',
  runId: 'run-00000000000000000001',
  agentPath: 'root',
  delta: { type: 'text-delta', stepId: 's', text },
})

async function drain(items: AsyncIterable<FeedItem>): Promise<string[]> {
  const seen: string[] = []
  for await (const item of items) seen.push(item.source === 'delta' ? item.delta.text : String(item.seq))
  return seen
}

describe('the feed of a run', () => {
  it('gives every watcher all events in order, late ones too, and deltas to those who were there [S1.10]', async () => {
    const feed = new Feed()
    const early = drain(feed.watch())
    feed.push(event(1))
    feed.push(delta('a'))
    const late = drain(feed.watch())
    feed.push(event(2))
    feed.end()
    expect(await early).toEqual(['1', 'a', '2'])
    expect(await late).toEqual(['1', '2'])
    expect(await drain(feed.watch())).toEqual(['1', '2'])
  })

  it('drops deltas, never events, for a watcher that does not read', async () => {
    const feed = new Feed()
    const slow = feed.watch()
    for (let index = 0; index < 30_000; index += 1) feed.push(delta('x'))
    feed.push(event(1))
    feed.end()
    const seen = await drain(slow)
    expect(seen.at(-1)).toBe('1')
    expect(seen.length).toBeLessThan(20_000)
  })
})

describe('a late watcher', () => {
  it('reads a long run in a time that grows with its length, not with its square', async () => {
    const msFor = async (count: number): Promise<number> => {
      const feed = new Feed()
      for (let seq = 1; seq <= count; seq += 1) feed.push(event(seq))
      feed.end()
      let best = Number.POSITIVE_INFINITY
      for (let round = 0; round < 3; round += 1) {
        const startedAt = performance.now()
        let read = 0
        for await (const _ of feed.watch()) read += 1
        expect(read).toBe(count)
        best = Math.min(best, performance.now() - startedAt)
      }
      return best
    }
    await msFor(10_000)
    // Eight times as many: about 8 where it is linear, at least 64 where it is quadratic.
    expect((await msFor(160_000)) / (await msFor(20_000))).toBeLessThan(30)
  })
})

describe('a deadline', () => {
  it('stands still while it is held, also by two at once, and expires once it ran its time', async () => {
    let expired = false
    using deadline = new Deadline(150, () => {
      expired = true
    })
    deadline.hold(1)
    deadline.hold(1)
    await sleep(250)
    deadline.hold(-1)
    await sleep(100)
    expect(expired).toBe(false)
    deadline.hold(-1)
    await expect.poll(() => expired, { timeout: 5_000 }).toBe(true)
  })
})
