// The metrics of the HTTP service as a scraper gets them: real requests, stored runs, control sockets of VMs, no VM.
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { RunLimits } from '#specs/protocol/task.ts'
import { type Metric, metrics } from '#specs/service/metrics.ts'
import { ControlServer, controlSocketName } from '../../host/control/server.ts'
import { Host, type JournalEvent } from '../../host/index.ts'
import { MetricValues } from '../../host/service/metric-values.ts'
import { RunMetrics } from '../../host/service/run-metrics.ts'
import { details, info } from '../../host/test/control/support.ts'
import { beginRun } from '../../host/test/support/begun-run.ts'
import { placeOfRuns } from '../../host/test/support/changed-run.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { createVmFolder } from '../../host/vm/vm-folder.ts'
import { holderOf, runThatUsed } from './keys-support.ts'
import { readMetrics, seriesValue } from './prometheus-text.ts'
import { serveHost } from './support.ts'

type Event = JournalEvent['event']
const json = { 'content-type': 'application/json' }
const answer = { headers: json, body: JSON.stringify({ decision: 'allow', answer: 'blue' }) }

/** The metrics after events of one run, each at a time in ms. */
function metricsAfter(...events: readonly (readonly [at: number, event: Event])[]) {
  const values = new MetricValues()
  const runs = new RunMetrics(values)
  const runId = 'run-0123456789abcdef0123'
  for (const [at, event] of events) runs.event({ runId, at, event } as JournalEvent)
  return readMetrics(values.text(runs.samples()))
}

const runStart: Event = {
  ...{ type: 'run-start', prompt: 'a secret prompt', model: 'm', provider: 'offline' },
  ...{ directory: '/nowhere', limits: RunLimits.parse({}) },
}
const workspaceReady: Event = {
  ...{ type: 'workspace-ready', files: 1, bytes: 1, leftOut: 0, examples: [] },
  manifestSha256: '0'.repeat(64),
}
const vmReady: Event = {
  type: 'vm-ready',
  start: 'template',
  accelerator: 'tcg',
  confinement: 'none',
  phasesMs: {},
}
const sessionStart: Event = { type: 'session-start', session: 1, resumed: false }
const usage = { requests: 1, inputTokens: 10, cachedTokens: 4, outputTokens: 5, reasoningTokens: 2 }

async function vmOf({ folders }: Pick<Host, 'folders'>, residentBytes: number) {
  const { id, path: folder } = await createVmFolder(folders.vms)
  const refused = async () => ({ ok: false, error: { code: 'unavailable', message: 'not here' } }) as const
  const usage = { atMs: 1, cpuMs: 1, residentBytes, diskBytes: 4_096, threads: 1 }
  const server = await ControlServer.open(path.join(folder, controlSocketName), {
    vm: {
      describe: () => ({ ...info, id }),
      inspect: async () => ({ ...details, id, usage }),
      console: { text: () => '', onData: () => () => undefined },
      stop: () => undefined,
      setPaused: async () => undefined,
      access: { openShell: refused, openForward: refused },
    },
  })
  onTestFinished(() => server[Symbol.asyncDispose]())
  return server
}

describe('GET /metrics', () => {
  it('gives every metric of the table and no other, in the text format of Prometheus [H.02]', async () => {
    const { env } = await placeOfRuns({})
    const host = new Host({ env, queue: { maxAtWork: 3 } })
    await runThatUsed(host, `run-${'1'.repeat(20)}`, {}, { tokens: 1 })
    await vmOf(host, 1)
    const { send } = await serveHost(host)
    await send('GET', '/v1/runs')
    const { status, headers, text } = await send('GET', '/metrics')
    expect([status, headers['content-type']]).toEqual([200, 'text/plain; version=0.0.4; charset=utf-8'])
    const families = readMetrics(text)
    // Those of a fleet: test/fleet/submission.test.ts.
    const ofService = Object.entries(metrics).filter(([name]) => !name.startsWith('caisson_fleet_'))
    expect([...families.keys()]).toEqual(ofService.map(([name]) => name))
    for (const [name, { type, help, labels = {} }] of ofService as [string, Metric][]) {
      const family = families.get(name)
      expect(family).toMatchObject({ type, help })
      for (const { labels: found } of family?.series ?? []) {
        const { le: _, ...own } = found
        expect(Object.keys(own).sort()).toEqual(Object.keys(labels).sort())
        for (const [label, value] of Object.entries(own)) expect(labels[label] ?? [value]).toContain(value)
      }
    }
  })

  it('counts stored runs by status, the questions that wait, and what VMs use [H.02]', async () => {
    const run = await runAtWork()
    const host = new Host({ env: run.env })
    await runThatUsed(host, `run-${'1'.repeat(20)}`, {}, { tokens: 1 })
    const { record } = await beginRun(host, `run-${'2'.repeat(20)}`, '/nowhere')
    await record[Symbol.asyncDispose]()
    const first = await vmOf(host, 100)
    await vmOf(host, 50)
    const { send } = await serveHost(host)
    const asked = run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
    await expect.poll(async () => (await send('GET', '/v1/approvals')).text).toContain('q1')
    const read = async () => readMetrics((await send('GET', '/metrics')).text)
    const found = await read()
    const value = (name: string, labels = {}) => seriesValue(found, name, labels)
    expect(value('caisson_runs', { status: 'failed' })).toBe(1)
    expect(value('caisson_runs', { status: 'completed' })).toBe(0)
    expect(value('caisson_source_up', { source: 'runs' })).toBe(1)
    expect(value('caisson_vms', { state: 'running' })).toBe(2)
    expect(value('caisson_vms_memory_bytes')).toBe(150)
    expect(value('caisson_vms_memory_limit_bytes')).toBe(2 * info.memoryBytes)
    expect(value('caisson_vms_disk_bytes')).toBe(8_192)
    const slots = ['1', '2'].map((slot) => value('caisson_vm_memory_bytes', { slot }))
    expect(slots.toSorted()).toEqual([100, 50])
    // A VM that remains keeps its slot, and the next one gets the slot that is free.
    await first[Symbol.asyncDispose]()
    await vmOf(host, 70)
    const kept = slots[0] === 50 ? '1' : '2'
    const memoryOf = async (slot: string) => seriesValue(await read(), 'caisson_vm_memory_bytes', { slot })
    await expect.poll(() => memoryOf(kept === '1' ? '2' : '1'), { timeout: 10_000 }).toBe(70)
    expect(await memoryOf(kept)).toBe(50)
    expect(await send('POST', `/v1/runs/${runId}/approvals/q1`, answer)).toMatchObject({ status: 200 })
    await asked
  })

  it('counts runs of this service from their start to their end, and its log names the run [H.02, S4.11]', async () => {
    const { host, directory } = await placeOfRuns({})
    const { send, logged } = await serveHost(host, { workspaces: [directory] })
    const body = JSON.stringify({ prompt: 'a secret prompt', workspace: directory })
    const created = await send('POST', '/v1/runs', { headers: json, body })
    const { id = '' } = created.json as { id?: string }
    expect([created.status, id]).toEqual([201, expect.stringMatching(/^run-/)])
    // It ends before there is an image: as cancelled, or because none can be built here.
    await send('POST', `/v1/runs/${id}/cancel`, { headers: json, body: '{"now":true}' })
    const text = async () => (await send('GET', '/metrics')).text
    const ended = async () =>
      readMetrics(await text())
        .get('caisson_runs_ended_total')
        ?.series.reduce((sum, { value }) => sum + value, 0)
    await expect.poll(ended, { timeout: 30_000 }).toBe(1)
    const found = readMetrics(await text())
    expect(seriesValue(found, 'caisson_runs_started_total')).toBe(1)
    expect(seriesValue(found, 'caisson_runs_starting', { for: 'workspace' })).toBe(0)
    expect(seriesValue(found, 'caisson_http_requests_total', { route: 'createRun', status: '201' })).toBe(1)
    expect(logged).toContainEqual(expect.objectContaining({ route: 'createRun', run: id, status: 201 }))
    for (const word of [id, 'secret prompt', directory]) expect(await text()).not.toContain(word)
  })

  it('needs the scope metrics, with which a key sees no run [H.02, S4.11]', async () => {
    const { host } = await placeOfRuns({})
    const served = await serveHost(host)
    const { send } = await holderOf(host, served, 'prometheus', { scopes: ['metrics'] })
    const reader = await holderOf(host, served, 'ci', { scopes: ['read', 'run', 'approve', 'apply'] })
    expect((await send('GET', '/metrics')).status).toBe(200)
    expect((await send('GET', '/v1/runs')).status).toBe(403)
    expect((await reader.send('GET', '/metrics')).status).toBe(403)
    expect((await served.send('GET', '/metrics', { headers: { authorization: undefined } })).status).toBe(401)
  })

  it('escapes a value that would end its label or its line [H.02]', async () => {
    const { host } = await placeOfRuns({})
    const version = 'a"} 1\nb\\" 2\r\n# TYPE x counter\\n'
    const { send, token } = await serveHost(host, { version })
    const { text } = await send('GET', '/metrics')
    const [build] = readMetrics(text).get('caisson_build_info')?.series ?? []
    expect(build).toMatchObject({ labels: { version, node: process.versions.node }, value: 1 })
    expect(text).not.toContain(token)
  })

  it('gives scrapers at the same time one reading, and no more lines after many of them [H.02]', async () => {
    const { host } = await placeOfRuns({})
    let lists = 0
    const list = host.runs.list.bind(host.runs)
    host.runs.list = async () => {
      lists += 1
      return await list()
    }
    const { send } = await serveHost(host)
    lists = 0
    const scrape = async () => (await send('GET', '/metrics')).text.split('\n').length
    await Promise.all(Array.from({ length: 20 }, scrape))
    expect(lists).toBe(1)
    const before = await scrape()
    for (let round = 0; round < 50; round += 1) await send('GET', `/no-such-route-${round}`)
    // One line more for all paths without a route.
    expect(await scrape()).toBe(before + 1)
  })
})

describe('the metrics of a run', () => {
  it('have the time until its agent answers, by how the VM started [H.02]', () => {
    const found = metricsAfter(
      [1_000, runStart],
      [1_100, workspaceReady],
      [3_000, vmReady],
      [3_200, sessionStart],
    )
    const series = (end: string, more = {}) =>
      seriesValue(found, `caisson_run_start_seconds_${end}`, { start: 'template', ...more })
    expect([series('count'), series('sum')]).toEqual([1, 2.2])
    expect([series('bucket', { le: '1' }), series('bucket', { le: '2.5' })]).toEqual([0, 1])
    expect(seriesValue(found, 'caisson_run_start_seconds_count', { start: 'boot' })).toBe(0)
    // A session after a lost connection is no start, and a clock that was set back gives no negative time.
    const again = metricsAfter([1_000, runStart], [900, sessionStart], [5_000, sessionStart])
    expect(seriesValue(again, 'caisson_run_start_seconds_sum', { start: 'boot' })).toBe(0)
    expect(seriesValue(again, 'caisson_run_start_seconds_count', { start: 'boot' })).toBe(1)
  })

  it('have the time that it waited in the queue, which is no part of its start [H.02 S4.12]', () => {
    const found = metricsAfter(
      [1_000, runStart],
      [1_000, { type: 'queue-start', priority: 'normal' }],
      [61_000, { type: 'queue-end', waitedMs: 60_000 }],
      [62_000, vmReady],
      [63_000, sessionStart],
    )
    expect(seriesValue(found, 'caisson_queue_wait_seconds_sum')).toBe(60)
    expect(seriesValue(found, 'caisson_run_start_seconds_sum', { start: 'template' })).toBe(2)
    const waiting = metricsAfter([1_000, runStart], [1_000, { type: 'queue-start', priority: 'normal' }])
    expect(seriesValue(waiting, 'caisson_runs_starting', { for: 'queue' })).toBe(1)
    const runs = new RunMetrics(new MetricValues())
    expect(runs.oldestWait).toBeUndefined()
    for (const [at, id] of [
      [5, runId],
      [3, `run-${'2'.repeat(20)}`],
    ] as const)
      runs.event({ runId: id, at, event: { type: 'queue-start', priority: 'low' } } as JournalEvent)
    expect(runs.oldestWait).toBe(3)
    runs.end(`run-${'2'.repeat(20)}`)
    expect(runs.oldestWait).toBe(5)
  })

  it('say what it waits for until then, and nothing after its end [H.02]', () => {
    const waits = (...events: Event[]) => {
      const found = metricsAfter(...events.map((event, at) => [at, event] as const))
      return ['workspace', 'vm', 'agent'].filter(
        (phase) => seriesValue(found, 'caisson_runs_starting', { for: phase }) === 1,
      )
    }
    const resume: Event = { type: 'run-resume', epoch: 2, checkpointId: null, message: 'lost' }
    const end = { outcome: 'failed', reason: 'internal', message: '', summary: '' } as const
    expect(waits(runStart)).toEqual(['workspace'])
    expect(waits(runStart, workspaceReady)).toEqual(['vm'])
    expect(waits(runStart, workspaceReady, vmReady)).toEqual(['agent'])
    expect(waits(runStart, workspaceReady, vmReady, sessionStart)).toEqual([])
    expect(waits(runStart, sessionStart, resume)).toEqual(['vm'])
    expect(waits(runStart, { type: 'run-end', ...end, usage, durationMs: 1 })).toEqual([])
    // A run that cannot be continued here has no end in its journal.
    const runs = new RunMetrics(new MetricValues())
    runs.event({ runId, at: 1, event: resume } as JournalEvent)
    runs.end(runId)
    expect(runs.samples().map(({ value }) => value)).toEqual([0, 0, 0, 0])
  })

  it('have its tokens, cost, decisions and refused accesses [H.02, S1.11]', () => {
    const model: Event = { type: 'model-end', status: 200, durationMs: 1, usage, costUsd: 0.25 }
    const decision = { approvalId: 'a', scope: 'once' } as const
    const found = metricsAfter(
      [1, model],
      [2, { type: 'model-end', status: 500, durationMs: 1, usage, error: 'broken' }],
      [3, { type: 'approval-decision', ...decision, decision: 'deny', by: 'rule' }],
      [4, { type: 'approval-decision', ...decision, decision: 'deny', by: 'rule' }],
      [5, { type: 'approval-decision', ...decision, decision: 'allow', by: 'person', name: 'Ada' }],
      [6, { type: 'egress-denied', target: 'https://evil.example', reason: 'no rule' }],
    )
    const tokens = ['input', 'output', 'reasoning', 'cached'].map((kind) =>
      seriesValue(found, 'caisson_model_tokens_total', { kind }),
    )
    expect(tokens).toEqual([20, 10, 4, 8])
    expect(seriesValue(found, 'caisson_model_cost_usd_total')).toBe(0.25)
    expect(seriesValue(found, 'caisson_model_requests_total', { result: 'error' })).toBe(1)
    const decided = (how: string, by: string) =>
      seriesValue(found, 'caisson_approval_decisions_total', { decision: how, by })
    expect([decided('deny', 'rule'), decided('allow', 'person'), decided('allow', 'rule')]).toEqual([2, 1, 0])
    expect(seriesValue(found, 'caisson_egress_denied_total')).toBe(1)
  })
})
