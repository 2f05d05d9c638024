// Links to one question: what they allow, once, and what they refuse. Real requests and runs, no VM.
import { readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { Links } from '../../host/service/links.ts'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { codeOf, detailOf, holderOf, runThatUsed, startOf } from './keys-support.ts'
import { answerWith, noticeTimes, notifyingHost, receiveWebhooks } from './notify-support.ts'
import { type Received, type ServedHost, serveHost } from './support.ts'

const publicUrl = 'https://caisson.example.com'
const question = { question: 'Which color?', kind: 'text' } as const
const red = { decision: 'allow', answer: 'red' }
const racers = 16

/** A served run, and links of what it asks. */
async function serveLinks(more: { readonly isLinked?: boolean } = {}) {
  const run = await runAtWork()
  const { got, url } = await receiveWebhooks(answerWith(200))
  const host = notifyingHost(run.env, url)
  const served = await serveHost(host, {
    noticeTimes,
    ...(more.isLinked === false ? {} : { publicUrl }),
  })
  const linkOf = async (approvalId: string) => {
    const find = () =>
      got.map(({ body }) => JSON.parse(body).data).find((data) => data.questionId === approvalId)
    await expect.poll(find).toBeDefined()
    return find() as { link?: string; linkExpiresAt?: string; digest: string }
  }
  const tokenOf = async (approvalId: string) => String((await linkOf(approvalId)).link?.split('#')[1])
  return { run, host, got, linkOf, tokenOf, ...served }
}

const place = (approvalId: string) => `/v1/runs/${runId}/approvals/${approvalId}`

async function sendAs({ send }: Pick<ServedHost, 'send'>, token: string, at: string, body?: unknown) {
  const headers = {
    authorization: `Bearer ${token}`,
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  }
  const sent = body === undefined ? { headers } : { headers, body: JSON.stringify(body) }
  return await send(body === undefined ? 'GET' : 'POST', at, sent)
}

const outcome = (answer: Received) => [answer.status, codeOf(answer)]

it('a message has a link that shows its question and answers it once, of many at once [H.02]', async () => {
  const served = await serveLinks()
  const { run, host, tokenOf, linkOf, logged } = served
  const asked = run.ask(question, 'q1')
  const { link = '' } = await linkOf('q1')
  const token = await tokenOf('q1')
  expect(link).toBe(`${publicUrl}/answer#${token}`)
  const shown = await sendAs(served, token, place('q1'))
  expect([shown.status, JSON.stringify(shown.json)]).toEqual([200, expect.stringContaining('Which color?')])
  const answers = await Promise.all(
    Array.from({ length: racers }, async (_, at) => {
      const answer = `color ${at}`
      return {
        answer,
        ...(await sendAs(served, token, place('q1'), { decision: 'allow', answer, by: 'Ada' })),
      }
    }),
  )
  const taken = answers.filter(({ status }) => status === 200)
  expect(taken).toHaveLength(1)
  for (const answer of answers) if (answer !== taken[0]) expect(outcome(answer)).toEqual([409, 'decided'])
  expect(await asked).toMatchObject({ decision: 'allow', answer: taken[0]?.answer })
  const decisions = (await host.runs.read(runId)).filter(({ event }) => event.type === 'approval-decision')
  expect(decisions.map(({ event }) => event)).toMatchObject([
    { by: 'person', name: expect.stringMatching(/^link of webhook ops \([0-9a-f]{12}\): Ada$/) },
  ])
  // The link is used, and says who answered.
  for (const again of [
    await sendAs(served, token, place('q1')),
    await sendAs(served, token, place('q1'), red),
  ]) {
    expect(outcome(again)).toEqual([409, 'decided'])
    expect(detailOf(again)).toContain('allowed by link of webhook ops')
  }
  expect(JSON.stringify(logged)).not.toContain(token.slice(0, 40))
  expect(JSON.stringify(logged)).toContain('link of webhook ops')
})

it('a link is for its question alone, and for this once [H.02]', async () => {
  const served = await serveLinks()
  const { run, tokenOf } = served
  void run.ask(question, 'q1')
  void run.queue.ask({ ...someCall, approvalId: 'a2', tool: 'delete_file', arguments: '{}' })
  const token = await tokenOf('a2')
  const other = [
    await sendAs(served, token, place('q1')),
    await sendAs(served, token, place('q1'), red),
    await sendAs(served, token, `/v1/runs/run-${'f'.repeat(20)}/approvals/a2`, { decision: 'allow' }),
    await sendAs(served, token, place('a2'), { decision: 'allow', scope: 'run' }),
    await sendAs(served, token, `/v1/runs/${runId}`),
    await sendAs(served, token, '/v1/approvals'),
    await sendAs(served, token, `/v1/runs/${runId}/cancel`, {}),
    await sendAs(served, token, '/metrics'),
    await served.send('DELETE', `/v1/runs/${runId}/answers/a2`, {
      headers: { authorization: `Bearer ${token}` },
    }),
  ]
  for (const answer of other) expect(outcome(answer)).toEqual([403, 'forbidden'])
  expect((await sendAs(served, token, place('a2'), { decision: 'deny', hint: 'keep it' })).status).toBe(200)
})

it('a link that was changed in any part is refused, and one of another key or without links [H.02]', async () => {
  const served = await serveLinks()
  const { run, tokenOf, host } = served
  void run.ask(question, 'q1')
  const token = await tokenOf('q1')
  const [head = '', mac = ''] = token.split('.')
  const payload = JSON.parse(
    Buffer.from(head.slice('caisson-link_'.length), 'base64url').toString(),
  ) as unknown[]
  const withPart = (at: number, value: unknown) =>
    `caisson-link_${Buffer.from(JSON.stringify(payload.with(at, value))).toString('base64url')}.${mac}`
  const wrong = [
    withPart(0, `run-${'f'.repeat(20)}`),
    withPart(1, 'q2'),
    withPart(2, 'f'.repeat(64)),
    withPart(3, Number(payload[3]) + 86_400_000),
    withPart(4, 'webhook other'),
    `${head}.${mac.slice(0, -1)}${mac.endsWith('A') ? 'B' : 'A'}`,
    `${head}.`,
    `${head}=.${mac}`,
    head,
    'caisson-link_',
    `${token}.${mac}`,
  ]
  for (const changed of wrong)
    expect([changed, ...outcome(await sendAs(served, changed, place('q1')))]).toEqual([
      changed,
      401,
      'unauthorized',
    ])
  // Guessing has a bound; a right link is accepted all the while.
  for (let count = 0; count < 10; count += 1) await sendAs(served, head, place('q1'), red)
  expect((await sendAs(served, head, place('q1'), red)).status).toBe(429)
  expect((await sendAs(served, token, place('q1'))).status).toBe(200)

  const key = path.join(String(run.env.CAISSON_HOME), 'service', 'link-key')
  expect((await stat(key)).mode & 0o777).toBe(0o600)
  expect(JSON.stringify(served.logged)).not.toContain((await readFile(key, 'utf8')).trim())
  const without = await serveHost(host, { socket: `${run.env.CAISSON_HOME}/other.sock` })
  expect(outcome(await sendAs(without, token, place('q1')))).toEqual([401, 'unauthorized'])
})

it('a link that expired, or whose question is another one now, is refused with the reason [H.02]', async () => {
  const served = await serveLinks()
  const { run, host } = served
  void run.ask(question, 'q1')
  await expect.poll(async () => (await host.runs.pendingApprovals()).length).toBe(1)
  const [waiting] = await host.runs.pendingApprovals()
  if (waiting === undefined) throw new Error('no question waits')
  const links = await Links.open(path.join(String(run.env.CAISSON_HOME), 'service'), publicUrl, 1_000)
  const tokenFor = (asked: typeof waiting, since: number) =>
    links.make(asked, 'r', since).url.split('#')[1] ?? ''
  const expired = await sendAs(served, tokenFor(waiting, Date.now() - 2_000), place('q1'), red)
  expect(outcome(expired)).toEqual([410, 'link_expired'])
  const approval = { ...waiting.approval, question: { ...question, question: 'Which other color?' } }
  const other = tokenFor({ ...waiting, approval }, Date.now() + 60_000)
  for (const refused of [
    await sendAs(served, other, place('q1')),
    await sendAs(served, other, place('q1'), red),
  ])
    expect(outcome(refused)).toEqual([409, 'question_changed'])
  expect(await host.runs.pendingApprovals()).toHaveLength(1)
})

it('an answer elsewhere uses the link up, and an ended run too [H.02]', async () => {
  const served = await serveLinks()
  const { run, tokenOf, client } = served
  void run.ask(question, 'q1')
  void run.ask(question, 'q2')
  const [first, second] = [await tokenOf('q1'), await tokenOf('q2')]
  const params = { run: runId, approval: 'q1' }
  await client.call('answerApproval', { params, body: { decision: 'deny', by: 'Ben' } })
  const refused = await sendAs(served, first, place('q1'), red)
  expect([...outcome(refused), detailOf(refused)]).toEqual([
    409,
    'decided',
    expect.stringContaining('denied by Ben'),
  ])
  const usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
  const end = { outcome: 'failed', reason: 'internal', message: '', summary: '' } as const
  await run.end({ type: 'run-end', ...end, usage, durationMs: 1 })
  const late = await sendAs(served, second, place('q2'), red)
  expect([...outcome(late), detailOf(late)]).toEqual([
    409,
    'decided',
    expect.stringContaining('its run has ended'),
  ])
})

it('a link answers a run that no process carries out, within the quotas of its owner [H.02]', async () => {
  const served = await serveLinks()
  const { run, host, tokenOf } = served
  const owner = await holderOf(host, served, 'owner', { quotas: { maxTokens: 10 } })
  await run.record.host(startOf(owner.metadata))
  void run.ask(question, 'q1')
  const token = await tokenOf('q1')
  await run.record.host({ type: 'run-sleep', checkpointId: 'c1', paused: true })
  // What a run needs to be continued.
  await writeFile(run.record.paths.options, '{}')
  await run.die()
  await runThatUsed(host, `run-${'2'.repeat(20)}`, owner.metadata, { tokens: 20 })
  const refused = await sendAs(served, token, place('q1'), red)
  expect([...outcome(refused), detailOf(refused)]).toEqual([
    ...[429, 'too_many_requests'],
    expect.stringContaining('10 tokens of today'),
  ])
  expect(await host.runs.pendingApprovals()).toHaveLength(1)
  await host.runs.remove(`run-${'2'.repeat(20)}`)
  expect((await sendAs(served, token, place('q1'), red)).status).toBe(200)
  const decided = (await host.runs.read(runId)).find(({ event }) => event.type === 'approval-decision')
  expect(decided?.event).toMatchObject({
    name: expect.stringContaining('link of webhook ops'),
    answer: 'red',
  })
})

it('messages have no link without an address of the service [H.02]', async () => {
  const { run, linkOf } = await serveLinks({ isLinked: false })
  void run.ask(question, 'q1')
  expect(await linkOf('q1')).not.toHaveProperty('link')
})
