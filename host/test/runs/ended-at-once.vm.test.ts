import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { findVms, finish, testBench } from '../support/runs.ts'

it('ends at once while its VM sleeps, and nothing of it is left to end the host process [V.04 V.06]', async () => {
  const unhandled: unknown[] = []
  const note = (reason: unknown) => unhandled.push(reason)
  process.on('unhandledRejection', note)
  onTestFinished(() => void process.off('unhandledRejection', note))
  const bench = await testBench({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
  const vm = { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 200 }
  const run = await bench.start('Delete b.txt', { approvals: { interactive: true }, vm })
  const finished = finish(run)
  for await (const item of run.watch()) {
    if (item.source === 'host' && item.event.type === 'vm-sleep') void run.cancel({ now: true })
  }
  expect((await finished).state.end).toMatchObject({ outcome: 'cancelled' })
  await sleep(100)
  expect(unhandled).toEqual([])
  expect(await findVms(bench.home)).toEqual([])
})
