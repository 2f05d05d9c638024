import { expect, it, onTestFinished, vi } from 'vitest'
import type { HostDelta } from '#specs/protocol/event.ts'
import type { RunRecord } from '../../journal/run-record.ts'
import { tellChanges } from '../../runs/prepare.ts'

it('tells how much of a large change set has arrived, and no more than once per second [S1.10]', () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  const told: HostDelta[] = []
  const delta: RunRecord['delta'] = (_path, one) => void told.push(one as HostDelta)
  const tell = tellChanges({ delta } as RunRecord)
  for (let entries = 1; entries <= 25; entries += 1) {
    vi.advanceTimersByTime(100)
    tell(entries, entries * 1_000)
  }
  const texts = ['reading the changes', 'reading the changes: 10 paths, 10.0 kB']
  expect(told).toEqual([...texts, 'reading the changes: 20 paths, 20.0 kB'].map(prepare))
})

const prepare = (text: string) => ({ type: 'prepare', what: 'changes', text })
