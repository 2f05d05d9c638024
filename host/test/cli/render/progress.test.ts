// What a run's progress writes around its lines.
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { describeWait } from '../../../cli/render/live-rows.ts'
import { ProgressView } from '../../../cli/render/progress.ts'

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
