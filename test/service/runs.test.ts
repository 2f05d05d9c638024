// Runs over HTTP without a VM: runs that are over, and a run at work of another process.
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import {
  beginChanging,
  changedRunId,
  placeOfRuns,
  runThatChanged,
} from '../../host/test/support/changed-run.ts'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { checkpoint, runWithMoments } from '../../host/test/support/run-with-moments.ts'
import { treeOf } from '../../host/test/workspace/support.ts'
import { RunLock } from '../../host/workspace/run-lock.ts'
import { serveHost } from './support.ts'

const unknownRun = 'run-ffffffffffffffffffff'
const digestOf = (text: string) => createHash('sha256').update(text).digest('hex')

describe('a request that expects a model', () => {
  it('is refused where the service uses another, before there is a run [H.02]', async () => {
    const { host, directory: workspace } = await placeOfRuns({})
    const { client } = await serveHost(host, { workspaces: [workspace] })
    const start = (expectedModel: { id: string; server: string | null }) =>
      client.call('createRun', { body: { prompt: 'x', workspace, tools: ['no_such_tool'], expectedModel } })
    const offline = { id: 'caisson/offline', server: null }
    for (const other of [
      { ...offline, id: 'another' },
      { ...offline, server: 'https://llm.example.com/v1' },
    ])
      await expect(start(other)).rejects.toMatchObject({ status: 409, code: 'other_model' })
    // The next check is that of the tools.
    await expect(start(offline)).rejects.toMatchObject({ status: 400 })
    expect((await client.call('listRuns', {})).runs).toEqual([])
  })
})

describe('a run that is over', () => {
  it('is listed, shown and has its result [H.02]', async () => {
    const { host } = await runThatChanged({ 'a.txt': 'one\n' }, { 'a.txt': 'two\n' })
    const { client, send } = await serveHost(host)
    const { runs } = await client.call('listRuns', { query: { status: 'completed' } })
    expect(runs).toMatchObject([{ id: changedRunId, status: 'completed', changes: 1, isLive: false }])
    expect((await client.call('listRuns', { query: { status: 'failed' } })).runs).toEqual([])
    const result = await client.call('getResult', { params: { run: changedRunId } })
    expect(result).toMatchObject({ outcome: 'completed', changes: { entries: 1, flagged: [] } })
    expect(result.journalHead).toMatch(/^[0-9a-f]{64}$/)
    const shown = await send('GET', `/v1/runs/${changedRunId}`)
    const { etag = '' } = shown.headers
    const again = await send('GET', `/v1/runs/${changedRunId}`, { headers: { 'if-none-match': etag } })
    expect([again.status, again.text]).toEqual([304, ''])
  })

  it('has its events as pages and as a stream, from any number on [H.02]', async () => {
    const { host } = await runThatChanged({ 'a.txt': 'one\n' }, { 'a.txt': 'two\n' })
    const { client, send } = await serveHost(host)
    const all = await host.runs.read(changedRunId)
    const first = await client.call('listEvents', { params: { run: changedRunId }, query: { limit: '2' } })
    expect(first).toEqual({ events: all.slice(0, 2), next: 3, isLast: false })
    const rest = await client.call('listEvents', { params: { run: changedRunId }, query: { from: '3' } })
    expect(rest).toEqual({ events: all.slice(2), next: all.length + 1, isLast: true })
    const streamed = []
    for await (const item of client.events(changedRunId, { from: 2 })) streamed.push(item)
    expect(streamed).toEqual(all.slice(1))
    const { text } = await send('GET', `/v1/runs/${changedRunId}/events`, {
      headers: { accept: 'text/event-stream', 'last-event-id': `${all.length - 1}` },
    })
    expect(text).toBe(
      `id: ${all.length}\nevent: event\ndata: ${JSON.stringify(all.at(-1))}\n\nevent: end\ndata: {}\n\n`,
    )
  })

  it('has its changes with diffs, which are applied and undone [H.02, W.01]', async () => {
    const { host, directory } = await runThatChanged(
      { 'a.txt': 'one\n', 'b.txt': 'b\n' },
      { 'a.txt': 'two\n', 'new.txt': 'new\n' },
    )
    const { client } = await serveHost(host)
    const { changes } = await client.call('listChanges', { params: { run: changedRunId } })
    expect(changes.map(({ path: name, change }) => [name, change])).toEqual([
      ['a.txt', 'modified'],
      ['b.txt', 'deleted'],
      ['new.txt', 'added'],
    ])
    expect(changes[0]?.diff).toContain('-one\n+two\n')
    expect(await client.call('getPatch', { params: { run: changedRunId } })).toContain('+new\n')
    const one = await client.call('applyChanges', {
      params: { run: changedRunId },
      body: { select: { paths: ['a.txt'] } },
    })
    expect(one).toMatchObject({ applied: ['a.txt'], appliedNow: 1 })
    expect(await readFile(path.join(directory, 'a.txt'), 'utf8')).toBe('two\n')
    const undone = await client.call('undoChanges', { params: { run: changedRunId } })
    expect(undone).toMatchObject({ restored: ['a.txt'], appliedNow: 0 })
    expect(await readFile(path.join(directory, 'a.txt'), 'utf8')).toBe('one\n')
    const refused = client.call('applyChanges', {
      params: { run: changedRunId },
      body: { select: { paths: ['../../etc/passwd'] } },
    })
    await expect(refused).rejects.toMatchObject({ status: 400, code: 'invalid_options' })
  })

  it('is applied as soon as the process that ended it has let go of it [H.02, W.01]', async () => {
    const { host } = await runThatChanged({ 'a.txt': 'one\n' }, { 'a.txt': 'two\n' })
    const { client } = await serveHost(host)
    const lock = await RunLock.take(host.runs.paths(changedRunId).locks, changedRunId)
    const result = Promise.withResolvers<object>()
    const handle = { id: changedRunId, result: () => result.promise }
    vi.spyOn(host, 'run').mockResolvedValue(handle as never)
    await client.call('createRun', { body: { prompt: 'x' } })
    const request = { params: { run: changedRunId }, body: { select: 'all' } } as const
    const applied = client.call('applyChanges', request).catch(String)
    expect(await Promise.race([applied, sleep(1_500, 'it waits')])).toBe('it waits')
    await lock[Symbol.asyncDispose]()
    result.resolve({})
    expect(await applied).toMatchObject({ appliedNow: 1 })
  })

  it('an error has its remedy once, with the route that does what its command does [H.02]', async () => {
    const { host } = await runThatChanged({ 'a.txt': 'one\n' }, { 'a.txt': 'two\n' })
    const { send, client } = await serveHost(host)
    const headers = { 'content-type': 'application/json' }
    const body = { select: { hunks: { 'a.txt': [7] } } }
    const at = `/v1/runs/${changedRunId}/changes/apply`
    const { status, json } = await send('POST', at, { headers, body: JSON.stringify(body) })
    const { detail, remedy } = json as { detail: string; remedy: string }
    expect([status, detail]).toEqual([409, expect.stringMatching(/; nothing was applied$/)])
    expect(remedy).toBe(
      `list the hunks: caisson workspace diff ${changedRunId}; by HTTP: GET /v1/runs/${changedRunId}/changes`,
    )
    const params = { run: changedRunId }
    await expect(client.call('applyChanges', { params, body })).rejects.toThrow(`${detail}; ${remedy}`)
  })

  it('can be applied hunk by hunk; one that is applied is refused [H.02 W.01]', async () => {
    const lines = (...changed: number[]) =>
      Array.from({ length: 30 }, (_, at) => (changed.includes(at) ? `new ${at}\n` : `${at}\n`)).join('')
    const { host, directory } = await runThatChanged({ 'a.txt': lines() }, { 'a.txt': lines(3, 25) })
    const { client } = await serveHost(host)
    const params = { run: changedRunId }
    const hunks = async () => (await client.call('listChanges', { params })).changes[0]?.hunks ?? []
    const [first, second] = await hunks()
    const apply = async (...names: (string | number)[]) =>
      await client.call('applyChanges', { params, body: { select: { hunks: { 'a.txt': names } } } })
    expect(await apply(second?.id ?? '')).toMatchObject({
      applied: ['a.txt'],
      parts: [{ path: 'a.txt', hunks: 1, of: 2 }],
    })
    expect(await readFile(path.join(directory, 'a.txt'), 'utf8')).toBe(lines(25))
    await expect(apply(second?.id ?? '')).rejects.toMatchObject({ status: 409, code: 'not_possible_now' })
    await expect(apply()).rejects.toMatchObject({ status: 400 })
    await expect(apply(0)).rejects.toMatchObject({ status: 400 })
    expect(await hunks()).toMatchObject([{ id: first?.id }])
    expect(await apply(1)).toMatchObject({ applied: ['a.txt'], parts: [] })
    expect(await readFile(path.join(directory, 'a.txt'), 'utf8')).toBe(lines(3, 25))
  })

  it('can be neither steered nor cancelled nor answered, and a run that is not there neither [H.02]', async () => {
    const { host } = await runThatChanged({}, { 'a.txt': 'a\n' })
    const { client } = await serveHost(host)
    for (const [run, status] of [
      [changedRunId, 409],
      [unknownRun, 404],
    ] as const) {
      const params = { run }
      const calls = [
        () => client.call('sendMessage', { params, body: { text: 'hello' } }),
        () => client.call('pauseRun', { params }),
        () => client.call('unpauseRun', { params }),
        () => client.call('cancelRun', { params, body: {} }),
        () => client.call('resumeRun', { params }),
        () => client.call('cancelRun', { params, body: { agent: 'tests' } }),
        () => client.call('revokeAnswer', { params: { ...params, approval: 'a1' } }),
        () =>
          client.call('answerApproval', {
            params: { ...params, approval: 'a1' },
            body: { decision: 'allow' },
          }),
      ]
      for (const call of calls) await expect(call()).rejects.toMatchObject({ status })
    }
    await client.call('removeRun', { params: { run: changedRunId } })
    expect((await client.call('listRuns', {})).runs).toEqual([])
  })
})

describe('a run of another process', () => {
  it('is streamed as it works, and its question is answered once, by name [H.02, S1.11]', async () => {
    const run = await runAtWork()
    const { client } = await serveHost(new Host({ env: run.env }))
    const items: unknown[] = []
    const streaming = (async () => {
      for await (const item of client.events(runId)) items.push(item)
    })()
    await run.watched
    const asked = run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
    await expect.poll(async () => (await client.call('listApprovals', {})).approvals.length).toBe(1)
    const { approvals } = await client.call('listApprovals', { query: { run: runId } })
    expect(approvals).toMatchObject([{ runId, approval: { approvalId: 'q1', tool: 'ask_user' } }])
    const params = { run: runId, approval: 'q1' }
    const answer = { params, body: { decision: 'allow', answer: 'blue', by: 'Ada' } } as const
    expect(await client.call('answerApproval', answer)).toEqual({ taken: true })
    expect(await asked).toMatchObject({ decision: 'allow', answer: 'blue' })
    await expect(client.call('answerApproval', answer)).rejects.toMatchObject({
      status: 409,
      code: 'decided',
    })
    run.record.delta('root', { type: 'prepare', what: 'vm', text: 'saving the VM' })
    const usage = run.record.state.usage
    const end = { outcome: 'completed', reason: 'completed', message: '', summary: 'done' } as const
    await run.end({ type: 'run-end', ...end, usage, durationMs: 1 })
    await streaming
    expect(items).toMatchObject([
      { seq: 1, event: { type: 'approval-request' } },
      { seq: 2, event: { type: 'approval-decision', by: 'person', name: 'Ada' } },
      { source: 'delta', delta: { type: 'prepare' } },
      { seq: 3, event: { type: 'run-end' } },
    ])
  })

  it('is not answered for another question than its caller saw, also under the same ID [H.02 S1.11]', async () => {
    const run = await runAtWork()
    const { client } = await serveHost(new Host({ env: run.env }))
    const params = { run: runId, approval: 'q1' }
    const withdrawing = new AbortController()
    const first = run.ask({ question: 'Which color?', kind: 'text' }, 'q1', withdrawing.signal)
    await expect.poll(async () => (await client.call('listApprovals', {})).approvals.length).toBe(1)
    const { digest } = await client.call('getApproval', { params })
    withdrawing.abort()
    await first
    const second = run.ask({ question: 'Which key?', kind: 'text' }, 'q1')
    const now = async () => await client.call('getApproval', { params })
    await expect.poll(async () => (await now()).approval.question?.question).toBe('Which key?')
    const answer = { decision: 'allow', answer: 'blue' } as const
    await expect(
      client.call('answerApproval', { params, body: { ...answer, digest } }),
    ).rejects.toMatchObject({
      ...{ status: 409, code: 'question_changed' },
      problem: { remedy: `read the question again: GET /v1/approvals?run=${runId}` },
    })
    expect(run.queue.pending).toEqual(['q1'])
    await client.call('answerApproval', { params, body: { ...answer, digest: (await now()).digest } })
    expect(await second).toMatchObject({ decision: 'allow', answer: 'blue' })
  })

  it('has one sub-agent steered and cancelled by its path; another path is refused with those at work [H.02 A.08]', async () => {
    const run = await runAtWork()
    const { client } = await serveHost(new Host({ env: run.env }))
    const start: AgentEvent = { type: 'agent-start', stepId: 's', brief: 'b', tools: [], limits: {} }
    await run.record.agent('root/tests', 1, start)
    const params = { run: runId }
    await client.call('sendMessage', { params, body: { text: 'use tabs', to: 'tests', by: 'Ada' } })
    await client.call('cancelRun', { params, body: { agent: 'root/tests', reason: 'not needed' } })
    for (const call of [
      () => client.call('sendMessage', { params, body: { text: 'x', to: 'docs' } }),
      () => client.call('cancelRun', { params, body: { agent: 'docs' } }),
    ])
      await expect(call()).rejects.toMatchObject({
        ...{ status: 409, code: 'not_possible_now' },
        message: expect.stringContaining('no sub-agent root/docs is at work; these are: root/tests'),
      })
    for (const body of [{ agent: 'root' }, { agent: '../x' }])
      await expect(client.call('cancelRun', { params, body })).rejects.toMatchObject({
        ...{ status: 400, code: 'invalid_options' },
      })
    for (const [body, field] of [
      [{ agent: 'tests', now: true }, 'now'],
      [{ reason: 'enough' }, 'reason'],
    ] as const)
      await expect(client.call('cancelRun', { params, body })).rejects.toMatchObject({
        status: 400,
        problem: { errors: [{ field }] },
      })
    const { events } = await client.call('listEvents', { params })
    expect(events.map(({ event }) => event)).toMatchObject([
      start,
      { type: 'steer-request', text: 'use tabs', agentPath: 'root/tests', by: 'Ada' },
      {
        type: 'agent-cancel-request',
        agentPath: 'root/tests',
        reason: 'not needed',
        by: 'the owner of the service',
      },
    ])
  })

  it('has an answer that expires listed, and revoked once [H.02 S1.11]', async () => {
    const run = await runAtWork()
    const { client } = await serveHost(new Host({ env: run.env }))
    const params = { run: runId }
    const call = { ...someCall, tool: 'delete_file', arguments: '{"path":"a"}' }
    const asked = run.queue.ask({ ...call, approvalId: 'ap-1' })
    await expect.poll(async () => (await client.call('listApprovals', {})).approvals.length).toBe(1)
    expect(await client.call('listAnswers', { params })).toEqual({ answers: [] })
    const before = Date.now()
    await client.call('answerApproval', {
      params: { ...params, approval: 'ap-1' },
      body: { decision: 'allow', scope: 'run', forMs: 600_000, by: 'Ada' },
    })
    expect(await asked).toMatchObject({ decision: 'allow' })
    const { answers } = await client.call('listAnswers', { params })
    expect(answers).toEqual([
      {
        ...{ approvalId: 'ap-1', decision: 'allow', tool: 'delete_file', name: 'Ada' },
        until: expect.toSatisfy((until) => until >= before + 600_000 && until <= Date.now() + 600_000),
      },
    ])
    expect(await run.queue.ask({ ...call, approvalId: 'ap-2' })).toMatchObject({ decision: 'allow' })
    const revoke = () =>
      client.call('revokeAnswer', { params: { ...params, approval: 'ap-1' }, query: { by: 'Ada' } })
    expect(await revoke()).toBeUndefined()
    await expect(revoke()).rejects.toMatchObject({
      ...{ status: 409, code: 'not_possible_now' },
      problem: { remedy: `list the answers: GET /v1/runs/${runId}/answers` },
    })
    expect(await client.call('listAnswers', { params })).toEqual({ answers: [] })
    const { events } = await client.call('listEvents', { params })
    expect(events.at(-1)?.event).toEqual({
      type: 'approval-revoke',
      approvalId: 'ap-1',
      by: 'Ada',
    })
    void run.queue.ask({ ...call, approvalId: 'ap-3' })
    await expect.poll(() => run.queue.pending).toEqual(['ap-3'])
  })

  it('gives its next event to a request that waits for it [H.02]', async () => {
    const run = await runAtWork()
    const { client } = await serveHost(new Host({ env: run.env }))
    const params = { run: runId }
    expect(await client.call('listEvents', { params, query: { waitMs: '1' } })).toMatchObject({ events: [] })
    const waiting = client.call('listEvents', { params, query: { waitMs: '20000' } })
    await run.watched
    void run.ask({ question: 'Which?', kind: 'text' }, 'q1')
    expect(await waiting).toMatchObject({ events: [{ seq: 1 }], next: 2, isLast: false })
    await expect(client.call('getResult', { params, query: { waitMs: '1' } })).rejects.toMatchObject({
      status: 409,
    })
  })
})

describe('forks', () => {
  const place = async (options: Parameters<typeof runWithMoments>[2]) => {
    const home = await temporaryFolder('forks')
    const host = new Host({
      env: { HOME: home, CAISSON_HOME: `${home}/state`, CAISSON_CACHE: `${home}/cache` },
    })
    const { runId: run } = await runWithMoments(host, home, options)
    return { host, run, ...(await serveHost(host)) }
  }

  it('of a run are made from a step of it, with what is said to each, and shown as forks [H.02 V.05]', async () => {
    const { host, run, client } = await place({ isOver: true })
    const params = { run }
    const body = { at: 'second', prompts: ['use tabs'], count: 2 }
    const { step, checkpointId, runIds } = await client.call('forkRun', { params, body })
    expect([step, checkpointId, runIds.length]).toEqual(['second', 'cp-3', 2])
    const [first = '', second = ''] = runIds
    expect((await host.runs.read(first)).at(-1)?.event).toMatchObject({
      ...{ type: 'steer-request', text: 'use tabs', by: 'the owner of the service' },
    })
    expect(await client.call('getRun', { params: { run: second } })).toMatchObject({
      ...{ status: 'interrupted', forkedFrom: run },
    })
    await expect(client.call('forkRun', { params, body: { at: 'third' } })).rejects.toMatchObject({
      ...{ status: 409, code: 'not_possible_now', message: expect.stringContaining('second') },
    })
    for (const wrong of [{ at: '' }, { at: 'end', count: 17 }, { at: 'end', count: 1, prompts: ['a', 'b'] }])
      await expect(client.call('forkRun', { params, body: wrong })).rejects.toMatchObject({ status: 400 })
    const unknown = client.call('forkRun', { params: { run: unknownRun }, body: { at: 'end' } })
    await expect(unknown).rejects.toMatchObject({ status: 404, code: 'run_not_found' })
    expect((await client.call('listRuns', {})).runs).toHaveLength(3)
  })

  it('that nobody started are left as they are by the next service, and hold no idempotency key [H.02 V.05]', async () => {
    const metadata = { 'caisson.started-by': 'service', 'caisson.idempotency-key': digestOf('order-1') }
    const { host, run, client, service } = await place({
      ...{ runId: `run-${'f'.repeat(20)}`, isOver: true, metadata },
    })
    const { runIds } = await client.call('forkRun', { params: { run }, body: { at: 'second', count: 2 } })
    const { runIds: begun } = await client.call('forkRun', { params: { run }, body: { at: 'start' } })
    await service.close()
    const next = await serveHost(host)
    expect(next.service.resumed).toEqual([])
    const [fork = ''] = [...runIds, ...begun]
    expect(await next.client.call('getRun', { params: { run: fork } })).toMatchObject({
      status: 'interrupted',
    })
    const again = next.client.call('createRun', { body: { prompt: 'do it' }, idempotencyKey: 'order-1' })
    // The run has another body than this request; its forks do not count.
    await expect(again).rejects.toMatchObject({ status: 422, message: expect.stringContaining(run) })
  })

  it('take the place of a run by a rewind, which is refused past effects outside the VM [H.02 V.05]', async () => {
    const order: HostEvent = {
      type: 'host-tool-start',
      ...{ agentPath: 'root', stepId: 'second', callId: 'c1', tool: 'order_part', arguments: '{}' },
    }
    const { host, run, client } = await place({ later: [order, checkpoint('cp-5', 5)] })
    const params = { run }
    await expect(client.call('rewindRun', { params, body: { to: 'second' } })).rejects.toMatchObject({
      ...{ status: 409, code: 'not_possible_now', message: expect.stringContaining('order_part') },
    })
    expect((await client.call('listRuns', {})).runs).toMatchObject([{ id: run, status: 'interrupted' }])
    const body = { to: 'second', prompt: 'use tabs', despiteEffects: true }
    const { runId: fork, step, effects } = await client.call('rewindRun', { params, body })
    expect([step, effects]).toEqual(['second', ['order_part ran on this host: {}']])
    expect(await client.call('getRun', { params })).toMatchObject({
      ...{ status: 'cancelled', end: { message: `rewound to second as ${fork}` } },
    })
    expect((await host.runs.read(fork))[0]?.event).toMatchObject({
      forkedFrom: { runId: run, despite: effects },
    })
    const unknown = client.call('rewindRun', { params: { run: unknownRun }, body: { to: 'end' } })
    await expect(unknown).rejects.toMatchObject({ status: 404, code: 'run_not_found' })
  })

  it('are compared path by path, as any runs that began with the same files [H.02 V.05]', async () => {
    const { host, directory } = await placeOfRuns({ 'a.txt': 'a\n' })
    const runIds = ['1', '2'].map((digit) => `run-${digit.padStart(20, '0')}`)
    for (const [index, id] of runIds.entries()) {
      const end = await beginChanging(host, directory, id)
      await end(treeOf({ 'a.txt': 'a\n' }), treeOf({ 'a.txt': 'b\n', 'new.txt': `${index}\n` }))
    }
    const { client } = await serveHost(host)
    const compared = await client.call('compareRuns', { query: { runs: runIds.join(',') } })
    expect(compared).toEqual(await host.compare(runIds))
    expect(compared.paths.map(({ path: name, isSame }) => [name, isSame])).toEqual([
      ['a.txt', true],
      ['new.txt', false],
    ])
    const [one] = runIds
    for (const [runs, status] of [
      [one, 400],
      [`${one},${one}`, 400],
      [`${one},last`, 400],
      [`${one},${unknownRun}`, 404],
    ] as const)
      await expect(client.call('compareRuns', { query: { runs: String(runs) } })).rejects.toMatchObject({
        status,
      })
    const test = { params: { run: unknownRun }, body: { command: 'true' } }
    await expect(client.call('testRun', test)).rejects.toMatchObject({ status: 404 })
    await expect(
      client.call('testRun', { params: { run: one ?? '' }, body: { command: '', timeoutMs: 1e9 } }),
    ).rejects.toMatchObject({
      status: 400,
      problem: { errors: [{ field: 'command' }, { field: 'timeoutMs' }] },
    })
  })
})

describe('a merge', () => {
  const place = async () => {
    const { host, directory } = await placeOfRuns({ 'a.txt': 'a\n' })
    const runIds = ['1', '2'].map((digit) => `run-${digit.padStart(20, '0')}`)
    for (const [index, id] of runIds.entries()) {
      const end = await beginChanging(host, directory, id)
      const changed = { 'a.txt': `${index}\n`, [`new-${index}.txt`]: 'new\n' }
      await end(treeOf({ 'a.txt': 'a\n' }), treeOf(changed))
    }
    return { host, directory, runIds, ...(await serveHost(host)) }
  }

  it('names the conflicts and makes nothing, until the request decides; then its run is applied as any [H.02 V.05 W.01]', async () => {
    const { directory, runIds, client, send } = await place()
    const [one = '', other = ''] = runIds
    const undecided = await client.call('mergeRuns', { body: { runs: runIds } })
    expect(undecided).toEqual({
      ...{ entries: 2, merged: [], conflicts: [{ path: 'a.txt', reason: expect.stringContaining(one) }] },
    })
    expect((await client.call('listRuns', {})).runs).toHaveLength(2)
    const body = { runs: runIds, takes: [{ runId: other, path: 'a.txt' }] }
    const { runId: run = '', entries, conflicts } = await client.call('mergeRuns', { body })
    expect([entries, conflicts]).toEqual([3, []])
    expect(await client.call('getRun', { params: { run } })).toMatchObject({ status: 'completed' })
    await client.call('applyChanges', { params: { run }, body: { select: 'all' } })
    const texts = ['a.txt', 'new-0.txt', 'new-1.txt'].map((name) =>
      readFile(path.join(directory, name), 'utf8'),
    )
    expect(await Promise.all(texts)).toEqual(['1\n', 'new\n', 'new\n'])
    const again = await send('POST', '/v1/merge', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const { runId } = again.json as { runId: string }
    expect([again.status, again.headers.location]).toEqual([200, `/v1/runs/${runId}`])
  })

  it('of runs that are not there, that are one, or with a choice that names nothing is refused [H.02 V.05]', async () => {
    const { runIds, client } = await place()
    const [one = ''] = runIds
    const take = (fields: object) => ({ runs: runIds, takes: [{ runId: one, path: 'a.txt', ...fields }] })
    for (const [body, status] of [
      [{ runs: [one] }, 400],
      [{ runs: [one, one] }, 400],
      [{ runs: [one, 'last'] }, 400],
      [{ runs: [one, unknownRun] }, 404],
      [take({ path: '../a.txt' }), 400],
      [take({ path: 'b.txt' }), 400],
      [take({ hunks: [0] }), 400],
      [take({ hunks: [7] }), 400],
      [take({ runId: unknownRun }), 404],
      [{ runs: runIds, more: true }, 400],
    ] as const)
      await expect(
        client.call('mergeRuns', { body: body as never }),
        JSON.stringify(body),
      ).rejects.toMatchObject({
        status,
      })
    expect((await client.call('listRuns', {})).runs).toHaveLength(2)
  })
})

it('a workspace outside of the allowed folders is refused, also over a link [H.02]', async () => {
  const { host, directory } = await placeOfRuns({ 'a.txt': 'a\n' })
  const { client } = await serveHost(host, { workspaces: [directory] })
  for (const workspace of [
    '/',
    '/etc',
    path.dirname(directory),
    `${directory}/..`,
    `${directory}x`,
    '/nowhere',
  ])
    await expect(client.call('createRun', { body: { prompt: 'x', workspace } })).rejects.toMatchObject({
      status: 403,
      code: 'workspace_refused',
    })
  await expect(
    client.call('createRun', { body: { prompt: 'x', metadata: { 'caisson.started-by': 'me' } } }),
  ).rejects.toMatchObject({ status: 400, problem: { errors: [{ field: 'metadata' }] } })
})

it('a number of a query or path that is none is refused with what was given and what is expected [H.02]', async () => {
  const { host } = await runThatChanged({ 'a.txt': 'one\n' }, { 'a.txt': 'two\n' })
  const { send } = await serveHost(host)
  const run = `/v1/runs/${changedRunId}`
  for (const [method, path, message] of [
    ['GET', `${run}?waitMs=60s`, 'waitMs: must be a whole number of milliseconds, got "60s"'],
    ['GET', `${run}?waitMs=`, 'waitMs: must be a whole number of milliseconds, got ""'],
    ['GET', `${run}/result?waitMs=1.5`, 'waitMs: must be a whole number of milliseconds, got 1.5'],
    ['GET', `${run}?waitMs=60001`, 'waitMs: must be 60000 or less, got 60001'],
    ['GET', '/v1/runs?limit=ten', 'limit: must be a whole number, got "ten"'],
    ['GET', `${run}/events?from=first`, 'from: must be a whole number, got "first"'],
    ['GET', `${run}/events?limit=Infinity`, 'limit: must be a whole number, got "Infinity"'],
    ['DELETE', '/v1/grants/last', 'grant: must be a whole number, got "last"'],
  ] as const) {
    const { status, text } = await send(method, path)
    expect([status, JSON.parse(text).detail]).toEqual([400, expect.stringContaining(message)])
  }
})
