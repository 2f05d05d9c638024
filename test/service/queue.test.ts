// Runs over HTTP that wait for their turn: in the service of this process, with hooks in the place of VMs.
import path from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { Host, type HostOptions } from '../../host/index.ts'
import { codeOf, detailOf, type Holder, holderOf, runThatUsed } from './keys-support.ts'
import { type HeldRuns, heldRuns } from './queue-support.ts'
import { type Received, type ServedHost, serveHost } from './support.ts'

/** A service whose runs a hook holds. Call it from within a test. */
async function serveQueue(queue: HostOptions['queue'] = { maxAtWork: 1 }) {
  const held = await heldRuns()
  const home = await temporaryFolder('queue')
  const host = new Host({
    env: { HOME: home, CAISSON_HOME: path.join(home, 'state'), PATH: process.env.PATH },
    config: { hooks: [{ point: 'before-run', command: [...held.command] }] },
    queue,
  })
  onTestFinished(async () => {
    await held.release()
    // All of them end, and write no more.
    await vi.waitUntil(async () => (await host.runs.live()).size === 0, { timeout: 30_000 })
    await host.close()
  })
  const served = await serveHost(host)
  return { ...served, host, held }
}

const idOf = ({ json }: Received) => (json as { id: string }).id
const post = async ({ send }: Pick<Holder, 'send'>, body: object = {}) =>
  await send('POST', '/v1/runs', { prompt: 'x', ...body })
/** The owner of the service, as {@link post} takes them. */
const ownerOf = ({ send }: Pick<ServedHost, 'send'>): Pick<Holder, 'send'> => ({
  send: (method, path, body) =>
    send(method, path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
})

/** Lets the runs end one after another. @returns their order */
async function orderOf(held: HeldRuns, count: number): Promise<string[]> {
  for (let at = 0; at < count; at++) {
    await expect.poll(async () => (await held.begun()).length, { timeout: 20_000 }).toBe(at + 1)
    await held.release((await held.begun())[at])
  }
  return await held.begun()
}

describe('the queue of the service', () => {
  it('gives keys their turns, whoever has how many runs, and priorities count within a key [S4.12]', async () => {
    const { host, held, ...served } = await serveQueue()
    const [ada, bob] = [await holderOf(host, served, 'ada'), await holderOf(host, served, 'bob')]
    const a: string[] = []
    for (let at = 0; at < 4; at++) a.push(idOf(await post(ada)))
    const urgent = idOf(await post(ada, { priority: 'high' }))
    const b = [idOf(await post(bob, { priority: 'low' })), idOf(await post(bob))]
    const begun = await orderOf(held, 7)
    expect(begun).toEqual([a[0], b[1], urgent, b[0], a[1], a[2], a[3]])
  })

  it('counts a waiting run of a key for the queue alone, and lets no more of them work than its quota says [S4.12, S4.10]', async () => {
    const { host, held, ...served } = await serveQueue({ maxAtWork: 3 })
    const ada = await holderOf(host, served, 'ada', { quotas: { maxRuns: 1 } })
    const owner = ownerOf(served)
    const others = [await post(owner), await post(owner), await post(owner)].map(idOf)
    const waiting = [idOf(await post(ada)), idOf(await post(ada)), idOf(await post(ada))]
    await held.release(others[0])
    await held.release(others[1])
    await expect.poll(async () => (await held.begun()).length).toBe(4)
    await expect.poll(() => host.queue?.counts).toEqual({ atWork: 2, waiting: 2 })
    const refused = await post(ada)
    expect([refused.status, codeOf(refused)]).toEqual([429, 'too_many_requests'])
    await held.release(waiting[0])
    await expect.poll(async () => (await held.begun()).length).toBe(5)
    expect((await held.begun()).slice(3)).toEqual(waiting.slice(0, 2))
    await expect.poll(() => host.queue?.counts).toEqual({ atWork: 2, waiting: 1 })
  })

  it('ends a run of a key whose turn comes when its quota of the day is used [S4.12, S4.10]', async () => {
    const { host, held, ...served } = await serveQueue({ maxAtWork: 1 })
    const ada = await holderOf(host, served, 'ada', { quotas: { maxTokens: 1_000 } })
    const first = idOf(await post(ownerOf(served)))
    const waiting = idOf(await post(ada))
    await expect.poll(held.begun).toEqual([first])
    await runThatUsed(host, `run-${'1'.repeat(20)}`, ada.metadata, { tokens: 1_000 })
    await held.release(first)
    const ended = await ada.send('GET', `/v1/runs/${waiting}/result?waitMs=20000`)
    expect(ended.json).toMatchObject({ outcome: 'cancelled' })
    expect((ended.json as { message: string }).message).toContain('have used its 1000 tokens of today')
  })

  it('tells a run its place, in its resource and to who watches it [S4.12]', async () => {
    const { client, held } = await serveQueue()
    const start = async () => (await client.call('createRun', { body: { prompt: 'x' } })).id
    const [first, second, third] = [await start(), await start(), await start()]
    const resource = async (run: string) => await client.call('getRun', { params: { run } })
    expect((await resource(first)).queue).toBeUndefined()
    expect(await resource(third)).toMatchObject({
      status: 'queued',
      since: expect.any(Number),
      queue: { place: 2, waiting: 2, priority: 'normal' },
    })
    const { runs } = await client.call('listRuns', { query: { status: 'queued' } })
    expect(runs.map(({ id }) => id).sort()).toEqual([second, third].sort())
    const places: unknown[] = []
    const types: string[] = []
    const watching = (async () => {
      for await (const item of client.events(third)) {
        if (item.source !== 'delta') types.push(item.event.type)
        else if (item.delta.type === 'prepare' && item.delta.what === 'queue') places.push(item.delta.place)
      }
    })()
    await expect.poll(() => places).toEqual([2])
    await held.release(first)
    await expect.poll(() => places).toEqual([2, 1])
    await held.release()
    await watching
    expect(types).toEqual(['run-start', 'queue-start', 'queue-end', 'hook-end', 'run-end'])
  })

  it('refuses a run with 429 beyond its bounds, in total and of a key, and takes the next once one has gone [S4.12]', async () => {
    const { host, held, ...served } = await serveQueue({ maxAtWork: 1, maxWaiting: 3, maxWaitingPerLane: 2 })
    const [ada, bob] = [await holderOf(host, served, 'ada'), await holderOf(host, served, 'bob')]
    const first = idOf(await post(ada))
    const waiting = idOf(await post(ada))
    await post(ada)
    const more = await post(ada)
    expect([more.status, codeOf(more)]).toEqual([429, 'queue_full'])
    expect(detailOf(more)).toContain('2 of at most 3 runs wait, and 2 of at most 2 of this caller')
    expect(Number(more.headers['retry-after'])).toBeGreaterThan(0)
    const other = idOf(await post(bob))
    expect((await post(bob)).status).toBe(429)
    // What was refused left nothing.
    expect(await host.runs.ids()).toHaveLength(4)
    expect((await ada.send('POST', `/v1/runs/${waiting}/cancel`, {})).status).toBe(202)
    await expect.poll(() => host.queue?.counts.waiting).toBe(2)
    expect((await post(ada)).status).toBe(201)
    const cancelled = await ada.send('GET', `/v1/runs/${waiting}/result?waitMs=5000`)
    expect(cancelled.json).toMatchObject({ outcome: 'cancelled', reason: 'cancelled' })
    await held.release(first)
    await expect.poll(held.begun).toEqual([first, other])
  })

  it('ends a run that has not begun in its time, with the reason [S4.12]', async () => {
    const { client, held } = await serveQueue()
    const first = await client.call('createRun', { body: { prompt: 'x' } })
    const late = await client.call('createRun', { body: { prompt: 'x', startWithinMs: 100 } })
    const params = { run: late.id }
    const result = await client.call('getResult', { params, query: { waitMs: '20000' } })
    expect(result).toMatchObject({ outcome: 'failed', reason: 'queue_timeout' })
    expect(result.message).toContain('did not begin by')
    const { events } = await client.call('listEvents', { params })
    const { startBy = 0 } =
      events.flatMap(({ event }) => (event.type === 'queue-start' ? [event] : []))[0] ?? {}
    expect(Math.abs(startBy - 100 - late.startedAt)).toBeLessThan(60_000)
    await expect.poll(held.begun).toEqual([first.id])
    for (const body of [{ startWithinMs: 0 }, { startWithinMs: 1e12 }, { priority: 'urgent' }])
      await expect(
        client.call('createRun', { body: { prompt: 'x', ...body } as never }),
      ).rejects.toMatchObject({ status: 400 })
  })

  it('lets all runs that come at once end, two at work at a time [S4.12]', async () => {
    const { client, host, held } = await serveQueue({ maxAtWork: 2 })
    await held.release()
    let most = 0
    const looking = setInterval(() => {
      most = Math.max(most, host.queue?.counts.atWork ?? 0)
    }, 1)
    onTestFinished(() => clearInterval(looking))
    const ids = await Promise.all(
      Array.from(
        { length: perTier(10, 50) },
        async () => (await client.call('createRun', { body: { prompt: 'x' } })).id,
      ),
    )
    const results = await Promise.all(
      ids.map((run) => client.call('getResult', { params: { run }, query: { waitMs: '60000' } })),
    )
    expect(new Set(results.map(({ reason }) => reason))).toEqual(new Set(['denied']))
    expect((await held.begun()).sort()).toEqual([...ids].sort())
    expect(most).toBe(2)
    await expect.poll(() => host.queue?.counts, { timeout: 20_000 }).toEqual({ atWork: 0, waiting: 0 })
  })
})
