// The subject of a JWT starts a run in a real VM over HTTP: for itself alone, by its name, and the token goes nowhere.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient } from '../../client/index.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { audience, issuer, keyFile, labelOf, makeKey } from './jwt-support.ts'

it('a subject starts, answers and applies its own run, another sees nothing of it, and no file has the token [H.02]', async () => {
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
  const key = await makeKey('EdDSA')
  const flags = ['--jwks', await keyFile(key), '--jwt-issuer', issuer, '--jwt-audience', audience]
  const service = place.start('serve', '--port', '0', ...flags, '--jwt-max-runs', '1')
  const address = () => /listens on (http:\S+)/.exec(service.errors())?.[1]
  await expect.poll(address, { timeout: 30_000 }).toBeTruthy()
  const baseUrl = address() ?? ''
  const tokens: string[] = []
  const clientOf = (sub: string) => {
    const token = async () => {
      const signed = await key.sign({ sub })
      tokens.push(signed)
      return signed
    }
    return new ServiceClient({ baseUrl, token })
  }
  const [client, stranger] = [clientOf('ada'), clientOf('bob')]

  const vm = { memoryBytes: 512 * 1024 ** 2 }
  const body = { prompt: 'Delete old.txt', workspace: place.workspace, vm }
  const { id: run } = await client.call('createRun', { body, idempotencyKey: 'order-1' })
  const params = { run }
  await expect(client.call('createRun', { body })).rejects.toMatchObject({ status: 429 })
  expect((await client.call('createRun', { body, idempotencyKey: 'order-1' })).id).toBe(run)
  await expect(stranger.call('getRun', { params })).rejects.toMatchObject({ status: 404 })
  const asked = async () => (await client.call('listApprovals', {})).approvals[0]?.approval.approvalId
  await expect.poll(asked, { timeout: 120_000 }).toBeTruthy()
  expect((await stranger.call('listVms', {})).vms).toEqual([])
  const approval = (await asked()) ?? ''
  const answer = { params: { run, approval }, body: { decision: 'allow', by: 'Eve' } } as const
  await expect(stranger.call('answerApproval', answer)).rejects.toMatchObject({ status: 404 })
  await client.call('answerApproval', answer)
  const ended = () => client.call('getResult', { params, query: { waitMs: '60000' } }).catch(() => undefined)
  await expect.poll(ended, { timeout: 120_000 }).toMatchObject({ outcome: 'completed' })
  await client.call('applyChanges', { params, body: { select: 'all' } })

  const { events } = await client.call('listEvents', { params })
  const eventOf = (type: string) => events.find(({ event }) => event.type === type)?.event
  const label = labelOf('ada')
  expect(eventOf('run-start')).toMatchObject({ metadata: { 'caisson.owner': label } })
  expect(eventOf('approval-decision')).toMatchObject({ name: `${label}: Eve`, via: 'http' })
  expect(eventOf('apply-start')).toMatchObject({ by: label })
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)

  expect(tokens.length).toBeGreaterThan(5)
  const patterns = tokens.flatMap((token) => ['-e', token.split('.').at(-1) ?? ''])
  // Also in the disks of the run; grep ends with 1 when it finds nothing.
  const searched = promisify(execFile)('grep', ['-raolF', ...patterns, '--', place.home, place.workspace])
  await expect(searched).rejects.toMatchObject({ code: 1, stdout: '' })
  for (const token of tokens) expect(service.errors()).not.toContain(token.split('.').at(-1))
}, 300_000)
