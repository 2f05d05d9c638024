// Options that have no effect with the model of a run, as callers of the service learn of them.
import { expect, it } from 'vitest'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

it('a run that was started says which of its options have no effect, each time it is asked for [H.02 S1.07]', async () => {
  const { host } = await hostOfHeldRuns('void-options')
  const { client } = await serveHost(host)
  const body = { prompt: 'one', effort: 'low', limits: { maxCostUsd: 1 } } as const
  const notes = [
    'The offline model answers, so option effort has no effect.',
    'The offline model costs nothing, so option limits.maxCostUsd has no effect.',
  ]
  const started = await client.call('createRun', { body, idempotencyKey: 'k' })
  expect(started.notes).toEqual(notes)
  expect((await client.call('createRun', { body, idempotencyKey: 'k' })).notes).toEqual(notes)
  expect((await client.call('getRun', { params: { run: started.id } })).notes).toEqual(notes)
  expect((await host.runs.summary(started.id)).notes).toEqual(notes)
  const [first] = await host.runs.read(started.id)
  expect(first?.event).toMatchObject({ type: 'run-start', notes })
  expect(await client.call('createRun', { body: { prompt: 'two' } })).not.toHaveProperty('notes')
})
