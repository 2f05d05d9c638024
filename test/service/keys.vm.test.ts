// A key of the command line starts a run in a real VM over HTTP: within its quotas, for itself alone, by its name.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient } from '../../client/index.ts'
import { cliPlace, type Place } from '../../host/test/support/cli.ts'

const maxTokens = 400_000

async function keyOf(place: Place, name: string, ...options: string[]) {
  const made = place.start('serve', 'keys', 'create', name, '--json', ...options)
  const { code, stdout } = await made.ended
  expect(code).toBe(0)
  return JSON.parse(stdout) as { readonly id: string; readonly secret: string }
}

it('a key starts, answers and applies its own run within its quotas, and another key sees nothing of it [H.02]', async () => {
  await using model = await startModelServer(({ messages }) =>
    reply(
      messages.some(({ role }) => role === 'tool')
        ? { text: 'It is done.' }
        : { calls: [{ id: 'call1', name: 'delete_file', arguments: { path: 'old.txt' } }] },
    ),
  )
  const place = await cliPlace(
    { 'old.txt': 'old\n' },
    { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' },
  )
  const service = place.start('serve', '--port', '0')
  const address = () => /listens on (http:\S+)/.exec(service.errors())?.[1]
  await expect.poll(address, { timeout: 30_000 }).toBeTruthy()
  const baseUrl = address() ?? ''
  // Made while the service runs.
  const scope = ['--scope', 'read,run,approve,apply']
  const ci = await keyOf(place, 'ci', ...scope, '--max-runs', '1', '--max-tokens', `${maxTokens}`)
  const other = await keyOf(place, 'other', ...scope)
  const client = new ServiceClient({ baseUrl, token: ci.secret })
  const stranger = new ServiceClient({ baseUrl, token: other.secret })
  const label = `key ci (${ci.id})`

  const vm = { memoryBytes: 512 * 1024 ** 2 }
  const body = { prompt: 'Delete old.txt', workspace: place.workspace, vm }
  const { id: run } = await client.call('createRun', { body, idempotencyKey: 'order-1' })
  const params = { run }
  await expect(client.call('createRun', { body })).rejects.toMatchObject({ status: 429 })
  // The same order again is no second run.
  expect((await client.call('createRun', { body, idempotencyKey: 'order-1' })).id).toBe(run)
  await expect(stranger.call('getRun', { params })).rejects.toMatchObject({ status: 404 })
  expect((await stranger.call('listVms', {})).vms).toEqual([])
  const asked = async () => (await client.call('listApprovals', {})).approvals[0]?.approval.approvalId
  await expect.poll(asked, { timeout: 120_000 }).toBeTruthy()
  expect((await client.call('listVms', {})).vms).toMatchObject([{ runId: run }])
  expect((await stranger.call('listApprovals', {})).approvals).toEqual([])
  const approval = (await asked()) ?? ''
  const answer = { params: { run, approval }, body: { decision: 'allow', by: 'Ada' } } as const
  await expect(stranger.call('answerApproval', answer)).rejects.toMatchObject({ status: 404 })
  await client.call('answerApproval', answer)
  const ended = () => client.call('getResult', { params, query: { waitMs: '60000' } }).catch(() => undefined)
  await expect.poll(ended, { timeout: 120_000 }).toMatchObject({ outcome: 'completed' })
  await client.call('applyChanges', { params, body: { select: 'all' } })
  const { events } = await client.call('listEvents', { params })
  const eventOf = (type: string) => events.find(({ event }) => event.type === type)?.event
  expect(eventOf('run-start')).toMatchObject({
    ...{ metadata: { 'caisson.owner': label }, limits: { maxTokens } },
  })
  expect(eventOf('approval-decision')).toMatchObject({ name: `${label}: Ada`, via: 'http' })
  expect(eventOf('apply-start')).toMatchObject({ by: label })

  // The next run gets what remains.
  const { usage } = await client.call('getRun', { params })
  const next = await client.call('createRun', { body: { ...body, prompt: 'Another' } })
  const first = await client.call('listEvents', { params: { run: next.id }, query: { limit: '1' } })
  expect(first.events[0]?.event).toMatchObject({
    limits: { maxTokens: maxTokens - usage.inputTokens - usage.outputTokens },
  })
  await client.call('cancelRun', { params: { run: next.id }, body: { now: true } })

  const revoked = place.start('serve', 'keys', 'revoke', 'ci')
  expect((await revoked.ended).code).toBe(0)
  await expect(client.call('getRun', { params })).rejects.toMatchObject({ status: 401 })
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  const owner = new ServiceClient({ baseUrl, token })
  expect(await owner.call('getRun', { params })).toMatchObject({ id: run, applied: 1 })
  const isOver = async () => (await owner.call('getRun', { params: { run: next.id } })).isLive
  await expect.poll(isOver, { timeout: 60_000 }).toBe(false)
  for (const { secret } of [ci, other]) expect(service.errors()).not.toContain(secret.slice(-43))
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
}, 300_000)
