// `caisson serve` as a process of its own, with real VMs: a run by HTTP from its start to its applied changes, and
// a service that is killed in the middle of a run.
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient, type ServiceEvent } from '../../client/index.ts'
import { type CliProcess, cliPlace, type Place } from '../../host/test/support/cli.ts'
import { readFiles } from '../../host/test/support/runs.ts'
import { answerWith, receiveWebhooks, webhookSecret } from './notify-support.ts'
import { readMetrics, seriesValue } from './prometheus-text.ts'

const waiting = { timeout: 120_000, interval: 250 }
/** One call in each turn of the model. */
const calls = [
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['delete_file', { path: 'old.txt' }],
  ['run_bash', { command: 'echo done >> log.txt' }],
] as const

async function serve(
  place: Place,
  ...options: string[]
): Promise<{ process: CliProcess; client: ServiceClient; baseUrl: string }> {
  const process = place.start('serve', '--port', '0', ...options)
  await expect
    .poll(() => /listens on (http:\S+)/.exec(process.errors())?.[1], { timeout: 30_000 })
    .toBeTruthy()
  const baseUrl = /listens on (http:\S+)/.exec(process.errors())?.[1] ?? ''
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { process, client: new ServiceClient({ baseUrl, token }), baseUrl }
}

/** A model that makes the calls one after another, and a workspace. */
async function beginning(env: Record<string, string> = {}) {
  const model = await startModelServer(({ messages }) => {
    const call = calls[messages.filter(({ role }) => role === 'tool').length]
    return reply(
      call === undefined
        ? { text: 'It is done.' }
        : { calls: [{ id: `call${call[0].slice(0, 5)}`, name: call[0], arguments: call[1] }] },
    )
  })
  const place = await cliPlace(
    { 'old.txt': 'old\n', 'log.txt': 'begun\n' },
    { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted', ...env },
  )
  return { model, place }
}

it('a run over HTTP outlives the service that is killed, and its question is answered at the next [H.02, R.01]', async () => {
  const { model, place } = await beginning()
  await using _ = model
  const first = await serve(place)
  const body = {
    prompt: 'Replace old.txt by new.txt',
    workspace: place.workspace,
    metadata: { ticket: 'T-1' },
    vm: { memoryBytes: 512 * 1024 ** 2 },
  }
  const created = await first.client.call('createRun', { body, idempotencyKey: 'order-1' })
  const params = { run: created.id }
  expect(await first.client.call('createRun', { body, idempotencyKey: 'order-1' })).toMatchObject(
    params.run ? { id: created.id } : {},
  )
  await expect(
    first.client.call('createRun', { body: { ...body, prompt: 'Another' }, idempotencyKey: 'order-1' }),
  ).rejects.toMatchObject({ status: 422, code: 'idempotency_conflict' })
  const isAsked = (client: ServiceClient) => async () =>
    (await client.call('listApprovals', { query: { run: created.id } })).approvals[0]?.approval.tool
  await expect.poll(isAsked(first.client), { timeout: 120_000 }).toBe('delete_file')
  // A checkpoint of the moment of the question.
  await expect
    .poll(
      async () => (await first.client.call('listEvents', { params })).events.map(({ event }) => event.type),
      {
        timeout: 30_000,
      },
    )
    .toContain('checkpoint')
  const { approvals } = await first.client.call('listApprovals', { query: { run: created.id } })
  expect(await first.client.call('ready', {})).toEqual({ status: 'ready' })
  const scrape = async (client: ServiceClient) => readMetrics(await client.call('metrics', {}))
  const counted = (metrics: Awaited<ReturnType<typeof scrape>>) =>
    ['started', 'resumed'].map((name) => seriesValue(metrics, `caisson_runs_${name}_total`))
  const atWork = await scrape(first.client)
  // QEMU and what its guest has touched.
  expect(seriesValue(atWork, 'caisson_vm_memory_bytes', { slot: '1' })).toBeGreaterThan(64 * 1024 ** 2)
  expect(seriesValue(atWork, 'caisson_approvals_waiting')).toBe(1)
  expect(seriesValue(atWork, 'caisson_runs', { status: 'waiting' })).toBe(1)
  expect(counted(atWork)).toEqual([1, 0])

  first.process.child.kill('SIGKILL')
  await once(first.process.child, 'close')

  const second = await serve(place)
  await expect.poll(() => second.process.errors()).toContain(`Continues ${created.id}`)
  // The key is known to the next service too.
  expect((await second.client.call('createRun', { body, idempotencyKey: 'order-1' })).id).toBe(created.id)
  const seen: ServiceEvent[] = []
  const watching = (async () => {
    for await (const item of second.client.events(created.id)) seen.push(item)
  })()
  // Long before the agent of the new VM asks again.
  const answer = { params: { ...params, approval: approvals[0]?.approval.approvalId ?? '' } }
  expect(
    await second.client.call('answerApproval', { ...answer, body: { decision: 'allow', by: 'Ada' } }),
  ).toEqual({ taken: true })
  const result = () =>
    second.client.call('getResult', { params, query: { waitMs: '60000' } }).catch(() => undefined)
  await expect.poll(result, waiting).toMatchObject({ outcome: 'completed', changes: { entries: 3 } })
  await watching
  const ended = await scrape(second.client)
  // What the earlier service counted is not counted again.
  expect(counted(ended)).toEqual([0, 1])
  const starts = ['boot', 'template', 'saved'].map((start) =>
    seriesValue(ended, 'caisson_run_start_seconds_count', { start }),
  )
  expect(starts.reduce((sum = 0, count = 0) => sum + count, 0)).toBe(1)
  expect(seriesValue(ended, 'caisson_model_tokens_total', { kind: 'output' })).toBeGreaterThan(0)
  expect(seriesValue(ended, 'caisson_runs_ended_total', { outcome: 'completed' })).toBe(1)
  const events = seen.flatMap((item) => (item.source === 'delta' ? [] : [item]))
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
  expect(events.filter(({ event }) => event.type === 'run-resume')).toHaveLength(1)
  expect(events.filter(({ event }) => event.type === 'run-end')).toHaveLength(1)
  expect(events.find(({ event }) => event.type === 'approval-decision')?.event).toMatchObject({
    by: 'person',
    name: 'Ada',
    via: 'http',
  })
  const listed = await second.client.call('listRuns', { query: { metadata: '{"ticket":"T-1"}' } })
  expect(listed.runs).toMatchObject([{ id: created.id, metadata: { ticket: 'T-1' } }])
  await second.client.call('applyChanges', { params, body: { select: 'all' } })
  expect(await readFiles(place.workspace)).toEqual({ 'new.txt': 'new\n', 'log.txt': 'begun\ndone\n' })

  second.process.child.kill('SIGTERM')
  const end = await second.process.ended
  expect([end.code, end.stderr]).toEqual([0, expect.stringContaining('Ends (SIGTERM)')])
  expect(await place.leftovers()).toEqual([])
}, 300_000)

it('a run over HTTP sleeps and is woken by the answer of a link that a webhook got; its fork is started, compared and tested [H.02 R.12 V.05]', async () => {
  const { model, place } = await beginning({ HOOK: webhookSecret })
  await using _ = model
  const hook = await receiveWebhooks(answerWith(200))
  await mkdir(path.join(place.home, 'caisson'), { mode: 0o700 })
  const config = `[notify]
afterMs = 0
webhooks.ops = { url = "${hook.url}", secret = { env = "HOOK" }, local = true }
`
  await writeFile(path.join(place.home, 'caisson/config.toml'), config, { mode: 0o600 })
  const { process, client, baseUrl } = await serve(place, '--public-url', 'http://127.0.0.1:3789')
  const memoryBytes = 512 * 1024 ** 2
  const vm = { memoryBytes, hibernateAfterMs: 0, sleepAfterMs: 1_000 }
  const body = { prompt: 'Replace old.txt by new.txt', workspace: place.workspace, vm }
  const { id: run } = await client.call('createRun', { body, idempotencyKey: 'order-2' })
  const params = { run }
  const status = async () => (await client.call('getRun', { params })).status
  await expect.poll(status, { timeout: 120_000 }).toBe('sleeping')
  expect((await client.call('listVms', {})).vms).toEqual([])
  await expect(client.call('resumeRun', { params })).rejects.toMatchObject({ status: 409, code: 'run_busy' })
  await expect.poll(() => hook.got.length, { timeout: 30_000 }).toBe(1)
  const { link, questionId: approval } = JSON.parse(hook.got[0]?.body ?? '').data as Record<string, string>
  const answer = { params: { run, approval: approval ?? '' }, body: { decision: 'allow' } } as const
  const byLink = new ServiceClient({ baseUrl, token: link?.split('#')[1] ?? '' })
  await expect(byLink.call('getRun', { params })).rejects.toMatchObject({ status: 403 })
  expect(await byLink.call('answerApproval', answer)).toEqual({ taken: true })
  await expect(byLink.call('answerApproval', answer)).rejects.toMatchObject({ status: 409 })
  const ended = () => client.call('getResult', { params, query: { waitMs: '60000' } }).catch(() => undefined)
  await expect
    .poll(ended, { timeout: 120_000 })
    .toMatchObject({ outcome: 'completed', changes: { entries: 3 } })

  const { runIds } = await client.call('forkRun', { params, body: { at: 'end' } })
  const [fork = ''] = runIds
  expect(await client.call('resumeRun', { params: { run: fork } })).toMatchObject({
    ...{ id: fork, forkedFrom: run },
  })
  const forkEnded = () =>
    client.call('getResult', { params: { run: fork }, query: { waitMs: '60000' } }).catch(() => undefined)
  await expect.poll(forkEnded, { timeout: 120_000 }).toMatchObject({ outcome: 'completed' })
  const { paths } = await client.call('compareRuns', { query: { runs: `${run},${fork}` } })
  expect(paths.map(({ path: name, isSame }) => [name, isSame])).toEqual([
    ['log.txt', true],
    ['new.txt', true],
    ['old.txt', true],
  ])
  const test = { params: { run: fork }, body: { command: 'cat log.txt; test -e old.txt' } }
  expect(await client.call('testRun', test)).toMatchObject({ exitCode: 1, stdout: 'begun\ndone\n' })
  const { runId } = await client.call('rewindRun', { params, body: { to: 'end' } })
  expect(await client.call('getRun', { params: { run: runId } })).toMatchObject({
    ...{ status: 'interrupted', forkedFrom: run },
  })
  // The key names the run that was started, not its forks.
  expect((await client.call('createRun', { body, idempotencyKey: 'order-2' })).id).toBe(run)

  process.child.kill('SIGTERM')
  expect((await process.ended).code).toBe(0)
}, 300_000)
