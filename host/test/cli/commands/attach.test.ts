// `caisson attach` beside a run of another process; only the run's work is scripted.
import { describe, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { proposed } from '../../support/proposals.ts'
import { runAtWork } from '../../support/run-at-work.ts'
import { runId } from '../../support/run-values.ts'

const runEnd: HostEvent = {
  type: 'run-end',
  outcome: 'completed',
  reason: 'completed',
  message: 'done',
  summary: '',
  usage: noUsage,
  durationMs: 1,
}

describe('caisson attach', () => {
  it('names the command that shows the changes where there are some, and none where there are none [V.08]', async () => {
    for (const entries of [0, 2]) {
      const { record, watched, caisson, end } = await runAtWork()
      const attached = caisson('attach', runId)
      await watched
      const ready: HostEvent = {
        type: 'changes-ready',
        entries,
        contentBytes: 0,
        flagged: [],
        sha256: '0'.repeat(64),
      }
      await record.host(ready)
      await end(runEnd)
      const { code, stdout } = await attached
      expect(code).toBe(0)
      expect(stdout.includes(`caisson workspace diff ${runId}`)).toBe(entries > 0)
      expect(stdout).toContain('journal head')
    }
  })

  it('says which notes the run left to decide about [S0.13]', async () => {
    const { record, watched, caisson, end } = await runAtWork()
    const attached = caisson('attach', runId)
    await watched
    await record.host(proposed(1, 'the tests need Docker'))
    await end(runEnd)
    expect((await attached).stdout).toContain(`1 note to review: caisson memory keep ${runId}`)
  })
})
