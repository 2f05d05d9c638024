// Webhooks of questions that wait: real receivers, real runs, no VM.
import { readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { Secret } from '../../host/keys/secret.ts'
import { readWebhookSecret, signWebhook } from '../../host/notify/webhook-signature.ts'
import { Outbox } from '../../host/service/outbox.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import {
  answerWith,
  isSigned,
  noticeTimes,
  notifyingHost,
  receiveWebhooks,
  webhookSecret,
} from './notify-support.ts'
import { serveHost } from './support.ts'

const question = { question: 'Which color?', kind: 'text' } as const

it('a question that waits reaches a webhook once, signed, after a server error too [H.02]', async () => {
  const run = await runAtWork()
  const { got, url } = await receiveWebhooks(answerWith(500, 429, 200))
  const served = await serveHost(notifyingHost(run.env, url), { noticeTimes })
  void run.ask(question, 'q1')
  await expect.poll(() => got.length).toBe(3)
  await expect.poll(() => deliveries(served.logged)).toBe(1)
  for (const delivered of got) expect(isSigned(delivered)).toBe(true)
  expect(new Set(got.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  const body = JSON.parse(got[0]?.body ?? '') as { type: string; data: Record<string, unknown> }
  expect(body).toMatchObject({
    type: 'question.waiting',
    data: { runId, questionId: 'q1', kind: 'question', title: 'The agent asks you', text: 'Which color?' },
  })
  expect(body.data.digest).toMatch(/^[0-9a-f]{64}$/)
  // Each look at the questions after that finds it delivered.
  await looks(served.service.url)
  expect(got).toHaveLength(3)
  const metrics = (await served.send('GET', '/metrics')).text
  expect(metrics).toContain('caisson_notices_total{receiver="webhook",result="retried"} 2')
  expect(metrics).toContain('caisson_notices_total{receiver="webhook",result="sent"} 1')
  const said = JSON.stringify(served.logged) + metrics + got.map(({ body: text }) => text).join()
  expect(said).not.toContain(webhookSecret)
  expect(said).not.toContain('/hook')
})

it('a service that starts again delivers what an earlier one did not, and nothing twice [H.02]', async () => {
  const run = await runAtWork()
  const { got, url } = await receiveWebhooks((response, count) => {
    if (count === 1) response.destroy()
    else response.end()
  })
  const slow = { pollMs: 20, pauseMinMs: 3_000 }
  const first = await serveHost(notifyingHost(run.env, url), { noticeTimes: slow })
  void run.ask(question, 'q1')
  await expect.poll(() => first.logged.some(({ cause }) => String(cause).includes('connection'))).toBe(true)
  await first.service.close()
  const outbox = path.join(String(run.env.CAISSON_HOME), 'service', 'outbox.json')
  expect((await stat(outbox)).mode & 0o777).toBe(0o600)
  expect(await readFile(outbox, 'utf8')).not.toContain('color')
  const second = await serveHost(notifyingHost(run.env, url), { noticeTimes })
  await expect.poll(() => deliveries(second.logged)).toBe(1)
  await second.service.close()
  const third = await serveHost(notifyingHost(run.env, url), { noticeTimes })
  await looks(third.service.url)
  expect(got).toHaveLength(2)
  expect(got[0]?.headers['webhook-id']).toBe(got[1]?.headers['webhook-id'])
  await third.service.close()
  // One whose outbox is damaged delivers once more, with the same id.
  await writeFile(outbox, '{')
  const fourth = await serveHost(notifyingHost(run.env, url), { noticeTimes })
  await expect.poll(() => got.length).toBe(3)
  expect(got[2]?.headers['webhook-id']).toBe(got[0]?.headers['webhook-id'])
  expect(fourth.logged.some(({ message }) => message === 'the outbox was damaged and is made anew')).toBe(
    true,
  )
})

it('a question that is answered before its delay or its next attempt is not delivered [H.02]', async () => {
  const run = await runAtWork()
  const { got, url } = await receiveWebhooks(answerWith(503))
  const served = await serveHost(notifyingHost(run.env, url), {
    noticeTimes: { pollMs: 20, pauseMinMs: 60_000 },
  })
  void run.ask(question, 'q1')
  await expect.poll(() => served.logged.some(({ attempt }) => attempt === 1)).toBe(true)
  const answer = { decision: 'allow', scope: 'once', answer: 'red' } as const
  await served.client.call('answerApproval', { params: { run: runId, approval: 'q1' }, body: answer })
  const outbox = path.join(String(run.env.CAISSON_HOME), 'service', 'outbox.json')
  await expect.poll(() => readFile(outbox, 'utf8')).toBe('{"entries":[]}')
  expect(got).toHaveLength(1)

  const patient = await serveHost(notifyingHost(run.env, url, { afterMs: 60_000 }), {
    noticeTimes,
    socket: path.join(String(run.env.CAISSON_HOME), 'other.sock'),
  })
  void run.ask(question, 'q2')
  await expect.poll(async () => (await patient.send('GET', '/v1/approvals')).text).toContain('q2')
  await looks(patient.service.url)
  expect(JSON.stringify(patient.logged)).not.toContain('webhook')
})

it.each([
  ['is gone (410)', answerWith(410), /410/],
  ['redirects to a private address', redirect, /redirects are not followed/],
] as const)('a receiver that %s gets no second attempt [H.02]', async (_, answer, why) => {
  const run = await runAtWork()
  const { got, url } = await receiveWebhooks(answer)
  const served = await serveHost(notifyingHost(run.env, url), { noticeTimes })
  void run.ask(question, 'q1')
  await expect.poll(() => served.logged.some(({ message }) => message === 'a delivery failed')).toBe(true)
  await looks(served.service.url)
  expect(got).toHaveLength(1)
  expect(served.logged.map(({ cause }) => String(cause)).join()).toMatch(why)
})

it('a receiver that never ends its answer, and one that never begins, hold up nothing [H.02]', async () => {
  const run = await runAtWork()
  const endless = await receiveWebhooks((response) => {
    response.writeHead(200)
    const write = (): void => {
      if (!response.destroyed) response.write(Buffer.alloc(64 * 1024), () => setImmediate(write))
    }
    write()
  })
  const silent = await receiveWebhooks(() => undefined)
  const hook = (url: string) => ({ url, secret: { env: 'HOOK' }, local: true })
  const host = new Host({
    env: { ...run.env, HOOK: webhookSecret },
    config: { notify: { afterMs: 0, webhooks: { silent: hook(silent.url), endless: hook(endless.url) } } },
  })
  const served = await serveHost(host, { noticeTimes })
  void run.ask(question, 'q1')
  void run.ask(question, 'q2')
  await expect.poll(() => deliveries(served.logged)).toBe(2)
  expect(silent.got).toHaveLength(1)
  // The service does not wait for the silent one.
  await served.service.close()
})

it('an address of this machine needs a word of the user, and so does plain http [H.02]', async () => {
  const run = await runAtWork()
  const { got, url } = await receiveWebhooks(answerWith(200))
  expect(() => notifyingHost(run.env, url, { local: false })).toThrow('local = true')
  // A public name that leads to this machine.
  const hidden = url.replace('http:', 'https:')
  const served = await serveHost(notifyingHost(run.env, hidden, { local: false }), { noticeTimes })
  void run.ask(question, 'q1')
  await expect.poll(() => served.logged.some(({ message }) => message === 'a delivery failed')).toBe(true)
  expect(served.logged.map(({ cause }) => String(cause)).join()).toContain('this machine')
  expect(got).toHaveLength(0)
})

it('a receiver chooses a longer pause, and attempts end with their number or after a day [H.02]', async () => {
  const directory = await temporaryFolder('outbox')
  const outbox = await Outbox.open({ directory, log: () => undefined })
  const start = 1_000_000
  const failure = { isSent: false, why: '', isRetryable: true, retryAfterMs: null, isGone: false } as const
  const due = (now: number) => {
    const entry = outbox.nextFor('r', now)
    if (entry === undefined) throw new Error('nothing is due')
    return entry
  }
  outbox.add(runId, 'q1', 'r', start)
  expect(outbox.settle(due(start), { ...failure, retryAfterMs: 600_000 }, start)).toBe(true)
  expect(outbox.nextFor('r', start + 599_000)).toBeUndefined()
  let now = start + 600_000
  let attempts = 1
  while (outbox.settle(due(now), failure, now)) {
    attempts += 1
    now += 5_400_000
  }
  expect(attempts).toBe(11)
  expect(outbox.nextFor('r', Number.MAX_SAFE_INTEGER)).toBeUndefined()
  outbox.add(runId, 'q2', 'r', start)
  expect(outbox.settle(due(start), { ...failure, retryAfterMs: 25 * 3_600_000 }, start)).toBe(false)
})

it('signatures are those of the specification, and a secret of another form is refused [H.02]', async () => {
  // The example of the specification's libraries.
  const secret = readWebhookSecret(new Secret('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'))
  const id = 'msg_p5jXN8AQM9LWM0D4loKWxJek'
  expect(secret.ok && signWebhook(secret.value, id, 1_614_265_330_000, '{"test": 2432232314}')).toEqual({
    'webhook-id': id,
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  })
  for (const wrong of ['plain', 'whsec_', 'whsec_c2hvcnQ=', `whsec_${'A'.repeat(2_000)}`]) {
    const read = readWebhookSecret(new Secret(wrong))
    expect(read.ok).toBe(false)
    expect(JSON.stringify(read)).not.toContain('c2hvcnQ=')
  }
})

function redirect(response: import('node:http').ServerResponse): void {
  response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end()
}

function deliveries(logged: readonly Readonly<Record<string, unknown>>[]): number {
  return logged.filter(({ message }) => message === 'a question was delivered').length
}

/** Until the service has looked at the questions some times more. */
async function looks(url: string): Promise<void> {
  for (let count = 0; count < 15; count += 1) {
    await fetch(`${url}/healthz`)
    await new Promise((resolve) => setTimeout(resolve, noticeTimes.pollMs))
  }
}
