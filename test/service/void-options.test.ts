// Options that have no effect with the model of a run, as callers of the service learn of them.
import path from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { heldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

it('a run that was started says which of its options have no effect, each time it is asked for [H.02 S1.07]', async () => {
  const held = await heldRuns()
  const home = await temporaryFolder('void-options')
  const host = new Host({
    env: { HOME: home, CAISSON_HOME: path.join(home, 'state'), PATH: process.env.PATH },
    config: { hooks: [{ point: 'before-run', command: [...held.command] }] },
    queue: { maxAtWork: 1 },
  })
  onTestFinished(async () => {
    await held.release()
    await vi.waitUntil(async () => (await host.runs.live()).size === 0, { timeout: 30_000 })
    await host.close()
  })
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
