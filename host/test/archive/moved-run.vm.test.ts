import { expect, it } from 'vitest'
import { recoverRun } from '../support/recovered-run.ts'

it('a run whose host process was killed continues elsewhere from its exported file, and does nothing twice [R.09, R.01]', async () => {
  // Behind the call of the host tool; the order of the lines varies by one or two.
  const moved = await recoverRun({ killSelfAfter: 45, moves: true })
  expect(moved).toMatchObject({
    files: { 'log.txt': 'one\ntwo\nthree\n', 'new.txt': 'new\n' },
    orders: ['ordered a7'],
    ends: 1,
    leftVms: [],
    isKilled: true,
  })
  expect(moved.events.filter(({ event }) => event.type === 'run-resume')).toMatchObject([
    { event: { epoch: 2, checkpointId: expect.stringMatching(/^cp-/) } },
  ])
}, 300_000)
