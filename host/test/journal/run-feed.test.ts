import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { Feed, type FeedItem } from '../../journal/run-feed.ts'
import { Deadline } from '../../runs/deadline.ts'

const event = (seq: number) => ({ seq, source: 'host', event: { type: 'note' } }) as unknown as JournalEvent
const itemOf = (one: Extract<FeedItem, { source: 'delta' }>['delta']): FeedItem => ({
  source: 'delta',
  runId: 'run-00000000000000000001',
  agentPath: 'root',
  delta: one,
})
type Piece = Extract<FeedItem, { source: 'delta' }>['delta']
const delta = (text: string) => itemOf({ type: 'text-delta', stepId: 's', turn: 1, offset: 0, text })

/** What a watcher gets who comes now. */
async function collect(feed: Feed): Promise<FeedItem[]> {
  const watcher = feed.watch()
  feed.end()
  const items: FeedItem[] = []
  for await (const item of watcher) items.push(item)
  return items
}

async function drain(items: AsyncIterable<FeedItem>): Promise<string[]> {
  const seen: string[] = []
  for await (const item of items) {
    if (item.source !== 'delta') seen.push(String(item.seq))
    else if (item.delta.type === 'model-wait') seen.push(`${item.delta.requestId} ${item.delta.for}`)
    else seen.push('text' in item.delta ? (item.delta.text ?? '') : item.delta.type)
  }
  return seen
}

describe('the feed of a run', () => {
  it('gives every watcher all events in order, late ones too, and deltas to those who were there or while their turn lasts [S1.10]', async () => {
    const feed = new Feed()
    const early = drain(feed.watch())
    feed.push(event(1))
    feed.push(delta('a'))
    const late = drain(feed.watch())
    feed.push(event(2))
    feed.end()
    expect(await early).toEqual(['1', 'a', '2'])
    expect(await late).toEqual(['1', 'a', '2'])
    expect(await drain(feed.watch())).toEqual(['1', '2'])
  })

  it('begins at the number that a watcher asks for, also with one that is still to come [S1.10]', async () => {
    const feed = new Feed()
    for (const seq of [1, 2, 3]) feed.push(event(seq))
    const [two, five] = [drain(feed.watch({ from: 2 })), drain(feed.watch({ from: 5 }))]
    for (const seq of [4, 5]) feed.push(event(seq))
    feed.end()
    expect([await two, await five]).toEqual([['2', '3', '4', '5'], ['5']])
    expect(() => feed.watch({ from: 0 })).toThrow('from: expected a whole number of at least 1')
  })

  it('tells a late watcher what each open model request waits for [S1.10]', async () => {
    const feed = new Feed()
    const wait = (requestId: string, what: 'turn' | 'answer'): FeedItem => ({
      source: 'delta',
      runId: 'run-00000000000000000001',
      agentPath: 'root',
      delta: { type: 'model-wait', requestId, for: what },
    })
    feed.push(event(1))
    for (const id of ['model-1', 'model-2'])
      for (const what of ['turn', 'answer'] as const) feed.push(wait(id, what))
    const end = { seq: 2, source: 'host', event: { type: 'model-end', requestId: 'model-1' } }
    feed.push(end as unknown as JournalEvent)
    const late = drain(feed.watch())
    feed.end()
    expect(await late).toEqual(['1', '2', 'model-2 answer'])
    expect(await drain(feed.watch())).toEqual(['1', '2'])
  })

  it('gives a late watcher the turns under way from their first character, and nothing twice [S1.10]', async () => {
    const feed = new Feed()
    const piece = (
      type: 'text-delta' | 'reasoning-delta',
      turn: number,
      offset: number,
      text: string,
    ): FeedItem => ({
      source: 'delta',
      runId: 'run-00000000000000000001',
      agentPath: 'root',
      delta: { type, stepId: 's', turn, offset, text },
    })
    const turnEnd = (seq: number, turn: number) =>
      ({
        ...{ seq, source: 'agent', agentPath: 'root' },
        event: { type: 'turn-end', stepId: 's', turn },
      }) as unknown as JournalEvent
    feed.push(piece('reasoning-delta', 1, 0, 'hm'))
    feed.push(piece('text-delta', 1, 0, 'one'))
    // The next turn begins before the end of this one is written.
    feed.push(piece('text-delta', 2, 0, 'tw'))
    feed.push(turnEnd(1, 1))
    feed.push(piece('text-delta', 2, 2, 'o'))
    const late = drain(feed.watch())
    feed.push(piece('text-delta', 2, 3, ' and more'))
    const later = drain(feed.watch())
    feed.push(itemOf({ type: 'turn-reset', stepId: 's', turn: 2 }))
    const afterReset = drain(feed.watch())
    feed.push(piece('text-delta', 2, 0, 'again'))
    feed.push(turnEnd(2, 2))
    const afterEnd = drain(feed.watch())
    feed.end()
    expect(await late).toEqual(['1', 'two', ' and more', 'turn-reset', 'again', '2'])
    expect(await later).toEqual(['1', 'two and more', 'turn-reset', 'again', '2'])
    expect(await afterReset).toEqual(['1', 'again', '2'])
    expect(await afterEnd).toEqual(['1', '2'])
  })

  it('gives a late watcher the time that is left, and what the run waits for until its agent works [S1.10]', async () => {
    const feed = new Feed()
    feed.push(itemOf({ type: 'prepare', what: 'workspace', text: 'looking' }))
    feed.push(itemOf({ type: 'prepare', what: 'vm', text: 'starting a VM' }))
    const early = drain(feed.watch())
    const start = { seq: 1, source: 'host', event: { type: 'session-start' } }
    feed.push(start as unknown as JournalEvent)
    feed.push(itemOf({ type: 'time-left', remainingMs: 5, at: 1 }))
    const late = drain(feed.watch())
    feed.end()
    expect(await early).toEqual(['starting a VM', '1', 'time-left'])
    expect(await late).toEqual(['1', 'time-left'])
    expect(await drain(feed.watch())).toEqual(['1'])
  })

  it('gives a late watcher the last look at the changes, until the change set is there [S1.10]', async () => {
    const feed = new Feed()
    const look = (path: string) => {
      const paths = [{ path, kind: 'added' as const }]
      feed.push(itemOf({ type: 'changes', paths, isPartial: false }))
    }
    look('first')
    look('second')
    const before = feed.watch()
    const { value } = await before.next()
    expect(value).toMatchObject({ delta: { paths: [{ path: 'second' }] } })
    feed.push({ seq: 1, source: 'host', event: { type: 'changes-ready' } } as unknown as JournalEvent)
    const after = drain(feed.watch())
    feed.end()
    expect(await after).toEqual(['1'])
  })

  it('gives a late watcher what the run waits for after its work, until that is done [S1.10]', async () => {
    for (const type of ['changes-ready', 'vm-kept', 'vm-keep-failed', 'run-end']) {
      const feed = new Feed()
      feed.push(itemOf({ type: 'prepare', what: 'changes', text: 'reading the changes' }))
      const before = drain(feed.watch())
      feed.push({ seq: 1, source: 'host', event: { type } } as unknown as JournalEvent)
      const after = drain(feed.watch())
      feed.end()
      expect([type, await before, await after]).toEqual([type, ['reading the changes', '1'], ['1']])
    }
  })

  it('keeps a bounded part of a long turn, whose gap the offset shows [S1.10]', async () => {
    const feed = new Feed()
    const text = 'x'.repeat(10_000)
    for (let at = 0; at < 300; at += 1)
      feed.push(itemOf({ type: 'text-delta', stepId: 's', turn: 1, offset: at * 10_000, text }))
    const kept: { offset: number; text: string }[] = []
    const watcher = feed.watch()
    feed.end()
    for await (const item of watcher)
      if (item.source === 'delta' && item.delta.type === 'text-delta') kept.push(item.delta)
    const chars = kept.reduce((sum, piece) => sum + piece.text.length, 0)
    expect(chars).toBeGreaterThan(900_000)
    expect(chars).toBeLessThanOrEqual(1024 * 1024)
    expect((kept.at(-1)?.offset ?? 0) + (kept.at(-1)?.text.length ?? 0)).toBe(3_000_000)
  })

  it.each([
    ['steps that it invents', (at) => ({ stepId: `s${at}`, text: '' })],
    ['steps with long texts', (at) => ({ stepId: `s${at}`, text: 'x'.repeat(16_384) })],
    ['calls that it invents', (at) => ({ type: 'arguments-delta', tool: 't', index: at, text: 'x' })],
    ['gaps', (at) => ({ offset: 10 * at, text: 'x' })],
  ] satisfies [string, (at: number) => object][])(
    'keeps a bounded number of pieces, the last ones, of a guest that floods it with %s [S1.10]',
    async (_, about) => {
      const feed = new Feed()
      const pushed = Array.from({ length: 5_000 }, (_, at) =>
        itemOf({ type: 'text-delta', stepId: 's', turn: 1, offset: 0, ...about(at) } as Piece),
      )
      for (const item of pushed) feed.push(item)
      const kept = await collect(feed)
      expect(kept.length).toBeGreaterThan(50)
      expect(kept.length).toBeLessThanOrEqual(500)
      expect(kept).toEqual(pushed.slice(-kept.length))
    },
  )

  it('keeps a bounded number of characters for a watcher that does not read', async () => {
    const feed = new Feed()
    const slow = feed.watch()
    for (let index = 0; index < 1_000; index += 1) feed.push(delta('x'.repeat(16_384)))
    feed.push(event(1))
    feed.end()
    const seen = await drain(slow)
    expect(seen.at(-1)).toBe('1')
    expect(seen.join('').length).toBeLessThan(5 * 1024 * 1024)

    const looked = new Feed()
    const idle = looked.watch()
    const paths = Array.from({ length: 200 }, (_, at) => ({
      path: `${at}`.padEnd(160, 'x'),
      kind: 'added' as const,
    }))
    for (let index = 0; index < 1_000; index += 1)
      looked.push(itemOf({ type: 'changes', paths, isPartial: false }))
    looked.end()
    expect((await drain(idle)).length).toBeLessThan(150)
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
  it('moves the items of a long run at most once each, so that its work does not grow with their square [S1.10]', async () => {
    const count = 20_000
    const feed = new Feed()
    for (let seq = 1; seq <= count; seq += 1) feed.push(event(seq))
    feed.end()
    const watcher = feed.watch()
    let moved = 0
    let read = 0
    const { shift, splice, slice } = Array.prototype
    const spies = [
      vi.spyOn(Array.prototype, 'shift').mockImplementation(function (this: unknown[]) {
        moved += this.length
        return shift.call(this)
      }),
      vi.spyOn(Array.prototype, 'splice').mockImplementation(function (this: unknown[], ...about) {
        moved += this.length
        return splice.apply(this, about)
      }),
      vi.spyOn(Array.prototype, 'slice').mockImplementation(function (this: unknown[], ...about) {
        const copy = slice.apply(this, about)
        moved += copy.length
        return copy
      }),
    ]
    try {
      for await (const _ of watcher) read += 1
    } finally {
      for (const spy of spies) spy.mockRestore()
    }
    expect(read).toBe(count)
    expect(moved).toBeLessThan(count + 1)
  })
})

describe('a deadline', () => {
  it('stands still while it is held, also by two at once, and expires once it ran its time', async () => {
    let expired = false
    const told: (string | undefined)[] = []
    using deadline = new Deadline(
      150,
      () => {
        expired = true
      },
      (_, heldBy) => told.push(heldBy),
    )
    deadline.hold(1, 'approval')
    deadline.hold(1, 'disk')
    await sleep(250)
    deadline.hold(-1, 'approval')
    await sleep(100)
    expect(expired).toBe(false)
    deadline.hold(-1, 'disk')
    await expect.poll(() => expired, { timeout: 5_000 }).toBe(true)
    expect(told).toEqual([undefined, 'approval', 'disk', undefined])
  })
})
