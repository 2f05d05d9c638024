// Requests that wait for a run: GET /v1/runs/{run}?waitMs=…&until=…. Real requests and journals, no VM.

import { readFile, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished, vi } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { Host } from '../../host/index.ts'
import { RunWaits, type RunWaitsOptions } from '../../host/service/run-waits.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId as workingRunId } from '../../host/test/support/run-values.ts'
import { holderOf, startOf } from './keys-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

const end: HostEvent = {
  type: 'run-end',
  ...{ outcome: 'completed', reason: 'completed', message: '', summary: 'all done' },
  ...{ usage: noUsage, durationMs: 1 },
}

it('answers at the end of a run of this process, with its result there, and reads nothing meanwhile [S4.13]', async () => {
  const { host, held } = await hostOfHeldRuns('waits')
  const { client } = await serveHost(host)
  await client.call('putRun', { params: { key: 'k' }, body: { prompt: 'x' } })
  await expect.poll(held.begun).toHaveLength(1)
  let isOver = false
  const waited = client.call('getRun', { params: { run: 'k' }, query: { waitMs: 30_000 } }).finally(() => {
    isOver = true
  })
  await expect.poll(async () => (await fetchOpen(host)) >= 1).toBe(true)
  const reads = vi.spyOn(host.runs, 'summary')
  const visits = vi.spyOn(host.runs, 'visit')
  await new Promise((resolve) => setTimeout(resolve, 500))
  expect([isOver, reads.mock.calls.length, visits.mock.calls.length]).toEqual([false, 0, 0])
  await held.release()
  const run = await waited
  expect(run.end).toMatchObject({ outcome: 'failed', reason: 'denied' })
  expect(await client.call('getResult', { params: { run: 'k' } })).toMatchObject({ reason: 'denied' })
  // One that has ended is shown at once.
  const before = performance.now()
  await client.call('getRun', { params: { run: 'k' }, query: { waitMs: 30_000, until: 'attention' } })
  expect(performance.now() - before).toBeLessThan(5_000)
})

it('answers with the run as it is when the time is over, for at most a minute [S4.13]', async () => {
  const { host } = await hostOfHeldRuns('waits')
  const { client, send } = await serveHost(host)
  const { id } = await client.call('createRun', { body: { prompt: 'x' } })
  const before = performance.now()
  const run = await client.call('getRun', { params: { run: id }, query: { waitMs: 300 } })
  expect([run.end, performance.now() - before >= 290]).toEqual([null, true])
  for (const query of ['waitMs=60001', 'waitMs=-1', 'waitMs=x', 'until=start', 'wait=1'])
    expect((await send('GET', `/v1/runs/${id}?${query}`)).status).toBe(400)
})

it('with until=attention it answers when the run waits for people, in another process too [S4.13]', async () => {
  const run = await runAtWork()
  await run.record.host(startOf({}))
  const { client } = await serveHost(new Host({ env: run.env }))
  const params = { run: workingRunId }
  const asked = client.call('getRun', { params, query: { waitMs: 30_000, until: 'attention' } })
  await run.watched
  const answered = run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
  expect(await asked).toMatchObject({ pendingApprovals: 1, end: null })
  const again = await client.call('getRun', { params, query: { waitMs: 30_000, until: 'attention' } })
  expect(again.pendingApprovals).toBe(1)
  // Who waits for the end waits on.
  const ended = client.call('getRun', { params, query: { waitMs: 30_000, until: 'end' } })
  const answer = { decision: 'allow', scope: 'once', answer: 'red' } as const
  await client.call('answerApproval', { params: { ...params, approval: 'q1' }, body: answer })
  await answered
  await run.end(end)
  expect((await ended).end).toMatchObject({ outcome: 'completed' })
})

it('hears of a question that comes while it looks at a run of another process [S4.13]', async () => {
  const run = await runAtWork()
  await run.record.host(startOf({}))
  const host = new Host({ env: run.env })
  const { client } = await serveHost(host)
  const summary = host.runs.summary.bind(host.runs)
  const reads = vi.spyOn(host.runs, 'summary')
  reads.mockImplementation(async (id) => {
    const read = await summary(id)
    if (run.queue.pending.length === 0) {
      void run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
      await expect.poll(() => run.queue.pending).toHaveLength(1)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    return read
  })
  const params = { run: workingRunId }
  const before = performance.now()
  const asked = await client.call('getRun', { params, query: { waitMs: 20_000, until: 'attention' } })
  expect([asked.pendingApprovals, performance.now() - before < 15_000]).toEqual([1, true])
})

it('counts in the share of its caller, which a client that goes away gives back [S4.13, S4.11]', async () => {
  const { host } = await hostOfHeldRuns('waits')
  const served = await serveHost(host)
  const ada = await holderOf(host, served, 'ada')
  const bob = await holderOf(host, served, 'bob')
  for (const { send } of [ada, bob])
    expect((await send('PUT', '/v1/runs/k', { prompt: 'x' })).status).toBe(201)
  const leaving = new AbortController()
  const wait = async ({ secret }: { readonly secret: string }, place = '/v1/runs/k') =>
    await fetch(`${served.service.url}${place}?waitMs=20000`, {
      headers: { authorization: `Bearer ${secret}` },
      signal: leaving.signal,
    })
  const places = ['/v1/runs/k', '/v1/runs/k/result']
  // The poll below may have the last place for a moment.
  const hold = async (place: string | undefined): Promise<void> => {
    while ((await wait(ada, place)).status === 429) await sleep(50, undefined, { signal: leaving.signal })
  }
  const waiting = Array.from({ length: 32 }, (_, at) => hold(places[at % 2]).catch(() => undefined))
  await expect.poll(async () => (await ada.send('GET', '/v1/runs/k?waitMs=1')).status).toBe(429)
  const refused = await wait(ada)
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '10'])
  // Others have theirs, and what does not wait is answered.
  expect((await bob.send('GET', '/v1/runs/k?waitMs=1')).status).toBe(200)
  expect((await ada.send('GET', '/v1/runs/k')).status).toBe(200)
  leaving.abort()
  await Promise.all(waiting)
  await expect.poll(async () => (await ada.send('GET', '/v1/runs/k?waitMs=1')).status).toBe(200)
})

it('ends with the service: each request that waits is answered before its connection ends [S4.13]', async () => {
  const { host } = await hostOfHeldRuns('waits')
  const { client, service, send } = await serveHost(host)
  const { id } = await client.call('createRun', { body: { prompt: 'x' } })
  const begins = vi.spyOn(RunWaits.prototype, 'begin')
  onTestFinished(() => begins.mockRestore())
  const waiting = Array.from({ length: 8 }, () => send('GET', `/v1/runs/${id}?waitMs=60000`))
  const paged = send('GET', `/v1/runs/${id}/events?from=900&waitMs=60000`)
  await expect.poll(() => begins.mock.calls.length).toBe(9)
  const before = performance.now()
  await service.close()
  expect(performance.now() - before).toBeLessThan(5_000)
  for (const { status, json } of await Promise.all(waiting))
    expect([status, (json as { end: unknown }).end]).toEqual([200, null])
  expect((await paged).json).toMatchObject({ events: [], isLast: false })
})

it('waits for a run that no process carries out, until another one continues and ends it [S4.13]', async () => {
  const run = await runAtWork()
  await run.record.host(startOf({}))
  await run.die()
  const host = new Host({ env: run.env })
  const { client } = await serveHost(host)
  const params = { run: workingRunId }
  const waited = client.call('getRun', { params, query: { waitMs: 30_000 } })
  await client.call('cancelRun', { params, body: {} })
  expect((await waited).end).toMatchObject({ outcome: 'cancelled' })
  // A journal that is damaged meanwhile has no end to wait for.
  const { journal } = host.runs.paths(workingRunId)
  expect((await readFile(journal, 'utf8')).length).toBeGreaterThan(0)
  await rm(journal)
  const damaged = await client.call('getRun', { params, query: { waitMs: 30_000 } })
  expect(damaged.status).toBe('damaged')
})

/** Runs that a process works on now. */
async function fetchOpen(host: Host): Promise<number> {
  return (await host.runs.live()).size
}

it('sees a question of another process that was asked while it looked at the run [S4.13]', async () => {
  const runId = `run-${'0'.repeat(20)}`
  let askedAt: number | undefined
  let looks = 0
  const runs = {
    pendingApprovals: async () => {
      looks += 1
      if (looks > 1) return [{ runId, at: askedAt, approval: { tool: 'run_bash' } }]
      askedAt = Date.now()
      await sleep(30)
      return []
    },
    summary: async () => ({ state: { end: null }, status: 'running' }),
  }
  const reach = async () => ({
    watch: async function* () {
      yield { source: 'host', at: askedAt, event: { type: 'approval-request' } }
      await sleep(2_500, undefined, { ref: false })
    },
    detach: async () => undefined,
  })
  const waits = new RunWaits({
    host: { runs, reach } as unknown as RunWaitsOptions['host'],
    quotas: { openStream: () => () => undefined },
    isHeld: () => false,
  })
  const late = AbortSignal.timeout(2_000)
  await waits.until(runId, 'attention', late)
  expect([late.aborted, looks]).toEqual([false, 2])
})
