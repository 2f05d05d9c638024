// Runs that wait in the queue of `caisson serve`, with real VMs: all end, and one that waits for a person gives its place.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient } from '../../client/index.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { readMetrics, seriesValue } from './prometheus-text.ts'

it('three runs with one place: who waits for a person gives it, waits for its turn with the answer, and all end [S4.12 H.02]', async () => {
  const go = Promise.withResolvers<void>()
  const text = reply({ text: 'It is done.' })
  await using model = await startModelServer(async ({ messages }) => {
    const isFirst = JSON.stringify(messages).includes('Delete old.txt')
    const wasAsked = messages.some(({ role }) => role === 'tool')
    if (isFirst && !wasAsked)
      return reply({ calls: [{ id: 'call1', name: 'delete_file', arguments: { path: 'old.txt' } }] })
    if (!isFirst) await go.promise
    return text
  })
  const place = await cliPlace(
    { 'old.txt': 'old\n' },
    { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' },
  )
  const service = place.start('serve', '--port', '0', '--parallel-runs', '1')
  const url = () => /listens on (http:\S+)/.exec(service.errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  const client = new ServiceClient({ baseUrl: url() ?? '', token })
  const start = async (prompt: string) => {
    const vm = { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 500 }
    return (await client.call('createRun', { body: { prompt, workspace: place.workspace, vm } })).id
  }
  const runs = [await start('Delete old.txt'), await start('Look around'), await start('Look again')]
  const [first = '', second = '', third = ''] = runs
  const resource = async (run: string) => await client.call('getRun', { params: { run } })
  const statusOf = async () => await Promise.all(runs.map(async (run) => (await resource(run)).status))
  expect((await statusOf()).slice(1)).toEqual(['queued', 'queued'])
  // The VM of the first is saved while it waits for an answer, and the second has its place.
  await expect.poll(statusOf, { timeout: 120_000 }).toEqual(['waiting', 'running', 'queued'])
  const [asked] = (await client.call('listApprovals', { query: { run: first } })).approvals
  const params = { run: first, approval: asked?.approval.approvalId ?? '' }
  await client.call('answerApproval', { params, body: { decision: 'allow' } })
  // It continues before the third starts.
  await expect.poll(async () => (await resource(first)).queue).toMatchObject({ place: 1, waiting: 2 })
  expect(await statusOf()).toEqual(['queued', 'running', 'queued'])
  go.resolve()
  const resultOf = async (run: string) =>
    await client.call('getResult', { params: { run }, query: { waitMs: '60000' } }).catch(() => undefined)
  for (const run of runs)
    await expect.poll(() => resultOf(run), { timeout: 120_000 }).toMatchObject({ outcome: 'completed' })
  const startOf = async (run: string, type: string) =>
    (await client.call('listEvents', { params: { run } })).events.findLast(({ event }) => event.type === type)
      ?.at ?? 0
  const order = [
    await startOf(second, 'run-end'),
    await startOf(first, 'vm-wake'),
    await startOf(third, 'vm-ready'),
  ]
  expect(order.toSorted((a, b) => a - b)).toEqual(order)
  const metrics = readMetrics(await client.call('metrics', {}))
  expect(seriesValue(metrics, 'caisson_queue_wait_seconds_count')).toBe(3)
  expect(seriesValue(metrics, 'caisson_queue_at_work')).toBe(0)
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
  expect(await place.leftovers()).toEqual([])
}, 300_000)
