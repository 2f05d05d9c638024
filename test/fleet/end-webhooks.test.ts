// Webhooks of the ends of runs of a fleet that no host carries out at their end: real receivers, two services, no VM.
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { WebhookMessage } from '#specs/service/webhook-resources.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { prepareFleet } from '../../host/fleet/prepare.ts'
import { FleetMember, Host } from '../../host/index.ts'
import { useDatabases } from '../../host/test/fleet/fleet-place.ts'
import { answerWith, noticeTimes, receiveWebhooks, webhookSecret } from '../service/notify-support.ts'
import { type ServedHost, serveHost } from '../service/support.ts'

const databases = useDatabases()

/** Services with one webhook, and what that got. */
async function place() {
  const address = databases.address()
  await prepareFleet(address, undefined)
  const folder = await temporaryFolder('fleet-ends')
  const { got, url } = await receiveWebhooks(answerWith(200))
  const hook = { url, secret: { env: 'HOOK' }, local: true, events: ['run.ended' as const] }
  const open = async (name: string, slots: number): Promise<ServedHost> => {
    const member = await FleetMember.open({
      ...{ address, files: path.join(folder, 'files'), name, version: '1', slots, warn: () => undefined },
    })
    const env = { CAISSON_HOME: path.join(folder, name), HOOK: webhookSecret }
    const config = { notify: { afterMs: 0, webhooks: { engine: hook } } }
    const host = new Host({ env, config, fences: member, apiKeys: member.apiKeys })
    const served = await serveHost(host, { fleet: member, noticeTimes })
    onTestFinished(async () => {
      await served.service.close()
      await member[Symbol.asyncDispose]()
    })
    return served
  }
  const messages = () => got.map(({ body }) => WebhookMessage.parse(JSON.parse(body)))
  return { open, messages, ids: () => new Set(got.map(({ headers }) => headers['webhook-id'])) }
}

it('the end of a run that no host began in time reaches a webhook [S4.13]', async () => {
  const { open, messages } = await place()
  const first = await open('one', 0)
  const { id } = await first.client.call('createRun', { body: { prompt: 'x', startWithinMs: 1 } })
  await open('two', 1)
  await expect.poll(messages, { timeout: 20_000 }).toHaveLength(1)
  expect(messages()).toMatchObject([
    { type: 'run.ended', data: { runId: id, outcome: 'failed', reason: 'queue_timeout' } },
  ])
})

it('the end of a run that is cancelled while no host has it reaches a webhook, whichever host is asked [S4.13]', async () => {
  const { open, messages, ids } = await place()
  const [first, second] = [await open('one', 0), await open('two', 0)]
  const { id } = await first.client.call('createRun', { body: { prompt: 'x', metadata: { step: '7' } } })
  await second.client.call('cancelRun', { params: { run: id }, body: {} })
  await expect.poll(messages).toHaveLength(1)
  expect(messages()).toMatchObject([{ data: { runId: id, outcome: 'cancelled', metadata: { step: '7' } } }])
  await new Promise((resolve) => setTimeout(resolve, 300))
  expect(ids().size).toBe(1)
})
