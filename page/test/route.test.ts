// Addresses of the page that sign in.
import { expect, it } from 'vitest'
import { parseRoute, parseSignIn } from '../session/route.ts'

const run = 'run-0123456789abcdef0123'

it('an address signs in and opens the run that it names; one that is not exactly of this form does nothing [H.02 V.09]', () => {
  expect(parseSignIn('#token=a-B_c.1')).toEqual({ token: 'a-B_c.1', next: '#/' })
  const given = parseSignIn(`#token=abc&run=${run}`)
  expect(given).toEqual({ token: 'abc', next: `#/runs/${run}` })
  expect(parseRoute(given?.next ?? '')).toEqual({ view: 'run', run, tab: 'activity' })
  for (const hash of [
    ...['', '#', '#/', '#token=', '#token=a b', '#token=abc&', '#token=abc&run=', '#token=abc&run=run-1'],
    ...[`#run=${run}`, `#run=${run}&token=abc`, `#token=abc&run=${run}/changes`, `#token=abc&run=${run}&x=1`],
    ...[`#token=abc&run=${run}\n`, `#token=abc&run=${run.toUpperCase()}`, `x#token=abc&run=${run}`],
  ])
    expect([hash, parseSignIn(hash)]).toEqual([hash, undefined])
})
