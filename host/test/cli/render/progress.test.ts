// What a run's progress writes around its lines.
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import type { ChangedPath } from '#specs/protocol/change.ts'
import type { HostDelta } from '#specs/protocol/event.ts'
import { initialRunState } from '#specs/protocol/run-state.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { describeWait, LiveRows } from '../../../cli/render/live-rows.ts'
import { ProgressView } from '../../../cli/render/progress.ts'
import type { FeedItem } from '../../../journal/run-feed.ts'
import { runId, runStart } from '../../support/run-values.ts'

function shownOn(isTTY: boolean): string {
  const out = Object.assign(new PassThrough(), { isTTY, columns: 80 })
  using view = new ProgressView(out)
  view.pause()
  view.lines(['first'])
  view.lines(['second'])
  return String(out.read())
}

it('the first line of a terminal takes the place of keys that were pressed before it; a file gets lines alone [H.01]', () => {
  expect(shownOn(true)).toBe('\r\u001b[Jfirst\nsecond\n')
  expect(shownOn(false)).toBe('first\nsecond\n')
})

it('a quiet run says why a step failed, and nothing of one that completed [H.01]', () => {
  const out = Object.assign(new PassThrough(), { isTTY: false, columns: 80 })
  using view = new ProgressView(out, { isQuiet: true })
  const hash = 'a'.repeat(64)
  const end = (n: number, state: string, text: string) =>
    view.show({
      ...{ source: 'agent', agentPath: 'root', runId, seq: n, n, at: Date.now(), prev: hash, hash },
      event: { type: 'step-end', stepId: 'task', state, reason: state, text, merged: 0, conflicts: [] },
    } as unknown as FeedItem)
  end(1, 'completed', 'all well')
  end(2, 'failed', 'not understood')
  const said = String(out.read())
  expect(said).toContain('not understood')
  expect(said).not.toContain('all well')
})

it.each([true, false])(
  'a run that its process left is interrupted, as in lists, and not failed; quiet: %j [H.01 G.05]',
  (isQuiet) => {
    const out = Object.assign(new PassThrough(), { isTTY: false, columns: 80 })
    const view = new ProgressView(out, { isQuiet })
    const hash = 'a'.repeat(64)
    const left = { reason: 'model_unreachable', message: 'it takes requests again at 17:00' } as const
    const line = { source: 'host', runId, seq: 1, at: Date.now(), prev: hash, hash } as const
    view.show({ ...line, event: { type: 'run-interrupt', ...left } })
    const end = { outcome: 'failed', summary: '', structured: false, durationMs: 1, ...left } as const
    view.end({ ...initialRunState, end })
    expect(String(out.read())).toBe(
      'Run interrupted\n  │ model_unreachable: it takes requests again at 17:00\n',
    )
  },
)

it('the status line counts from the start of the run, also for who attaches later [H.01]', async () => {
  const out = Object.assign(new PassThrough(), { isTTY: true, columns: 80, rows: 24 })
  using view = new ProgressView(out)
  const hash = 'a'.repeat(64)
  const at = Date.now() - 125_000
  view.show({ source: 'host', runId, seq: 1, at, prev: hash, hash, event: runStart } as FeedItem)
  await expect.poll(() => String(out.read() ?? ''), { timeout: 5_000 }).toContain('2 min 5 s')
})

it('the status line says what a model request waits for, until when, and its place [H.01 S1.10]', () => {
  const wait = { type: 'model-wait', requestId: 'model-1' } as const
  expect(describeWait({ ...wait, for: 'answer' })).toBe('waiting for the model')
  expect(describeWait({ ...wait, for: 'turn', position: 3 })).toBe(
    'waiting for other model requests (number 3)',
  )
  expect(describeWait({ ...wait, for: 'pause', position: 1, until: 13_000 }, 1_000)).toBe(
    'waiting: the model server limits requests, 12 s more',
  )
})

it('a live row names what the run has changed so far and a flagged path, without control characters [S1.10 H.01]', () => {
  const rows = new LiveRows()
  const show = (paths: Extract<HostDelta, { type: 'changes' }>['paths'], isPartial = false) => {
    const delta = { type: 'changes', paths, isPartial } as const
    rows.take({ source: 'delta', runId: 'run-00000000000000000001', agentPath: 'root', delta })
    return rows.above(initialRunState, colorsFor({ isTTY: false } as never))
  }
  expect(show([])).toEqual([])
  const paths = ['a.ts', 'b\u001b[2J.ts', 'c.ts', 'd.ts'].map((path, at) => {
    return { path, kind: 'modified', added: at, removed: 1 } as const
  })
  const [row = ''] = show(paths)
  expect(row).toMatch(/^ {2}changed so far: 4 files, \+6 −4 \(a\.ts, .*, c\.ts, …\)$/)
  expect(row).not.toContain('\u001b')
  const flagged = { path: '.git/hooks/pre-commit', kind: 'added', flags: ['it runs'] } satisfies ChangedPath
  expect(show([flagged], true)).toEqual([
    '  changed so far: at least 1 file, 1 flagged: .git/hooks/pre-commit (.git/hooks/pre-commit)',
  ])
})
