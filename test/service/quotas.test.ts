// Quotas of API keys. Runs of the day are journals that the test writes; no VM.
import { describe, expect, it } from 'vitest'
import { scopes } from '#specs/service/route.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { Quotas } from '../../host/service/quotas.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId as workingRunId } from '../../host/test/support/run-values.ts'
import { accountOf, codeOf, detailOf, holderOf, runThatUsed, serveKeys, startOf } from './keys-support.ts'
import { serveHost } from './support.ts'

describe('a quota', () => {
  it('of cost refuses a model without a price with 400 and what to do, not as a fault of the service [H.02, G.05]', async () => {
    const home = await temporaryFolder('home')
    const env = { HOME: home, CAISSON_HOME: `${home}/state`, CAISSON_LLM_URL: 'http://127.0.0.1:9/v1' }
    const host = new Host({ env: { ...env, CAISSON_MODEL: 'm' } })
    const { logged, ...served } = await serveHost(host)
    const { send } = await holderOf(host, { send: served.send }, 'ci', { quotas: { maxCostUsd: 1 } })
    const refused = await send('POST', '/v1/runs', { prompt: 'x' })
    expect([refused.status, codeOf(refused), detailOf(refused)]).toEqual([
      ...[400, 'price_unknown'],
      'the key has a quota of cost, and the price of the model is not known',
    ])
    // The same for whoever asks for a bound of cost.
    const body = JSON.stringify({ prompt: 'x', limits: { maxCostUsd: 1 } })
    const asked = await served.send('POST', '/v1/runs', {
      headers: { 'content-type': 'application/json' },
      body,
    })
    expect([asked.status, codeOf(asked), detailOf(asked)]).toEqual([
      ...[400, 'price_unknown', expect.stringContaining('the price of m is not known')],
    ])
    await expect(host.run({ prompt: 'x', limits: { maxCostUsd: 1 } })).rejects.toMatchObject({
      code: 'price_unknown',
    })
    expect(await host.runs.ids()).toEqual([])
    expect(logged.filter(({ level }) => level === 'error')).toEqual([])
  })

  it('of requests in a minute refuses the next one with the time to wait [H.02, S4.10]', async () => {
    const { host, ...served } = await serveKeys()
    const { send } = await holderOf(host, served, 'ci', { quotas: { maxRequestsPerMinute: 3 } })
    const other = await holderOf(host, served, 'other')
    const statuses = []
    for (let count = 0; count < 5; count += 1) statuses.push((await send('GET', '/v1/runs')).status)
    expect(statuses).toEqual([200, 200, 200, 429, 429])
    const refused = await send('GET', '/v1/runs')
    expect(refused.headers['retry-after']).toMatch(/^([1-9]|[1-5]\d|60)$/)
    expect(codeOf(refused)).toBe('too_many_requests')
    expect((await other.send('GET', '/v1/runs')).status).toBe(200)
  })

  it('of requests allows as many again a minute later, in any 60 seconds [H.02]', async () => {
    const { host, ...served } = await serveKeys()
    const { key } = await holderOf(host, served, 'ci', { quotas: { maxRequestsPerMinute: 2 } })
    let now = 1_000
    const quotas = new Quotas({ host, atWork: () => [], now: () => now })
    const caller = { name: 'key ci', scopes: new Set(scopes), account: accountOf(key) }
    const count = () => quotas.countRequest(caller)
    count()
    now += 40_000
    count()
    expect(count).toThrow(/may send 2 requests/)
    now += 20_001
    count()
    expect(count).toThrow(/may send 2 requests/)
  })

  it.each([
    ['tokens', { maxTokens: 1_000 }, { tokens: 1_000 }, /have used its 1000 tokens of today/],
    ['cost', { maxCostUsd: 0.5 }, { costUsd: 0.5 }, /have used its 0.5 US dollars of today/],
  ])(
    'of %s counts the runs of the day, also for the next service [H.02]',
    async (_, quotas, used, message) => {
      const { host, directory, ...served } = await serveKeys()
      const { send, metadata, secret } = await holderOf(host, served, 'ci', { quotas })
      await runThatUsed(host, `run-${'1'.repeat(20)}`, metadata, used)
      const body = { prompt: 'x', workspace: directory }
      const refused = await send('POST', '/v1/runs', body)
      expect([refused.status, detailOf(refused)]).toEqual([429, expect.stringMatching(message)])
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
      await served.service.close()
      const next = await serveHost(host, { workspaces: [directory] })
      const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }
      expect((await next.send('POST', '/v1/runs', { headers, body: JSON.stringify(body) })).status).toBe(429)
      expect(await host.runs.ids()).toHaveLength(1)
    },
  )

  it('is what remains as the bound of the next run, of a continued run with what it used, and whole on the next day [H.02]', async () => {
    const { host, ...served } = await serveKeys()
    const options = { quotas: { maxTokens: 1_000, maxCostUsd: 2 } }
    const { key, label, metadata } = await holderOf(host, served, 'ci', options)
    const run = `run-${'1'.repeat(20)}`
    await runThatUsed(host, run, metadata, { tokens: 300, costUsd: 0.5 })
    await runThatUsed(host, `run-${'2'.repeat(20)}`, {}, { tokens: 500 })
    let now = Date.now()
    const quotas = new Quotas({ host, atWork: () => [], now: () => now })
    const caller = { name: label, scopes: new Set(scopes), account: accountOf(key) }
    const boundsOf = (limits?: { maxTokens?: number; maxCostUsd?: number }) =>
      quotas.start(caller, limits, async (within) => within)
    expect(await boundsOf()).toEqual({ maxTokens: 700, maxCostUsd: 1.5 })
    expect(await boundsOf({ maxTokens: 50, maxCostUsd: 9 })).toEqual({ maxTokens: 50, maxCostUsd: 1.5 })
    const resumed = quotas.resume(caller, await host.runs.summary(run), async (left) => left)
    expect(await resumed).toEqual({ maxTokens: 1_000, maxCostUsd: 2 })
    now += 86_400_000
    expect(await boundsOf()).toEqual({ maxTokens: 1_000, maxCostUsd: 2 })
  })

  it('of runs counts those at work, wherever they are carried out, and tests; two starts at once take turns [H.02]', async () => {
    const run = await runAtWork()
    const host = new Host({ env: run.env })
    const served = await serveHost(host)
    const { send, metadata, key, label } = await holderOf(host, served, 'ci', { quotas: { maxRuns: 1 } })
    const caller = { name: label, scopes: new Set(scopes), account: accountOf(key) }
    const atWork = new Map<string, string>()
    const quotas = new Quotas({ host, atWork: () => atWork })
    const begin = (id: string) =>
      quotas.start(caller, undefined, async () => {
        atWork.set(id, label)
        return id
      })
    const both = await Promise.allSettled([begin('one'), begin('two')])
    expect(both.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    atWork.clear()
    await quotas.test(caller, async () => {
      await expect(begin('three')).rejects.toThrow(/1 runs of the key are at work/)
    })
    expect(await begin('four')).toBe('four')
    // As the journal of a process of another service has it.
    await run.record.host(startOf(metadata))
    const workspace = await temporaryFolder('workspace')
    const refused = await send('POST', '/v1/runs', { prompt: 'x', workspace })
    expect([refused.status, codeOf(refused)]).toEqual([403, 'workspace_refused'])
    const tested = await send('POST', `/v1/runs/${workingRunId}/test`, { command: 'true' })
    expect([tested.status, codeOf(tested)]).toEqual([429, 'too_many_requests'])
  })
})
