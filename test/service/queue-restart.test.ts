// Runs that wait in the queue of `caisson serve`, as a process of its own that is killed; hooks in the place of VMs.
import { once } from 'node:events'
import { readFile, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { ServiceClient } from '../../client/index.ts'
import { Host } from '../../host/index.ts'
import type { CliProcess, Place } from '../../host/test/support/cli.ts'
import { heldRuns, placeOf } from './queue-support.ts'

async function serve(place: Place): Promise<{ process: CliProcess; client: ServiceClient }> {
  const process = place.start('serve', '--port', '0', '--parallel-runs', '1')
  const url = () => /listens on (http:\S+)/.exec(process.errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { process, client: new ServiceClient({ baseUrl: url() ?? '', token }) }
}

async function kill({ child }: CliProcess): Promise<void> {
  child.kill('SIGKILL')
  await once(child, 'close')
}

const indexes = [
  ['with its index', false],
  ['without it', true],
] as const

it.each(indexes.slice(0, perTier(1, 2)))(
  'a queue outlives a service that is killed, %s: each run begins once, in the order of before [S4.12]',
  async (_, isLost) => {
    const held = await heldRuns()
    const place = await placeOf(held)
    const first = await serve(place)
    const create = async (client: ServiceClient, key: string, priority?: 'high' | 'low') => {
      const body = { prompt: key, ...(priority === undefined ? {} : { priority }) }
      return (await client.call('createRun', { body, idempotencyKey: key })).id
    }
    const atWork = await create(first.client, 'at-work')
    const plain: string[] = []
    for (let at = 0; at < perTier(3, 6); at++) plain.push(await create(first.client, `plain-${at}`))
    const low = await create(first.client, 'low', 'low')
    const high = await create(first.client, 'high', 'high')
    await expect.poll(held.begun).toEqual([atWork])
    await kill(first.process)
    // To continue it would take an image.
    await new Host({ env: place.env }).cancel(atWork)
    const index = path.join(place.home, 'index.sqlite')
    expect((await stat(index)).mode & 0o777).toBe(0o600)
    if (isLost) for (const end of ['', '-wal', '-shm']) await rm(`${index}${end}`, { force: true })

    const second = await serve(place)
    expect(second.process.errors()).not.toMatch(/warning: SQLite|ExperimentalWarning|index .* damaged/i)
    // The keys still name the runs.
    expect(await create(second.client, 'plain-0')).toBe(plain[0])
    const waiting = [high, ...plain, low]
    await expect.poll(held.begun, { timeout: 30_000 }).toEqual([atWork, high])
    const queued = await second.client.call('listRuns', { query: { status: 'queued' } })
    const placeIn = ({ queue }: (typeof queued.runs)[number]) => queue?.place ?? 0
    expect(queued.runs.sort((a, b) => placeIn(a) - placeIn(b)).map(({ id }) => id)).toEqual(waiting.slice(1))
    for (const [at, run] of waiting.entries()) {
      await expect.poll(held.begun, { timeout: 30_000 }).toEqual([atWork, ...waiting.slice(0, at + 1)])
      await held.release(run)
    }
    const results = await Promise.all(
      waiting.map((run) => second.client.call('getResult', { params: { run }, query: { waitMs: '30000' } })),
    )
    expect(new Set(results.map(({ reason }) => reason))).toEqual(new Set(['denied']))
    const { events } = await second.client.call('listEvents', { params: { run: high } })
    expect(events.map(({ event }) => event.type)).toEqual([
      ...['run-start', 'queue-start', 'run-resume', 'queue-start', 'queue-end', 'hook-end', 'run-end'],
    ])
    await held.release()
    await kill(second.process)
  },
  240_000,
)
