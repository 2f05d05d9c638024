// Whose a run is: a run of another key is not there, and journals name the key that acts. Real requests, no VM.
import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import type { AgentEvent } from '#specs/protocol/event.ts'
import type { Route } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import { Host } from '../../host/index.ts'
import { beginChanging, changedRunId } from '../../host/test/support/changed-run.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId as workingRunId } from '../../host/test/support/run-values.ts'
import { runWithMoments } from '../../host/test/support/run-with-moments.ts'
import { treeOf } from '../../host/test/workspace/support.ts'
import {
  changedBy,
  codeOf,
  detailOf,
  type Holder,
  holderOf,
  runThatUsed,
  serveKeys,
  startOf,
  unknownRun,
} from './keys-support.ts'
import { type Received, serveHost } from './support.ts'

const all = Object.entries(routes) as [RouteName, Route][]

/** A body that each route takes. */
const bodies: Partial<Record<RouteName, unknown>> = {
  sendMessage: { text: 'hello' },
  cancelRun: {},
  answerApproval: { decision: 'allow' },
  applyChanges: { select: 'all' },
  forkRun: { at: 'end' },
  rewindRun: { to: 'end' },
  testRun: { command: 'true' },
}
const queries: Partial<Record<RouteName, string>> = { blameLines: '?path=a.txt' }

describe('a run of another key', () => {
  it('is not there, by every route, as one that never was [H.02, S4.11]', async () => {
    const { host, directory, ...served } = await serveKeys({ 'a.txt': 'one\n' })
    const [mine, other] = await Promise.all([holderOf(host, served, 'mine'), holderOf(host, served, 'other')])
    await changedBy(mine, host, directory)
    const before = await host.runs.read(changedRunId)
    const ofRuns = all.filter(([, { path, scope }]) => path.includes('{run}') && scope !== 'admin')
    expect(ofRuns.length).toBeGreaterThan(15)
    for (const [name, { path, method }] of ofRuns) {
      const call = async ({ send }: Holder, run: string, accept = 'application/json') =>
        await send(
          method,
          `${path.replaceAll('{run}', run).replaceAll('{approval}', 'a1').replaceAll('{image}', 'a'.repeat(64))}${queries[name] ?? ''}`,
          method === 'GET' ? undefined : (bodies[name] ?? {}),
          { accept },
        )
      const refused = await call(other, changedRunId)
      const unknown = await call(other, unknownRun)
      expect([name, refused.status, codeOf(refused)]).toEqual([name, 404, 'run_not_found'])
      expect(refused.text.replaceAll(changedRunId, unknownRun)).toBe(unknown.text)
      if (name === 'listEvents')
        expect((await call(other, changedRunId, 'text/event-stream')).status).toBe(404)
      // It has neither question nor image.
      if (method === 'GET' && name !== 'getApproval' && name !== 'getImage')
        expect([name, (await call(mine, changedRunId)).status]).toEqual([name, 200])
    }
    expect(await host.runs.read(changedRunId)).toEqual(before)
  })

  it('is in no list, page, comparison or request that names it; admin and the owner see it [H.02]', async () => {
    const { host, directory, ...served } = await serveKeys({ 'a.txt': 'one\n' })
    const mine = await holderOf(host, served, 'mine')
    const other = await holderOf(host, served, 'other')
    const admin = await holderOf(host, served, 'boss', { scopes: ['admin'] })
    await changedBy(mine, host, directory)
    await runThatUsed(host, `run-${'1'.repeat(20)}`, {})
    const idsOf = ({ json }: Received) => (json as { runs: { id: string }[] }).runs.map(({ id }) => id).sort()
    const everything = [changedRunId, `run-${'1'.repeat(20)}`]
    expect(idsOf(await mine.send('GET', '/v1/runs'))).toEqual([changedRunId])
    expect(idsOf(await other.send('GET', '/v1/runs'))).toEqual([])
    expect(idsOf(await other.send('GET', `/v1/runs?cursor=9999999999999.${changedRunId}`))).toEqual([])
    expect(idsOf(await admin.send('GET', '/v1/runs'))).toEqual(everything)
    expect(idsOf(await served.send('GET', '/v1/runs'))).toEqual(everything)
    const filter = encodeURIComponent(JSON.stringify({ 'caisson.owner': mine.label }))
    expect((await other.send('GET', `/v1/runs?metadata=${filter}`)).status).toBe(400)
    const named = [
      await other.send('GET', `/v1/approvals?run=${changedRunId}`),
      await other.send('GET', `/v1/compare?runs=${changedRunId},${unknownRun}`),
      await other.send('POST', '/v1/merge', { runs: [changedRunId, unknownRun] }),
      await other.send('POST', '/v1/runs', { prompt: 'x', workspace: directory, continue: changedRunId }),
      await other.send('POST', '/v1/runs', {
        ...{ prompt: 'x', workspace: directory, plan: { from: changedRunId } },
      }),
    ]
    for (const answer of named)
      expect([answer.status, detailOf(answer)]).toEqual([404, `no run has the ID "${changedRunId}"`])
    expect((await admin.send('GET', `/v1/runs/${changedRunId}`)).status).toBe(200)
    // A run of the command line belongs to the owner.
    expect((await mine.send('GET', `/v1/runs/run-${'1'.repeat(20)}`)).status).toBe(404)
  })

  it('cannot be claimed by metadata, and a key of another name does not get it either [H.02]', async () => {
    const { host, directory, ...served } = await serveKeys({ 'a.txt': 'one\n' })
    const mine = await holderOf(host, served, 'mine')
    await changedBy(mine, host, directory)
    const metadata = { 'caisson.owner': mine.label }
    const forged = await mine.send('POST', '/v1/runs', { prompt: 'x', workspace: directory, metadata })
    expect([forged.status, codeOf(forged)]).toEqual([400, 'invalid_request'])
    await host.apiKeys.revoke('mine')
    const again = await holderOf(host, served, 'mine')
    expect((await again.send('GET', `/v1/runs/${changedRunId}`)).status).toBe(404)
    expect(JSON.stringify((await served.send('GET', `/v1/runs/${changedRunId}`)).json)).not.toContain(
      'caisson.',
    )
  })
})

describe('a merge by a key', () => {
  it('is of its own runs, belongs to it, and needs the scope apply [H.02, V.05]', async () => {
    const { host, directory, ...served } = await serveKeys({ 'a.txt': 'one\n' })
    const mine = await holderOf(host, served, 'mine')
    const other = await holderOf(host, served, 'other')
    const reader = await holderOf(host, served, 'reader', { scopes: ['read', 'run', 'approve'] })
    const ids = ['1', '2', '3'].map((digit) => `run-${digit.repeat(20)}`)
    for (const [index, { metadata }] of [mine, mine, other].entries()) {
      const digest = { 'caisson.idempotency-key': 'd', ...metadata }
      const end = await beginChanging(host, directory, ids[index] ?? '', digest)
      await end(treeOf({ 'a.txt': 'one\n' }), treeOf({ 'a.txt': 'one\n', [`${index}.txt`]: 'new\n' }))
    }
    const [one, two, three] = ids
    const merged = await mine.send('POST', '/v1/merge', { runs: [one, two] })
    const { runId } = merged.json as { runId: string }
    expect((await mine.send('GET', `/v1/runs/${runId}`)).status).toBe(200)
    expect((await other.send('GET', `/v1/runs/${runId}`)).status).toBe(404)
    // Of the metadata of the runs it has the owner alone: it answers for no idempotency key.
    expect((await host.runs.summary(runId)).metadata).toEqual({ 'caisson.owner': mine.label })

    const before = await host.runs.ids()
    const takes = [{ runId: three, path: '2.txt' }]
    for (const body of [{ runs: [one, three] }, { runs: [one, two], takes }]) {
      const refused = await mine.send('POST', '/v1/merge', body)
      expect([refused.status, detailOf(refused)]).toEqual([404, `no run has the ID "${three}"`])
    }
    expect((await reader.send('POST', '/v1/merge', { runs: [one, two] })).status).toBe(403)
    expect(await host.runs.ids()).toEqual(before)
    // The owner merges runs of several keys; no key gets what another one's run changed.
    const all = await served.send('POST', '/v1/merge', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ runs: [one, three] }),
    })
    const { runId: ofAll } = all.json as { runId: string }
    for (const { send } of [mine, other]) expect((await send('GET', `/v1/runs/${ofAll}`)).status).toBe(404)
    const { runId: ofLibrary = '' } = await host.merge([one ?? '', three ?? ''])
    expect((await host.runs.summary(ofLibrary)).metadata).not.toHaveProperty(['caisson.owner'])
  })
})

describe('an event stream', () => {
  it.each(['revoked', 'expired'])('ends when its key is %s, while the run continues [H.02]', async (how) => {
    const run = await runAtWork()
    const host = new Host({ env: run.env })
    const served = await serveHost(host)
    const { key, metadata, secret } = await holderOf(host, served, 'ci', { expiresInMs: 86_400_000 })
    await run.record.host(startOf(metadata))
    const stream = await fetch(`${served.service.url}/v1/runs/${workingRunId}/events`, {
      headers: { authorization: `Bearer ${secret}`, accept: 'text/event-stream' },
    })
    expect(stream.status).toBe(200)
    const ended = stream.text().then(
      () => 'ended',
      () => 'ended',
    )
    await run.watched
    if (how === 'revoked') await host.apiKeys.revoke(key.id)
    else {
      // As a day later.
      const stored = await readFile(host.apiKeys.file, 'utf8')
      await writeFile(host.apiKeys.file, stored.replace(`${key.expiresAt}`, '1'))
    }
    expect(await ended).toBe('ended')
    expect(run.record.state.end).toBeNull()
    const headers = { authorization: `Bearer ${secret}` }
    expect((await served.send('GET', `/v1/runs/${workingRunId}/events`, { headers })).status).toBe(401)
  })
})

describe('what a journal says of who acts', () => {
  it('names the key by name and ID, and nobody else that the request names alone [H.02, R.10]', async () => {
    const run = await runAtWork()
    const host = new Host({ env: run.env })
    const served = await serveHost(host)
    const { send, label, metadata } = await holderOf(host, served, 'ci')
    await run.record.host(startOf(metadata))
    const path = `/v1/runs/${workingRunId}`
    const asked = run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
    await expect.poll(async () => (await send('GET', '/v1/approvals')).text).toContain('q1')
    const answer = { decision: 'allow', answer: 'blue', by: 'the owner of the service' }
    expect((await send('POST', `${path}/approvals/q1`, answer)).status).toBe(200)
    await asked
    await send('POST', `${path}/messages`, { text: 'one' })
    await send('POST', `${path}/messages`, { text: 'two', by: 'Ada' })
    // Without a body as before.
    await send('POST', `${path}/pause`)
    await send('POST', `${path}/unpause`, { by: 'Ada' })
    await send('POST', `${path}/pause`, {})
    const start: AgentEvent = { type: 'agent-start', stepId: 's', brief: 'b', tools: [], limits: {} }
    await run.record.agent('root/tests', 1, start)
    await send('POST', `${path}/cancel`, { by: 'Ada', agent: 'tests' })
    const events = (await host.runs.read(workingRunId)).map(({ event }) => event)
    expect(events.find(({ type }) => type === 'approval-decision')).toMatchObject({
      name: `${label}: the owner of the service`,
    })
    const actorsOf = (type: string) =>
      events.flatMap((event) => (event.type === type && 'by' in event ? [event.by] : []))
    expect(actorsOf('steer-request')).toEqual([label, `${label}: Ada`])
    expect(actorsOf('pause-request')).toEqual([label, label])
    expect(actorsOf('resume-request')).toEqual([`${label}: Ada`])
    expect(actorsOf('agent-cancel-request')).toEqual([`${label}: Ada`])
  })

  it('is the key for an apply, an undo, a fork and a rewind too [H.02, W.01, V.05]', async () => {
    const { host, directory, ...served } = await serveKeys({ 'a.txt': 'one\n' })
    const { send, label, metadata } = await holderOf(host, served, 'ci')
    await changedBy({ metadata }, host, directory)
    await send('POST', `/v1/runs/${changedRunId}/changes/apply`, { select: 'all' })
    expect(await readFile(`${directory}/a.txt`, 'utf8')).toBe('two\n')
    await send('POST', `/v1/runs/${changedRunId}/changes/undo`, {})
    const events = (await host.runs.read(changedRunId)).map(({ event }) => event)
    expect(events.find(({ type }) => type === 'apply-start')).toMatchObject({ by: label })
    expect(events.find(({ type }) => type === 'undo-start')).toMatchObject({ by: label })

    const { runId: run } = await runWithMoments(host, directory, { metadata })
    const forked = await send('POST', `/v1/runs/${run}/fork`, { at: 'second' })
    const [fork = ''] = (forked.json as { runIds: string[] }).runIds
    const rewound = await send('POST', `/v1/runs/${run}/rewind`, { to: 'second', by: 'Ada' })
    const { runId } = rewound.json as { runId: string }
    for (const [id, by] of [
      [fork, label],
      [runId, `${label}: Ada`],
    ] as const) {
      expect((await host.runs.read(id))[0]?.event).toMatchObject({ forkedFrom: { runId: run, by } })
      // A fork belongs to the key of its run.
      expect((await send('GET', `/v1/runs/${id}`)).status).toBe(200)
    }
  })

  it('and the log names key, route and run of each request, and no secret [H.02, S4.11]', async () => {
    const { host, logged, ...served } = await serveKeys()
    const { send, secret, label } = await holderOf(host, served, 'ci', { scopes: ['read'] })
    await send('GET', `/v1/runs/${secret}?q=${secret}`, undefined, { 'idempotency-key': secret })
    await send('POST', `/v1/runs/${unknownRun}/changes/apply`, { select: 'all' })
    expect(logged.filter(({ level }) => level !== 'debug')).toMatchObject([
      { method: 'GET', route: 'getRun', by: label, status: 400 },
      { method: 'POST', route: 'applyChanges', run: unknownRun, by: label, status: 403 },
    ])
    expect(JSON.stringify(logged)).not.toContain(secret.slice(-43))
  })
})

it('an idempotency key belongs to the key that sent it [H.02]', async () => {
  const { host, directory, ...served } = await serveKeys()
  const mine = await holderOf(host, served, 'mine')
  const other = await holderOf(host, served, 'other')
  const digest = createHash('sha256').update(`${mine.key.id} order-1`).digest('hex')
  const id = `run-${'1'.repeat(20)}`
  await runThatUsed(host, id, { ...mine.metadata, 'caisson.idempotency-key': digest })
  const body = { prompt: 'x', workspace: directory, limits: { maxTokens: 1 } }
  const headers = { 'idempotency-key': 'order-1' }
  const again = await mine.send('POST', '/v1/runs', body, headers)
  expect([again.status, again.text.includes(id)]).toEqual([422, true])
  await host.apiKeys.revoke('other')
  const limited = await holderOf(host, served, 'other', { quotas: { maxTokens: 1 } })
  await runThatUsed(host, `run-${'2'.repeat(20)}`, limited.metadata, { tokens: 1 })
  const fresh = await limited.send('POST', '/v1/runs', body, headers)
  // It would start a run of its own, for which nothing is left.
  expect([fresh.status, fresh.text.includes(id)]).toEqual([429, false])
  expect((await other.send('GET', '/v1/runs')).status).toBe(401)
})
