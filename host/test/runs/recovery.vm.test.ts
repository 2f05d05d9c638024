import { expect, it } from 'vitest'
import { recoverRun } from '../support/recovered-run.ts'

it('a run whose host process is killed, and one whose VM is, do nothing twice and lose nothing [R.01]', async () => {
  const undisturbed = await recoverRun()
  expect(undisturbed).toMatchObject({
    files: { 'log.txt': 'one\ntwo\nthree\n', 'new.txt': 'new\n' },
    orders: ['ordered a7'],
    asked: 1,
    ends: 1,
  })
  const at = (type: string): number => {
    const line = undisturbed.events.find(({ event }) => event.type === type)
    return line?.seq ?? 0
  }
  const same = { files: undisturbed.files, orders: undisturbed.orders, ends: 1, leftVms: [] }
  // The order of lines from the agent and from the gateway varies by one or two.
  const withoutHost = await recoverRun({ killSelfAfter: at('host-tool-end') + 2 })
  expect(withoutHost).toMatchObject(same)
  const withoutVm = await recoverRun({ killQemuAfter: at('host-tool-end') + 4 })
  expect(withoutVm).toMatchObject(same)
  for (const { events, isKilled } of [withoutHost, withoutVm]) {
    expect(isKilled).toBe(true)
    expect(events.filter(({ event }) => event.type === 'run-resume')).toMatchObject([
      { event: { epoch: 2, checkpointId: expect.stringMatching(/^cp-/) } },
    ])
  }
}, 300_000)
