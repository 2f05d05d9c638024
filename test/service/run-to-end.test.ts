// A run as one step of a workflow engine: runToEnd of the client, against a real service that restarts, and webhooks.
import { expect, it } from 'vitest'
import { readWebhook, runToEnd, ServiceClient, WebhookError } from '../../client/index.ts'
import { Host } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId as workingRunId } from '../../host/test/support/run-values.ts'
import { startOf } from './keys-support.ts'
import { answerWith, receiveWebhooks, webhookSecret } from './notify-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

it('starts one run for all attempts of a step, and waits for its end over a restart of the service [S4.13]', async () => {
  const { host, held } = await hostOfHeldRuns('run-to-end')
  const first = await serveHost(host)
  const port = Number(new URL(first.service.url).port)
  const seen: string[] = []
  const step = () =>
    runToEnd(first.client, { key: 'step-1', run: { prompt: 'x' }, onRun: ({ id }) => void seen.push(id) })
  const attempts = [step(), step(), step()]
  await expect.poll(() => seen.length).toBe(3)
  await first.service.close()
  await new Promise((resolve) => setTimeout(resolve, 500))
  await serveHost(host, { port })
  await held.release()
  const results = await Promise.all(attempts)
  expect(new Set([...seen, ...results.map(({ runId }) => runId)]).size).toBe(1)
  expect(results[0]).toMatchObject({ outcome: 'failed', reason: 'denied' })
  // Another attempt, after the end, has the same result.
  expect(await step()).toEqual(results[0])
  expect(await host.runs.ids()).toHaveLength(1)
})

it('cancels its run when the step is cancelled, and leaves it where the step says so [S4.13]', async () => {
  const { host, held } = await hostOfHeldRuns('run-to-end')
  const { client } = await serveHost(host)
  for (const [key, onAbort] of [
    ['leave', 'leave'],
    ['cancel', 'cancel'],
    ['chosen', (reason: unknown) => (reason instanceof Error ? 'cancel' : 'leave')],
  ] as const) {
    const stop = new AbortController()
    const onRun = () => void setTimeout(() => stop.abort(new Error('the step is over')), 100)
    const step = runToEnd(client, { key, run: { prompt: 'x' }, signal: stop.signal, onAbort, onRun })
    await expect(step).rejects.toThrow('the step is over')
    const end = async () => (await client.call('getRun', { params: { run: key } })).end?.outcome
    if (onAbort !== 'leave') await expect.poll(end, { timeout: 10_000 }).toBe('cancelled')
    else expect(await end()).toBeUndefined()
  }
  // One that is over before it begins starts nothing.
  const over = runToEnd(client, {
    key: 'none',
    run: { prompt: 'x' },
    signal: AbortSignal.abort(new Error('no')),
  })
  await expect(over).rejects.toThrow('no')
  expect(await host.runs.ids()).toHaveLength(3)
  await held.release()
})

it('gives up a service that is not there when its patience ends, and a refusal at once [S4.13]', async () => {
  const { host } = await hostOfHeldRuns('run-to-end')
  const { client } = await serveHost(host)
  const nobody = new ServiceClient({ baseUrl: 'http://127.0.0.1:9' })
  const before = performance.now()
  await expect(runToEnd(nobody, { key: 'k', run: { prompt: 'x' }, patienceMs: 700 })).rejects.toThrow()
  expect(performance.now() - before).toBeGreaterThan(300)
  await client.call('putRun', { params: { key: 'k' }, body: { prompt: 'x' } })
  const other = runToEnd(client, { key: 'k', run: { prompt: 'y' } })
  await expect(other).rejects.toMatchObject({ status: 409, code: 'idempotency_conflict' })
  await expect(runToEnd(client, { key: 'run-x', run: { prompt: 'y' } })).rejects.toMatchObject({
    status: 400,
  })
})

it('tells each question once, and a message about it is accepted with its own signature alone [S4.13]', async () => {
  const run = await runAtWork()
  await run.record.host(
    startOf({
      'caisson.idempotency-key': 'owner step-1',
      'caisson.idempotency-body': await digestOf('{"prompt":"x"}'),
    }),
  )
  const { got, url } = await receiveWebhooks(answerWith(200))
  const notify = { afterMs: 0, webhooks: { ops: { url, secret: { env: 'HOOK' }, local: true } } }
  const host = new Host({ env: { ...run.env, HOOK: webhookSecret }, config: { notify } })
  const { client } = await serveHost(host, { noticeTimes: { pollMs: 20 } })
  const told: string[] = []
  const stop = new AbortController()
  const step = runToEnd(client, {
    ...{ key: 'step-1', run: { prompt: 'x' }, signal: stop.signal, onAbort: 'leave' },
    onQuestion: ({ runId, approval }) => void told.push(`${runId} ${approval.approvalId}`),
  })
  const ended = expect(step).rejects.toThrow('enough')
  await run.watched
  void run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
  await expect.poll(() => told).toEqual([`${workingRunId} q1`])
  await expect.poll(() => got.length).toBe(1)
  const [{ headers, body } = { headers: {}, body: '' }] = got
  const given = { headers, body, secret: webhookSecret }
  const { id, message } = await readWebhook(given)
  expect([id, message.type, message.data.key]).toEqual([headers['webhook-id'], 'question.waiting', 'step-1'])
  expect((await readWebhook({ ...given, headers: new Headers(headers as Record<string, string>) })).id).toBe(
    id,
  )
  const otherSecret = `whsec_${Buffer.alloc(32, 8).toString('base64')}`
  for (const wrong of [
    { ...given, secret: otherSecret },
    { ...given, secret: 'plain' },
    { ...given, body: body.replace('q1', 'q2') },
    { ...given, body: `${body} ` },
    { ...given, headers: { ...headers, 'webhook-id': 'msg_other' } },
    { ...given, headers: { ...headers, 'webhook-signature': 'v1,AAAA v2,x v1' } },
    { ...given, headers: { ...headers, 'webhook-timestamp': 'NaN' } },
    { ...given, headers: {} },
    { ...given, now: Date.now() + 400_000 },
    { ...given, now: Date.now() - 400_000 },
  ])
    await expect(readWebhook(wrong)).rejects.toThrow(WebhookError)
  const withTwo = { ...headers, 'webhook-signature': `v1,AAAA ${String(headers['webhook-signature'])}` }
  expect((await readWebhook({ ...given, headers: withTwo })).id).toBe(id)
  stop.abort(new Error('enough'))
  await ended
  expect(told).toHaveLength(1)
})

async function digestOf(text: string): Promise<string> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(text))).toString('hex')
}
