import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { WorkspaceLook } from '#specs/protocol/change.ts'
import type { HostDelta } from '#specs/protocol/event.ts'
import type { RunRecord } from '../../../journal/run-record.ts'
import { LiveChanges } from '../../../runs/guest/live-changes.ts'

const look = (...paths: string[]): WorkspaceLook => ({
  paths: paths.map((path) => ({ path, kind: 'added' })),
  isPartial: false,
})

/** A teller over a guest whose looks are these, one after another; the last one repeats. */
function tellerOver(looks: readonly (WorkspaceLook | 'failed')[], watch = { isWatched: true }) {
  const told: HostDelta[] = []
  const asked: number[] = []
  const record = { feed: watch, delta: (_: string, delta: HostDelta) => void told.push(delta) }
  const live = new LiveChanges(record as unknown as RunRecord, async () => {
    const value = looks[Math.min(asked.length, looks.length - 1)] ?? 'failed'
    asked.push(performance.now())
    return value === 'failed'
      ? { ok: false, error: { code: 'rejected', message: 'no' } }
      : { ok: true, value }
  })
  onTestFinished(() => live[Symbol.dispose]())
  return { live, told, asked, watch }
}

describe('the changes of a run under way', () => {
  beforeEach(() => {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
  })

  it('are asked for after calls, at most every two seconds, and told when they differ [S1.10]', async () => {
    const looks = [look(), look('a.txt'), look('a.txt'), look('a.txt', 'b.txt')]
    const { live, told, asked } = tellerOver(looks)
    for (let at = 0; at < 60; at += 1) {
      live.note()
      await vi.advanceTimersByTimeAsync(100)
    }
    expect(asked.map((at) => at - (asked[0] ?? 0))).toEqual([0, 2_000, 4_000, 6_000])
    expect(told.map((delta) => 'paths' in delta && delta.paths.map(({ path }) => path))).toEqual([
      ['a.txt'],
      ['a.txt', 'b.txt'],
    ])
    await vi.advanceTimersByTimeAsync(60_000)
    expect(asked).toHaveLength(4)
  })

  it('are not asked for while nobody watches, nor after the end [S1.10]', async () => {
    const { live, told, asked, watch } = tellerOver([look('a.txt')], { isWatched: false })
    live.note()
    await vi.advanceTimersByTimeAsync(10_000)
    expect(asked).toHaveLength(0)
    watch.isWatched = true
    live.note()
    await vi.advanceTimersByTimeAsync(10_000)
    expect([asked.length, told.length]).toEqual([1, 1])
    live.note()
    live[Symbol.dispose]()
    live.note()
    await vi.advanceTimersByTimeAsync(10_000)
    expect([asked.length, told.length]).toEqual([1, 1])
  })

  it('carry flags by the path, each path once, and a failed look is left out [S1.10 W.03]', async () => {
    const paths = ['src/a.ts', '.git/hooks/pre-commit', '.vscode/tasks.json', 'src/a.ts']
    const { live, told } = tellerOver(['failed', look(...paths)])
    live.note()
    await vi.advanceTimersByTimeAsync(10_000)
    expect(told).toEqual([])
    live.note()
    await vi.advanceTimersByTimeAsync(10_000)
    const flag = [expect.any(String)]
    expect(told).toEqual([
      {
        type: 'changes',
        isPartial: false,
        paths: [
          { path: 'src/a.ts', kind: 'added' },
          { path: '.git/hooks/pre-commit', kind: 'added', flags: flag },
          { path: '.vscode/tasks.json', kind: 'added', flags: flag },
        ],
      },
    ])
  })
})
