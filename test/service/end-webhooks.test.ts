// Webhooks of the ends of runs: real receivers, real runs that a hook holds, no VM.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { WebhookMessage } from '#specs/service/webhook-resources.ts'
import { Host } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId as workingRunId } from '../../host/test/support/run-values.ts'
import { startOf } from './keys-support.ts'
import { answerWith, isSigned, noticeTimes, receiveWebhooks, webhookSecret } from './notify-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

const hook = (url: string) => ({ url, secret: { env: 'HOOK' }, local: true })
const env = { HOOK: webhookSecret }

/** A host of held runs whose webhook hears of ends. */
async function place(url: string, events: ('question.waiting' | 'run.ended')[] = ['run.ended']) {
  const notify = { afterMs: 0, webhooks: { engine: { ...hook(url), events } } }
  return await hostOfHeldRuns('end-webhooks', { env, config: { notify } })
}

it('the end of a run reaches a webhook once, signed and tried again, with its key and metadata [S4.13, H.02]', async () => {
  const { got, url } = await receiveWebhooks(answerWith(503, 200))
  const { host, held, home } = await place(url)
  const served = await serveHost(host, { noticeTimes })
  const body = { prompt: 'x', metadata: { invocation: 'inv_1' } }
  const { id } = await served.client.call('putRun', { params: { key: 'step-1' }, body })
  const outbox = path.join(home, 'state/service/outbox.json')
  // It is owed before the start is answered.
  expect(await readFile(outbox, 'utf8')).toContain(id)
  await expect.poll(held.begun).toHaveLength(1)
  expect(got).toEqual([])
  await held.release()
  await expect.poll(() => got.length).toBe(2)
  for (const delivered of got) expect(isSigned(delivered)).toBe(true)
  expect(new Set(got.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  const [message] = got.map(({ body: text }) => WebhookMessage.parse(JSON.parse(text)))
  expect(message).toMatchObject({
    type: 'run.ended',
    data: {
      runId: id,
      key: 'step-1',
      metadata: { invocation: 'inv_1' },
      outcome: 'failed',
      reason: 'denied',
    },
  })
  expect(JSON.stringify(message)).not.toContain('caisson.')
  // Nothing is kept of it, and nothing is sent again.
  await expect.poll(() => readFile(outbox, 'utf8')).toBe('{"entries":[]}')
  await new Promise((resolve) => setTimeout(resolve, 200))
  expect(got).toHaveLength(2)
  expect(served.logged.some(({ message: said }) => said === 'the end of a run was delivered')).toBe(true)
})

it('the next service tells of an end that came while none ran, at once and once [S4.13]', async () => {
  const { got, url } = await receiveWebhooks(answerWith(200))
  const { host } = await place(url)
  const first = await serveHost(host, { noticeTimes })
  const ids: string[] = []
  for (const key of ['a', 'b'])
    ids.push((await first.client.call('putRun', { params: { key }, body: { prompt: key } })).id)
  await first.service.close()
  // The second one waits in the queue, and is ended by another way than the service.
  await host.cancel(ids[1] ?? '')
  await expect.poll(async () => (await host.runs.summary(ids[1] ?? '')).state.end).not.toBeNull()
  expect(got).toEqual([])
  const second = await serveHost(host, { noticeTimes })
  await expect.poll(() => got.length).toBe(1)
  expect(JSON.parse(got[0]?.body ?? '')).toMatchObject({ data: { runId: ids[1], outcome: 'cancelled' } })
  // Until then the service may send it again.
  const isDelivered = () => second.logged.some(({ message }) => message === 'the end of a run was delivered')
  await expect.poll(isDelivered).toBe(true)
  await second.service.close()
  const third = await serveHost(host, { noticeTimes })
  await new Promise((resolve) => setTimeout(resolve, 300))
  expect(got).toHaveLength(1)
  await third.service.close()
})

it('a webhook hears of what it names alone; one that names nothing hears of questions [S4.13]', async () => {
  const run = await runAtWork()
  await run.record.host(startOf({ ticket: 'T-1' }))
  const [ends, questions, usual] = [
    await receiveWebhooks(answerWith(200)),
    await receiveWebhooks(answerWith(200)),
    await receiveWebhooks(answerWith(200)),
  ]
  const webhooks = {
    ends: { ...hook(ends.url), events: ['run.ended' as const] },
    questions: { ...hook(questions.url), events: ['question.waiting' as const] },
    usual: hook(usual.url),
  }
  const host = new Host({ env: { ...run.env, ...env }, config: { notify: { afterMs: 0, webhooks } } })
  await serveHost(host, { noticeTimes, publicUrl: 'https://caisson.example.com' })
  void run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
  await expect.poll(() => questions.got.length + usual.got.length).toBe(2)
  const message = WebhookMessage.parse(JSON.parse(questions.got[0]?.body ?? ''))
  expect(message).toMatchObject({
    type: 'question.waiting',
    data: { runId: workingRunId, metadata: { ticket: 'T-1' }, link: expect.stringMatching(/^https:/) },
  })
  // The service did not start the run, so it tells nobody of its end.
  expect(ends.got).toEqual([])
})

it('the service forgets a run that is removed before its message arrived [S4.13]', async () => {
  const { got, url } = await receiveWebhooks(answerWith(503))
  const { host, held, home } = await place(url)
  const { client, logged } = await serveHost(host, { noticeTimes: { pollMs: 20, pauseMinMs: 400 } })
  const { id } = await client.call('createRun', { body: { prompt: 'x' } })
  await held.release()
  await expect.poll(() => got.length).toBe(1)
  await client.call('removeRun', { params: { run: id } })
  const outbox = path.join(home, 'state/service/outbox.json')
  await expect.poll(() => readFile(outbox, 'utf8'), { timeout: 5_000 }).toBe('{"entries":[]}')
  expect(logged.filter(({ level }) => level === 'error')).toEqual([])
})
