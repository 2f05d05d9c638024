// Two `caisson serve --fleet` processes with real VMs, state folders of their own, PostgreSQL and a directory of files. The one
// that has a run is killed, and the run sleeps later: each time it continues in a VM of the other one.
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { PostgresServer } from '../support/postgres.ts'
import { type ServedHost, serveHost } from './served-host.ts'

const waiting = { timeout: 90_000, interval: 100 }
const step = (id: string, ...needs: string[]) => ({
  ...{ id, title: id, instructions: `do ${id}`, writes: [`${id}.txt`], needs },
})
const plan = {
  goal: 'Write in steps',
  steps: [step('first'), step('second', 'first'), step('third', 'second')],
}
let server: PostgresServer

beforeAll(async () => {
  server = await PostgresServer.start()
}, 120_000)

afterAll(() => server[Symbol.asyncDispose]())

/** A server outside that counts what reaches it. */
async function openOutside() {
  let reached = 0
  const outside = createServer((_, response) => {
    reached += 1
    response.end('reached outside')
  })
  outside.listen(0, '127.0.0.1')
  await once(outside, 'listening')
  onTestFinished(() => void outside.close())
  return { port: (outside.address() as AddressInfo).port, reached: () => reached }
}

/** The second step has no answer until it is released; the third asks a person. */
function answer({ messages }: Asked, port: number, isReleased: boolean): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const done = messages.filter(({ role }) => role === 'tool').length
  const name = ['third', 'second', 'first'].find((one) => asked.includes(`do ${one}`)) ?? 'first'
  if (name === 'second' && !isReleased) return { before: 'hang', body: '' }
  const calls: Record<string, readonly (readonly [string, object])[]> = {
    first: [['run_bash', { command: `curl -sS --noproxy '' http://127.0.0.1:${port}/ > first.txt` }]],
    second: [['run_bash', { command: 'cat first.txt given.txt > second.txt' }]],
    third: [
      ['ask_user', { kind: 'text', question: 'Which color?' }],
      ['run_bash', { command: 'tr a-z A-Z < second.txt > third.txt; echo red >> third.txt' }],
    ],
  }
  const call = calls[name]?.[done]
  if (call === undefined) return reply({ text: 'It is done.' })
  return reply({ calls: [{ id: `${name}-${done}`, name: call[0], arguments: JSON.stringify(call[1]) }] })
}

it('effects exactly once: a run in a VM continues on the other host after a kill and after a sleep, and is applied there [R.01]', async () => {
  const outside = await openOutside()
  let isReleased = false
  const model = await startModelServer((asked) => answer(asked, outside.port, isReleased))
  onTestFinished(() => model[Symbol.asyncDispose]())
  const env = {
    ...{ CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted', CAISSON_LLM_KEY: 'sk-some-key' },
    CAISSON_FLEET: server.address,
  }
  const [one, two] = [await cliPlace({ 'given.txt': 'given\n' }, env), await cliPlace({}, env)]
  const place = { workspace: one.workspace, files: await temporaryFolder('fleet-files') }
  const hosts = await Promise.all([serveHost(one, place), serveHost(two, place)])
  const { id } = await hosts[0].client.call('createRun', {
    body: {
      ...{ prompt: plan.goal, workspace: one.workspace, plan: { from: plan as never } },
      egress: {
        rules: [{ effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [outside.port] }],
      },
      vm: { memoryBytes: 512 * 1024 ** 2, sleepAfterMs: 500 },
    },
  })
  const params = { run: id }
  const runAt = async ({ client }: ServedHost) => await client.call('getRun', { params })

  // Killed behind the checkpoint of the first step, while the model thinks about the second.
  await expect.poll(() => model.asked.some(({ text }) => text.includes('do second')), waiting).toBe(true)
  const killed = (await runAt(hosts[0])).host?.id === hosts[0].hostId ? 0 : 1
  const [victim, heir] = killed === 0 ? hosts : [hosts[1], hosts[0]]
  victim.process.child.kill('SIGKILL')
  await victim.process.ended
  isReleased = true
  await expect.poll(async () => (await runAt(heir)).status, waiting).toBe('sleeping')

  // The other one is there again. Only it takes runs now.
  const again = await serveHost(killed === 0 ? one : two, place)
  heir.process.child.kill('SIGTERM')
  expect((await heir.process.ended).code).toBe(0)
  const looking = serveHost(killed === 0 ? two : one, { ...place, slots: 0 })
  const { approvals } = await again.client.call('listApprovals', { query: { run: id } })
  const approval = approvals[0]?.approval.approvalId ?? ''
  const red = { decision: 'allow', answer: 'red' } as const
  await again.client.call('answerApproval', { params: { ...params, approval }, body: red })
  await expect.poll(async () => (await runAt(again)).status, waiting).toBe('completed')
  const { events } = await again.client.call('listEvents', { params, query: { limit: '1000' } })
  const types = events.map(({ event }) => event.type)
  const count = (wanted: string) => types.filter((type) => type === wanted).length
  expect([count('vm-ready'), count('run-take'), count('run-end')]).toEqual([3, 2, 1])
  expect(outside.reached()).toBe(1)

  // Reviewed and applied by another process than those that made the changes.
  const other = await looking
  const { changes } = await other.client.call('listChanges', { params })
  expect(changes.map(({ path: changed }) => changed).toSorted()).toEqual([
    'first.txt',
    'second.txt',
    'third.txt',
  ])
  await other.client.call('applyChanges', { params, body: { select: 'all' } })
  expect(await readFile(path.join(one.workspace, 'third.txt'), 'utf8')).toBe('REACHED OUTSIDEGIVEN\nred\n')
  expect((await runAt(again)).applied).not.toBe(null)
}, 480_000)
