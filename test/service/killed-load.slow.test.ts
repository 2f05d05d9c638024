// A service that is killed while many clients start runs: what it had answered is there, and nothing is started twice.
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { Host } from '../../host/index.ts'
import type { CliProcess, Place } from '../../host/test/support/cli.ts'
import { heldRuns, placeOf } from './queue-support.ts'

const keys = Array.from({ length: 24 }, (_, at) => `order-${at}`)
const clientsAtOnce = 8
/** Answers after which the service is killed. */
const killAfter = 10

async function serve(place: Place): Promise<{ process: CliProcess; client: ServiceClient }> {
  const process = place.start('serve', '--port', '0', '--parallel-runs', '2')
  const url = () => /listens on (http:\S+)/.exec(process.errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { process, client: new ServiceClient({ baseUrl: url() ?? '', token }) }
}

it('a service that is killed under load loses no run that it answered for, and repeats start none twice [H.02, R.01, S4.12]', async () => {
  const held = await heldRuns()
  const place = await placeOf(held)
  const first = await serve(place)
  const answered = new Map<string, string>()
  const left = [...keys]
  const killed = once(first.process.child, 'close')
  // Those that have begun are known before the load.
  for (const key of left.splice(0, 2)) {
    const run = await first.client.call('createRun', { body: { prompt: key }, idempotencyKey: key })
    answered.set(key, run.id)
  }
  await expect.poll(async () => (await held.begun()).length).toBe(2)
  await Promise.all(
    Array.from({ length: clientsAtOnce }, async () => {
      for (let key = left.shift(); key !== undefined; key = left.shift()) {
        const request = { body: { prompt: key }, idempotencyKey: key }
        const run = await first.client.call('createRun', request).catch(() => undefined)
        if (run === undefined) return
        answered.set(key, run.id)
        if (answered.size === killAfter) first.process.child.kill('SIGKILL')
      }
    }),
  )
  await killed
  expect(answered.size).toBeGreaterThanOrEqual(killAfter)
  expect(answered.size).toBeLessThan(keys.length)
  const host = new Host({ env: place.env })
  // To continue a run that has begun would take an image.
  const begun = new Set(await held.begun())
  for (const run of begun) await host.cancel(run).catch(() => undefined)

  const second = await serve(place)
  for (const key of keys) {
    const { id } = await second.client.call('createRun', { body: { prompt: key }, idempotencyKey: key })
    expect([key, id]).toEqual([key, answered.get(key) ?? id])
    answered.set(key, id)
  }
  expect(new Set(answered.values()).size).toBe(keys.length)
  // A start that nobody has an answer of may have left its folder, without a journal.
  const unbegun = (await host.runs.list()).filter(({ status }) => status === 'damaged')
  for (const { problem } of unbegun)
    expect(problem).toMatch(/^there is no journal .*; remove the run: caisson runs rm/)
  const ids = [...answered.values(), ...unbegun.map(({ id }) => id)]
  expect((await host.runs.ids()).sort()).toEqual(ids.sort())
  await held.release()
  const results = await Promise.all(
    [...answered.values()].map((run) =>
      second.client.call('getResult', { params: { run }, query: { waitMs: '60000' } }),
    ),
  )
  expect(new Set(results.map(({ outcome }) => outcome))).toEqual(new Set(['cancelled', 'failed']))
  const all = await held.begun()
  expect(all.sort()).toEqual([...new Set(all)].sort())
  second.process.child.kill('SIGTERM')
  await second.process.ended
}, 240_000)
