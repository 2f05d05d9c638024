// Runs that a caller starts by a key of its own: PUT /v1/runs/{key}. Real requests, hooks in the place of VMs.
import { describe, expect, it } from 'vitest'
import { RunKey } from '#specs/service/run-resources.ts'
import { Host, type RunPage, type RunQuery, type RunSummary } from '../../host/index.ts'
import { findByKey } from '../../host/service/run-keys.ts'
import { codeOf, detailOf, holderOf } from './keys-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { type Received, type ServedHost, serveHost } from './support.ts'

const idOf = ({ json }: Received) => (json as { id: string }).id
const json = { 'content-type': 'application/json' }

/** Requests of the owner. */
function ownerOf({ send }: Pick<ServedHost, 'send'>) {
  return {
    put: async (key: string, body: unknown, place = '/v1/runs') =>
      await send('PUT', `${place}/${encodeURIComponent(key)}`, { headers: json, body: JSON.stringify(body) }),
  }
}

describe('the run of a key', () => {
  it('is found behind any number of its forks [S4.13]', async () => {
    const summary = (index: number, forkedFrom?: string) =>
      ({ id: `run-${`${index}`.padStart(20, '0')}`, forkedFrom }) as RunSummary
    const runs = [...Array.from({ length: 1_500 }, (_, index) => summary(index, 'run-x')), summary(1_500)]
    const page = async ({ limit = 1, cursor = '0' }: RunQuery = {}): Promise<RunPage> => {
      const [from, to] = [Number(cursor), Number(cursor) + limit]
      return { runs: runs.slice(from, to), ...(to < runs.length ? { nextCursor: `${to}` } : {}) }
    }
    const found = await findByKey(
      { page } as Host['runs'],
      { name: 'owner', scopes: new Set() },
      'owner order-1',
    )
    expect(found?.id).toBe(runs.at(-1)?.id)
  })
})

const workflow = {
  'A@1#details': { steps: [{ id: 'a' }] },
  'A@1@step-a#details': { chat: [{ role: 'user', content: 'say it' }], nextStep: '-' },
}

describe('PUT /v1/runs/{key}', () => {
  it('starts one run for a key and a body, and shows it to each repeated request [S4.13, H.02]', async () => {
    const { host } = await hostOfHeldRuns('keys')
    const served = await serveHost(host)
    const { put } = ownerOf(served)
    const first = await put('order-17', { prompt: 'x', tools: ['math'] })
    expect([first.status, first.headers.location]).toEqual([201, `/v1/runs/${idOf(first)}`])
    expect(first.json).toMatchObject({ key: 'order-17', prompt: 'x' })
    // The order of fields is no other body.
    const again = await put('order-17', { tools: ['math'], prompt: 'x' })
    expect([again.status, again.headers.location, idOf(again)]).toEqual([
      ...[200, `/v1/runs/${idOf(first)}`, idOf(first)],
    ])
    const many = await Promise.all(Array.from({ length: 10 }, () => put('order-18', { prompt: 'y' })))
    expect(new Set(many.map(idOf)).size).toBe(1)
    expect(many.map(({ status }) => status).sort()).toEqual([...Array.from({ length: 9 }, () => 200), 201])
    // An Idempotency-Key is no name of a run, so it is another key.
    const headers = { ...json, 'idempotency-key': 'order-17' }
    const posted = await served.send('POST', '/v1/runs', { headers, body: '{"prompt":"x"}' })
    expect([posted.status, idOf(posted) === idOf(first)]).toEqual([201, false])
    expect(posted.json).not.toHaveProperty('key')
    expect((await host.runs.ids()).length).toBe(3)
  })

  it('refuses another body with 409, and names the run and what to do [S4.13]', async () => {
    const { host } = await hostOfHeldRuns('keys')
    const { put } = ownerOf(await serveHost(host))
    const started = idOf(await put('order-17', { prompt: 'x' }))
    for (const [body, place] of [
      [{ prompt: 'y' }, '/v1/runs'],
      [{ prompt: 'x', priority: 'high' }, '/v1/runs'],
      [{ workflow }, '/v1/workflows/runs'],
    ] as const) {
      const refused = await put('order-17', body, place)
      expect([refused.status, codeOf(refused), detailOf(refused)]).toEqual([
        ...[409, 'idempotency_conflict'],
        `the key "order-17" was used with another body, which started ${started}`,
      ])
      expect(refused.json).toMatchObject({ remedy: expect.stringContaining('GET /v1/runs/order-17') })
    }
    expect(await host.runs.ids()).toEqual([started])
  })

  it('starts a workflow by a key too [S4.13, S3.04]', async () => {
    const { host } = await hostOfHeldRuns('keys')
    const served = await serveHost(host)
    const started = await served.client.call('putWorkflowRun', {
      params: { key: 'flow' },
      body: { workflow },
    })
    expect(started).toMatchObject({ key: 'flow', prompt: 'A@1' })
    const again = await served.client.call('putWorkflowRun', { params: { key: 'flow' }, body: { workflow } })
    expect(again.id).toBe(started.id)
    expect(await served.client.call('getRun', { params: { run: 'flow' } })).toMatchObject({ id: started.id })
  })

  it('takes no key that could be a run, a secret or a path [S4.13]', async () => {
    const { host } = await hostOfHeldRuns('keys')
    const served = await serveHost(host)
    const { put } = ownerOf(served)
    const wrong = [
      ...[
        `run-${'0'.repeat(20)}`,
        'run-17',
        'caisson_0123456789ab',
        'caisson-link_x.y',
        '.',
        '..',
        '-x',
        ' ',
      ],
      ...['a b', 'a/b', 'a%2fb', 'a?b', 'ä', 'a\0', 'a\n', 'x'.repeat(129), '\u202ex', ''],
    ]
    for (const key of wrong) {
      expect([key, RunKey.safeParse(key).success]).toEqual([key, false])
      const refused = await put(key, { prompt: 'x' })
      expect([key, refused.status < 500 && refused.status >= 400]).toEqual([key, true])
    }
    expect((await put('run-17', { prompt: 'x' })).text).toContain('neither run- nor caisson')
    expect(await host.runs.ids()).toEqual([])
    for (const key of ['x'.repeat(128), 'run_abc', 'inv_1:step~2.b', 'last'])
      expect((await put(key, { prompt: 'x' })).status).toBe(201)
  })

  it('finds its run after a restart, and when the request would be refused by now [S4.13]', async () => {
    const { host, home } = await hostOfHeldRuns('keys')
    const first = await serveHost(host)
    const { model } = await host.provider()
    const body = { prompt: 'x', expectedModel: { id: model, server: null } }
    const { id } = await first.client.call('putRun', { params: { key: 'order-17' }, body })
    await first.service.close()
    const env = { HOME: home, CAISSON_HOME: `${home}/state`, PATH: process.env.PATH }
    const other = new Host({
      env: { ...env, OPENAI_BASE_URL: 'http://127.0.0.1:9/v1', OPENAI_API_KEY: 'k', OPENAI_MODEL: 'other' },
    })
    const second = await serveHost(other)
    expect((await second.client.call('putRun', { params: { key: 'order-17' }, body })).id).toBe(id)
    const fresh = second.client.call('putRun', { params: { key: 'order-18' }, body })
    await expect(fresh).rejects.toMatchObject({ status: 409, code: 'other_model' })
    expect(await second.client.call('getRun', { params: { run: 'order-17' } })).toMatchObject({ id })
    await other.close()
  })
})

describe('the key of a run', () => {
  it('names it in every route of its caller [S4.13]', async () => {
    const { host } = await hostOfHeldRuns('keys')
    const { client } = await serveHost(host)
    const { id } = await client.call('putRun', { params: { key: 'order-17' }, body: { prompt: 'x' } })
    const params = { run: 'order-17' }
    expect((await client.call('getRun', { params })).id).toBe(id)
    expect((await client.call('listEvents', { params })).events[0]?.runId).toBe(id)
    const events = client.events('order-17')
    expect((await events.next()).value).toMatchObject({ runId: id })
    await client.call('cancelRun', { params, body: {} })
    const result = await client.call('getResult', { params, query: { waitMs: 30_000 } })
    expect(result).toMatchObject({ runId: id, outcome: 'cancelled' })
    await events.return()
    expect((await client.call('listRuns', {})).runs).toMatchObject([{ id, key: 'order-17' }])
    const unknown = client.call('getRun', { params: { run: 'order-18' } })
    await expect(unknown).rejects.toMatchObject({
      ...{ status: 404, code: 'run_not_found', message: expect.stringContaining('has the key "order-18"') },
    })
  })

  it('is one of each caller: nobody finds the run of another by it, not even admin [S4.13, S4.11]', async () => {
    const { host } = await hostOfHeldRuns('keys')
    const served = await serveHost(host)
    const { put } = ownerOf(served)
    const ada = await holderOf(host, served, 'ada')
    const bob = await holderOf(host, served, 'bob')
    const boss = await holderOf(host, served, 'boss', { scopes: ['admin'] })
    const body = { prompt: 'x' }
    const a = await ada.send('PUT', '/v1/runs/step-1', body)
    const b = await bob.send('PUT', '/v1/runs/step-1', { prompt: 'another' })
    const own = await put('step-1', { prompt: 'of the owner' })
    expect([a.status, b.status, own.status]).toEqual([201, 201, 201])
    expect(new Set([idOf(a), idOf(b), idOf(own)]).size).toBe(3)
    for (const [{ send }, run] of [
      [ada, a],
      [bob, b],
      [served, own],
    ] as const)
      expect(idOf(await send('GET', '/v1/runs/step-1'))).toBe(idOf(run))
    expect((await boss.send('GET', '/v1/runs/step-1')).status).toBe(404)
    expect(idOf(await boss.send('GET', `/v1/runs/${idOf(a)}`))).toBe(idOf(a))
    // What another key started is as what never was.
    await ada.send('PUT', '/v1/runs/step-2', body)
    const refused = await bob.send('GET', '/v1/runs/step-2')
    expect(refused.text).toBe((await bob.send('GET', '/v1/runs/step-3')).text.replaceAll('step-3', 'step-2'))
    const reader = await holderOf(host, served, 'reader', { scopes: ['read'] })
    expect((await reader.send('PUT', '/v1/runs/step-1', body)).status).toBe(403)
  })
})
