// What a run's progress writes around its lines.
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
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
  expect(shownOn(true)).toBe('\r\u001b[Kfirst\nsecond\n')
  expect(shownOn(false)).toBe('first\nsecond\n')
})
