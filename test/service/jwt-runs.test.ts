// Whose the runs of JWT callers are, their quotas, what journals say of them, and when their streams end. No VM.
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { Agent } from 'undici'
import { describe, expect, it } from 'vitest'
import type { Route } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import { Host } from '../../host/index.ts'
import { openJwtVerifier } from '../../host/jwt/jwt.ts'
import { Quotas } from '../../host/service/quotas.ts'
import { changedRunId } from '../../host/test/support/changed-run.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId as workingRunId } from '../../host/test/support/run-values.ts'
import {
  audience,
  keyFile,
  keysText,
  labelOf,
  makeKey,
  metadataOf,
  replaceKeys,
  serveJwt,
  serveJwtOf,
} from './jwt-support.ts'
import { changedBy, codeOf, detailOf, holderOf, runThatUsed, startOf, unknownRun } from './keys-support.ts'
import type { Received } from './support.ts'

const all = Object.entries(routes) as [RouteName, Route][]
const idsOf = ({ json }: Received) => (json as { runs: { id: string }[] }).runs.map(({ id }) => id).sort()
const at = '/v1/runs'

describe('a run of a subject', () => {
  it('is its own: for another subject and for an API key of the same name it is not there, by every route [H.02, S4.11]', async () => {
    const key = await makeKey()
    const { host, directory, as, ...served } = await serveJwt([key], { before: { 'a.txt': 'one\n' } })
    await changedBy({ metadata: metadataOf('ada') }, host, directory)
    const holder = await holderOf(host, served, 'ada')
    const mine = await key.sign()
    const others = [
      await key.sign({ sub: 'bob' }),
      await key.sign({ sub: 'Ada' }),
      await key.sign({ sub: 'ada ' }),
      await key.sign({ sub: labelOf('ada') }),
    ]
    expect(idsOf(await as(mine, 'GET', at))).toEqual([changedRunId])
    expect(idsOf(await holder.send('GET', at))).toEqual([])
    for (const other of others) expect(idsOf(await as(other, 'GET', at))).toEqual([])
    const ofRuns = all.filter(([, route]) => route.path.includes('{run}') && route.scope !== 'admin')
    const bodies: Partial<Record<RouteName, unknown>> = {
      ...{
        sendMessage: { text: 'x' },
        answerApproval: { decision: 'allow' },
        applyChanges: { select: 'all' },
      },
      ...{ forkRun: { at: 'end' }, rewindRun: { to: 'end' }, testRun: { command: 'true' } },
    }
    const queries: Partial<Record<RouteName, string>> = { blameLines: '?path=a.txt' }
    for (const [name, route] of ofRuns) {
      const pathOf = (run: string) =>
        route.path
          .replaceAll('{run}', run)
          .replaceAll('{approval}', 'a1')
          .replaceAll('{image}', 'a'.repeat(64)) + (queries[name] ?? '')
      const body = route.method === 'GET' ? undefined : (bodies[name] ?? {})
      const unknown = await as(others[0] ?? '', route.method, pathOf(unknownRun), body)
      for (const answer of [
        await as(others[0] ?? '', route.method, pathOf(changedRunId), body),
        await holder.send(route.method, pathOf(changedRunId), body),
      ]) {
        expect([name, answer.status, codeOf(answer)]).toEqual([name, 404, 'run_not_found'])
        expect(answer.text.replaceAll(changedRunId, unknownRun)).toBe(unknown.text)
      }
    }
    expect((await as(mine, 'GET', `${at}/${changedRunId}`)).status).toBe(200)
    expect(
      (await as(await key.sign({ sub: 'root', scope: 'admin' }), 'GET', `${at}/${changedRunId}`)).status,
    ).toBe(200)
  })

  it('of a key is not there for a subject that calls itself as the key is called [H.02]', async () => {
    const key = await makeKey()
    const { host, directory, as, ...served } = await serveJwt([key], { before: { 'a.txt': 'one\n' } })
    const holder = await holderOf(host, served, 'ci')
    await changedBy(holder, host, directory)
    for (const sub of [
      'ci',
      holder.label,
      holder.key.id,
      `key ci (${holder.key.id})`,
      'the owner of the service',
    ])
      expect([sub, idsOf(await as(await key.sign({ sub }), 'GET', at))]).toEqual([sub, []])
    const forged = { prompt: 'x', workspace: directory, metadata: { 'caisson.owner': holder.label } }
    expect((await as(await key.sign(), 'POST', at, forged)).status).toBe(400)
  })

  it('has one owner for all tokens of a subject, whatever else they claim [H.02]', async () => {
    const [one, two] = [await makeKey('ES256', 'k1'), await makeKey('EdDSA', 'k2')]
    const { host, as } = await serveJwt([one, two])
    await runThatUsed(host, unknownRun, metadataOf('ada'))
    const tokens = [
      await one.sign(),
      await two.sign({ name: 'Bob', email: 'bob@example.com', jti: '1', scope: 'read' }),
      await one.sign({ aud: [audience, 'other'], client_id: 'shop' }),
    ]
    for (const token of tokens) expect(idsOf(await as(token, 'GET', at))).toEqual([unknownRun])
  })
})

describe('a hostile subject', () => {
  const accepted = [
    'a'.repeat(255),
    '../../../etc/passwd',
    '..',
    '__proto__',
    'zoë',
    'zoe\u0308',
    '名前',
    '👩‍🚀',
    ' ',
    'x'.repeat(64),
    `${'x'.repeat(64)}y`,
    `${'x'.repeat(64)}z`,
    '\u202egnp.exe',
    'a\u200bb',
    'key ci (0123456789ab)',
    '{"$ne":null}',
    '<script>alert(1)</script>',
    "'; drop table runs; --",
  ]

  it('owns its runs alone and is shown in plain characters [H.02]', async () => {
    const key = await makeKey()
    const { as, logged } = await serveJwt([key])
    for (const sub of accepted)
      expect([sub, (await as(await key.sign({ sub }), 'GET', at)).status]).toEqual([sub, 200])
    const names = logged.flatMap(({ by }) => (typeof by === 'string' ? [by] : []))
    expect(new Set(names).size).toBe(accepted.length)
    for (const name of names) expect(name).toMatch(/^jwt [\w.@:|+-]{1,64} \([0-9a-f]{32}\)$/)
    expect(names).toContain(labelOf('zoë', 'zo_'))
  })

  it.each([
    '',
    'a'.repeat(256),
    'a\nb',
    'a\u0000',
    '\u001b[2J',
    'a\u007f',
    '\u0085',
    '\ud800',
    7,
    null,
    ['ada'],
  ])('is refused when it is %j [H.02]', async (sub) => {
    const key = await makeKey()
    const { as } = await serveJwt([key])
    const refused = await as(await key.sign({ sub }), 'GET', at)
    expect([refused.status, detailOf(refused)]).toEqual([401, expect.stringContaining('subject (sub)')])
  })

  it('of another issuer is somebody else [H.02]', async () => {
    const key = await makeKey()
    const file = await keyFile(key)
    const idWith = async (iss: string, sub: string) => {
      const verifier = await openJwtVerifier(
        { jwks: file, issuer: iss, audience },
        { dispatcher: async () => new Agent() },
      )
      const verified = await verifier.verify(await key.sign({ iss, sub }))
      return verified.ok ? verified.value.id : verified.error.why
    }
    const ids = [
      await idWith('https://a.example', 'ada'),
      await idWith('https://b.example', 'ada'),
      await idWith('https://a.example","ada', 'x'),
      await idWith('https://a.example', 'ada","x'),
    ]
    expect(new Set(ids).size).toBe(4)
    for (const id of ids) expect(id).toMatch(/^jwt-[0-9a-f]{32}$/)
    expect(await idWith('https://a.example', 'ada')).toBe(ids[0])
  })
})

describe('the quotas of JWT callers', () => {
  it('count the requests of each subject by itself, whatever token it sends [H.02, S4.10]', async () => {
    const key = await makeKey()
    const { as } = await serveJwt([key], { quotas: { maxRequestsPerMinute: 3 } })
    const statuses = []
    for (let count = 0; count < 5; count += 1)
      statuses.push((await as(await key.sign({ jti: `${count}` }), 'GET', at)).status)
    expect(statuses).toEqual([200, 200, 200, 429, 429])
    const refused = await as(await key.sign(), 'GET', at)
    expect([codeOf(refused), detailOf(refused)]).toEqual([
      'too_many_requests',
      'the subject may send 3 requests in a minute',
    ])
    expect(refused.headers['retry-after']).toMatch(/^([1-9]|[1-5]\d|60)$/)
    expect((await as(await key.sign({ sub: 'bob' }), 'GET', at)).status).toBe(200)
  })

  it.each([
    ['tokens', { maxTokens: 1_000 }, { tokens: 1_000 }, /runs of the subject have used its 1000 tokens/],
    ['cost', { maxCostUsd: 0.5 }, { costUsd: 0.5 }, /runs of the subject have used its 0.5 US dollars/],
  ])('count the %s of the runs of the day [H.02, S4.10]', async (_, quotas, used, message) => {
    const key = await makeKey()
    const { host, directory, as } = await serveJwt([key], { quotas })
    await runThatUsed(host, unknownRun, metadataOf('ada'), used)
    const body = { prompt: 'x', workspace: directory }
    const refused = await as(await key.sign(), 'POST', at, body)
    expect([refused.status, detailOf(refused)]).toEqual([429, expect.stringMatching(message)])
    expect(await host.runs.ids()).toEqual([unknownRun])
  })

  it('count runs at work, wherever they are carried out [H.02, S4.10]', async () => {
    const key = await makeKey()
    const run = await runAtWork()
    const { as } = await serveJwtOf(new Host({ env: run.env }), [key], { quotas: { maxRuns: 1 } })
    await run.record.host(startOf(metadataOf('ada')))
    const tested = await as(await key.sign(), 'POST', `${at}/${workingRunId}/test`, { command: 'true' })
    expect([tested.status, detailOf(tested)]).toEqual([
      429,
      '1 runs of the subject are at work, and it may have 1',
    ])
  })

  it('hold in any 60 seconds, in whatever order subjects send their requests [H.02]', async () => {
    let now = 1_000
    const quotas = new Quotas({
      host: new Host({ env: { HOME: '/nowhere' } }),
      atWork: () => [],
      now: () => now,
    })
    const count = (id: string) =>
      quotas.countRequest({
        name: id,
        scopes: new Set(),
        account: { id, kind: 'subject', quotas: { maxRequestsPerMinute: 2 }, isValid: async () => true },
      })
    count('one')
    now += 30_000
    count('two')
    count('two')
    now += 30_001
    count('three')
    count('one')
    count('one')
    expect(() => count('two')).toThrow(/may send 2 requests/)
    expect(() => count('one')).toThrow(/may send 2 requests/)
    now += 60_001
    count('two')
    count('one')
  })
})

it('an idempotency key belongs to the subject that sent it [H.02]', async () => {
  const key = await makeKey()
  const { host, directory, as } = await serveJwt([key], { quotas: { maxTokens: 5 } })
  const id = labelOf('ada').slice(-33, -1)
  const digest = createHash('sha256').update(`jwt-${id} order-1`).digest('hex')
  await runThatUsed(host, unknownRun, { ...metadataOf('ada'), 'caisson.idempotency-key': digest })
  const body = { prompt: 'x', workspace: directory }
  const headers = { 'idempotency-key': 'order-1' }
  const again = await as(await key.sign(), 'POST', at, body, headers)
  expect([again.status, again.text.includes(unknownRun)]).toEqual([422, true])
  await runThatUsed(host, `run-${'2'.repeat(20)}`, metadataOf('bob'), { tokens: 5 })
  // It would start a run of its own, for which nothing is left.
  const fresh = await as(await key.sign({ sub: 'bob' }), 'POST', at, body, headers)
  expect([fresh.status, fresh.text.includes(unknownRun)]).toEqual([429, false])
})

describe('what a journal says of who acts', () => {
  it('names the subject for messages, pauses and answers, and nobody else that the request names alone [H.02, R.10]', async () => {
    const key = await makeKey()
    const run = await runAtWork()
    const { host, as, logged } = await serveJwtOf(new Host({ env: run.env }), [key])
    await run.record.host(startOf(metadataOf('ada')))
    const token = await key.sign()
    const asked = run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
    await expect.poll(async () => (await as(token, 'GET', '/v1/approvals')).text).toContain('q1')
    const answer = { decision: 'allow', answer: 'blue', by: 'the owner of the service' }
    expect((await as(token, 'POST', `${at}/${workingRunId}/approvals/q1`, answer)).status).toBe(200)
    await asked
    await as(token, 'POST', `${at}/${workingRunId}/messages`, { text: 'one' })
    await as(token, 'POST', `${at}/${workingRunId}/messages`, { text: 'two', by: 'key ci (0123456789ab)' })
    const events = (await host.runs.read(workingRunId)).map(({ event }) => event)
    const label = labelOf('ada')
    expect(events.find(({ type }) => type === 'approval-decision')).toMatchObject({
      name: `${label}: the owner of the service`,
    })
    expect(events.flatMap((event) => (event.type === 'steer-request' ? [event.by] : []))).toEqual([
      label,
      `${label}: key ci (0123456789ab)`,
    ])
    expect(logged).toContainEqual(
      expect.objectContaining({ route: 'sendMessage', run: workingRunId, by: label, status: 202 }),
    )
  })

  it('names the subject for an apply and an undo [H.02, W.01]', async () => {
    const key = await makeKey()
    const { host, directory, as } = await serveJwt([key], { before: { 'a.txt': 'one\n' } })
    await changedBy({ metadata: metadataOf('ada') }, host, directory)
    const token = await key.sign()
    await as(token, 'POST', `${at}/${changedRunId}/changes/apply`, { select: 'all' })
    expect(await readFile(`${directory}/a.txt`, 'utf8')).toBe('two\n')
    await as(token, 'POST', `${at}/${changedRunId}/changes/undo`, {})
    const events = (await host.runs.read(changedRunId)).map(({ event }) => event)
    for (const type of ['apply-start', 'undo-start'])
      expect(events.find((event) => event.type === type)).toMatchObject({ by: labelOf('ada') })
  })
})

describe('an event stream', () => {
  it.each(['has expired', 'has lost its key', 'has a key that nobody can read'])(
    'ends when its JWT %s, while the run continues [H.02]',
    async (how) => {
      let now = Date.now()
      const key = await makeKey('ES256', 'k1', () => now)
      const run = await runAtWork()
      const { as, file, service } = await serveJwtOf(new Host({ env: run.env }), [key], { now: () => now })
      await run.record.host(startOf(metadataOf('ada')))
      const token = await key.sign()
      const stream = await fetch(`${service.url}${at}/${workingRunId}/events`, {
        headers: { authorization: `Bearer ${token}`, accept: 'text/event-stream' },
      })
      expect(stream.status).toBe(200)
      const ended = stream.text().then(
        () => 'ended',
        () => 'ended',
      )
      await run.watched
      // A rotation that keeps its key ends nothing.
      await replaceKeys(file, keysText(await makeKey('EdDSA', 'k2'), key))
      const isOpen = await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 1_500, 'open'))])
      expect(isOpen).toBe('open')
      if (how === 'has expired') now += 631_000
      else await replaceKeys(file, how === 'has lost its key' ? keysText(await makeKey('ES256', 'k3')) : '')
      expect(await ended).toBe('ended')
      expect(run.record.state.end).toBeNull()
      const after = await as(token, 'GET', `${at}/${workingRunId}/events`)
      expect(after.status).toBe(how === 'has a key that nobody can read' ? 503 : 401)
    },
  )
})
