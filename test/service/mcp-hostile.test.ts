// What nobody may do over MCP: forged, old and others' states, answers given twice or by nobody, floods, other sites.
import { randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { createRequestStateCodec } from '@modelcontextprotocol/server'
import { describe, expect, it, vi } from 'vitest'
import { Host } from '../../host/index.ts'
import { callerIdOf } from '../../host/mcp-server/index.ts'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { holderOf, startOf, unknownRun } from './keys-support.ts'
import { connectMcp, httpTransport, revisions, sendCall, startMcp } from './mcp-support.ts'
import { serveHost } from './support.ts'

const stateKey = randomBytes(32)
const waiting = { runId, waitSeconds: 0 }
const yes = { answer: { action: 'accept', content: { decision: 'yes, this once' } } }

/** A run of a key that waits for its person, and an MCP server. */
async function waitingRun() {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const mine = await holderOf(host, served, 'mine')
  await run.record.host(startOf(mine.metadata))
  const ask = (approvalId: string, path = 'old.txt') =>
    run.queue.ask({
      ...someCall,
      approvalId,
      tool: 'delete_file',
      arguments: JSON.stringify({ path }),
      preview: `delete ${path}`,
    })
  const asked = ask('q1')
  await expect.poll(async () => (await mine.send('GET', '/v1/approvals')).text).toContain('q1')
  const server = await startMcp(served.service.url, { stateKey })
  const decisions = async () =>
    (await host.runs.read(runId)).filter(({ event }) => event.type === 'approval-decision')
  const call = (secret: string, more: object = {}, given: object = waiting) =>
    sendCall(server.url, secret, { name: 'get_run', arguments: given, ...more })
  return { run, host, served, mine, ask, asked, server, decisions, call }
}

/** What `input_required` gave. */
const stateOf = ({ json }: Awaited<ReturnType<typeof sendCall>>): string => {
  expect(json.result?.resultType).toBe('input_required')
  return String(json.result?.requestState)
}

describe('the state of a question', () => {
  it('is refused when it is forged, cut, expired, or of another key, caller or call, and decides nothing [H.03 V.08]', async () => {
    const { mine, host, served, call, decisions, server } = await waitingRun()
    const other = await holderOf(host, served, 'other')
    const state = stateOf(await call(mine.secret))
    const [version = '', body = '', mac = ''] = state.split('.')
    const payload = JSON.parse(Buffer.from(body, 'base64url').toString('utf8'))
    const changed = Buffer.from(
      JSON.stringify({ ...payload, p: { ...payload.p, approvalId: 'q2' } }),
    ).toString('base64url')
    const sign = async (key: Uint8Array, id: string, ttlSeconds: number) =>
      await createRequestStateCodec({ key, ttlSeconds, bind: () => id }).mint(payload.p, {} as never)
    const expired = await sign(stateKey, callerIdOf(mine.secret), 1)
    await sleep(2_100)
    const refused = [
      `${version}.${changed}.${mac}`,
      `${version}.${body}.${mac.slice(0, -2)}`,
      'x'.repeat(10_000),
      expired,
      await sign(randomBytes(32), callerIdOf(mine.secret), 600),
      await sign(stateKey, callerIdOf(other.secret), 600),
    ]
    for (const requestState of refused) {
      const { json } = await call(mine.secret, { requestState, inputResponses: yes })
      expect(json.error).toMatchObject({ code: -32_602, message: 'Invalid or expired requestState' })
    }
    // Another caller, who presents what was signed for the first.
    expect((await call(other.secret, { requestState: state, inputResponses: yes })).json.error?.code).toBe(
      -32_602,
    )
    // Other arguments, another tool.
    const elsewhere = await call(
      mine.secret,
      { requestState: state, inputResponses: yes },
      { runId: unknownRun },
    )
    expect(elsewhere.json.result).toMatchObject({
      isError: true,
      content: [{ text: 'Invalid or expired requestState' }],
    })
    const asTask = await sendCall(server.url, mine.secret, {
      name: 'run_task',
      arguments: { prompt: 'x' },
      requestState: state,
      inputResponses: yes,
    })
    expect(asTask.json.result).toMatchObject({
      isError: true,
      content: [{ text: 'Invalid or expired requestState' }],
    })
    expect(await decisions()).toEqual([])
  })

  it('is answered at another server with the same key, days later, and once: a second answer changes nothing [H.03 V.08]', async () => {
    const { mine, served, call, decisions, asked } = await waitingRun()
    const first = stateOf(await call(mine.secret))
    const elsewhere = await startMcp(served.service.url, { stateKey })
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 9 * 24 * 3_600_000 })
    try {
      const params = { name: 'get_run', arguments: waiting, requestState: first }
      const answered = await sendCall(elsewhere.url, mine.secret, { ...params, inputResponses: yes })
      expect(answered.json.result).toMatchObject({
        resultType: 'complete',
        structuredContent: { questions: [] },
      })
      const again = { answer: { action: 'accept', content: { decision: 'no' } } }
      await sendCall(elsewhere.url, mine.secret, { ...params, inputResponses: again })
    } finally {
      vi.useRealTimers()
    }
    expect(await asked).toMatchObject({ decision: 'allow' })
    const made = await decisions()
    expect(made).toHaveLength(1)
    expect(made[0]?.event).toMatchObject({
      decision: 'allow',
      scope: 'once',
      name: expect.stringContaining('key mine'),
    })
  })

  it('does not answer another question that took the place of the one that was shown [H.03 V.08]', async () => {
    const { mine, call, run, ask, asked, decisions } = await waitingRun()
    const state = stateOf(await call(mine.secret))
    await mine.send('POST', `/v1/runs/${runId}/approvals/q1`, { decision: 'deny' })
    expect(await asked).toMatchObject({ decision: 'deny' })
    void ask('q2', 'everything')
    await expect.poll(async () => (await mine.send('GET', '/v1/approvals')).text).toContain('q2')
    const next = await call(mine.secret, { requestState: state, inputResponses: yes })
    expect(next.json.result).toMatchObject({ resultType: 'input_required' })
    expect(JSON.stringify(next.json.result)).toContain('everything')
    expect(await decisions()).toHaveLength(1)
    expect(run.queue.pending).toEqual(['q2'])
  })

  it('with an answer that does not fit, none, or a refusal leaves the question open [H.03 V.08]', async () => {
    const { mine, call, run } = await waitingRun()
    const requestState = stateOf(await call(mine.secret))
    const bad = [
      {},
      { other: yes.answer },
      { answer: { action: 'accept' } },
      { answer: { action: 'accept', content: { decision: 'yes, every delete_file in this run' } } },
      { answer: { action: 'accept', content: { decision: 'yes, this once', scope: 'run' } } },
      { answer: { action: 'accept', content: { decision: 'no', hint: 'x'.repeat(3_000) } } },
      { answer: { method: 'elicitation/create', result: yes.answer } },
    ]
    for (const inputResponses of bad)
      expect((await call(mine.secret, { requestState, inputResponses })).json.result?.resultType).toBe(
        'input_required',
      )
    for (const action of ['decline', 'cancel']) {
      const { json } = await call(mine.secret, { requestState, inputResponses: { answer: { action } } })
      expect(json.result).toMatchObject({
        structuredContent: {
          questions: [{ approvalId: 'q1' }],
          next: expect.stringContaining('did not answer'),
        },
      })
    }
    expect(run.queue.pending).toEqual(['q1'])
  })
})

describe('who may do what', () => {
  it('a key sees its own runs alone, whatever it sends, and nothing once it is revoked [H.03 H.02]', async () => {
    const { host, served, server, run } = await waitingRun()
    const other = await holderOf(host, served, 'other')
    const get = { name: 'get_run', arguments: waiting }
    const refused = await sendCall(server.url, other.secret, get)
    expect(refused.json.result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('no run has the ID') }],
    })
    for (const [method, params] of [
      ['resources/read', { uri: `caisson://runs/${runId}/journal` }],
      ['tasks/get', { taskId: runId }],
      ['tasks/update', { taskId: runId, inputResponses: {} }],
      ['tasks/cancel', { taskId: runId }],
    ] as const) {
      const named = 'uri' in params ? { headers: { 'mcp-name': params.uri } } : {}
      const extensions = { 'io.modelcontextprotocol/tasks': {} }
      expect([
        method,
        (await sendCall(server.url, other.secret, params, { method, extensions, ...named })).json.error?.code,
      ]).toEqual([method, -32_602])
    }
    expect(run.queue.pending).toEqual(['q1'])
    // A key that is revoked is none.
    await host.apiKeys.revoke('other')
    const later = await sendCall(server.url, other.secret, get)
    expect(JSON.stringify(later.json)).toMatch(/no valid (token|key)/)
  })

  it('a key without approve gets no form, and the question still waits [H.03 S1.11]', async () => {
    const run = await runAtWork()
    const host = new Host({ env: run.env })
    const served = await serveHost(host)
    const weak = await holderOf(host, served, 'weak', { scopes: ['read', 'run'] })
    await run.record.host(startOf(weak.metadata))
    void run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
    await expect.poll(async () => (await weak.send('GET', '/v1/approvals')).text).toContain('q1')
    const server = await startMcp(served.service.url)
    const { json } = await sendCall(server.url, weak.secret, { name: 'get_run', arguments: waiting })
    expect(json.result).toMatchObject({
      structuredContent: { next: expect.stringContaining('scope approve') },
    })
    expect(run.queue.pending).toEqual(['q1'])
  })

  it('a question that no form can show whole is not asked there [H.03 V.08]', async () => {
    const { mine, call, run } = await waitingRun()
    await mine.send('POST', `/v1/runs/${runId}/approvals/q1`, { decision: 'deny' })
    void run.queue.ask({
      ...someCall,
      approvalId: 'q2',
      tool: 'write_file',
      arguments: JSON.stringify({ content: 'x'.repeat(9_000) }),
      preview: '',
    })
    await expect.poll(async () => (await mine.send('GET', '/v1/approvals')).text).toContain('q2')
    expect((await call(mine.secret)).json.result).toMatchObject({
      structuredContent: { next: expect.stringContaining('too long') },
    })
  })

  it.each([
    ['in one line', ' '.repeat(7_000)],
    ['in many lines', '#\n'.repeat(3_000)],
  ])(
    'a question that a form can show is shown to its last character, also %s [H.03 V.08]',
    async (_, between) => {
      const { mine, call, run } = await waitingRun()
      await mine.send('POST', `/v1/runs/${runId}/approvals/q1`, { decision: 'deny' })
      const preview = `echo first;${between}echo last`
      void run.queue.ask({ ...someCall, approvalId: 'q2', tool: 'run_bash', arguments: '{}', preview })
      await expect.poll(async () => (await mine.send('GET', '/v1/approvals')).text).toContain('q2')
      const shown = JSON.stringify((await call(mine.secret)).json.result)
      expect(shown).toContain('echo first')
      expect(shown).toContain('echo last')
    },
  )
})

describe('a client', () => {
  it.each(revisions)('of %s that dies during a question approves nothing [H.03 V.08]', async (revision) => {
    const { mine, run, server } = await waitingRun()
    const shown = Promise.withResolvers<void>()
    const client = await connectMcp(httpTransport(server.url, mine.secret), {
      revision,
      onForm: async () => {
        shown.resolve()
        return await new Promise(() => undefined)
      },
    })
    void client.callTool({ name: 'get_run', arguments: { runId, waitSeconds: 30 } }).catch(() => undefined)
    await shown.promise
    await client.close()
    // The server has learned of it once another call was answered.
    await sendCall(server.url, mine.secret, { name: 'list_runs', arguments: {} })
    expect(run.queue.pending).toEqual(['q1'])
    await run.end({
      type: 'run-end',
      outcome: 'cancelled',
      reason: 'cancelled',
      message: '',
      summary: '',
      usage: run.record.state.usage,
      durationMs: 1,
    })
  })

  it('that floods has its share of calls alone, and one too many learns of it [H.03]', async () => {
    const { host, served, mine, server } = await waitingRun()
    await mine.send('POST', `/v1/runs/${runId}/approvals/q1`, { decision: 'deny' })
    const flood = Array.from({ length: 40 }, () =>
      sendCall(server.url, mine.secret, { name: 'get_run', arguments: { runId, waitSeconds: 3 } }),
    )
    await sleep(1_000)
    const other = await holderOf(host, served, 'other')
    const answered = await sendCall(server.url, other.secret, { name: 'list_runs', arguments: {} })
    expect(answered.json.result).toMatchObject({ structuredContent: { runs: [] } })
    const answers = (await Promise.all(flood)).map(({ json }) => JSON.stringify(json))
    expect(
      answers.filter((text) => text.includes('calls of this client are at work already')).length,
    ).toBeGreaterThanOrEqual(8)
  })

  it('is refused with a body, arguments or a prompt that are too large or of another form [H.03]', async () => {
    const { mine, server, call } = await waitingRun()
    const huge = await fetch(server.url, {
      method: 'POST',
      headers: { authorization: `Bearer ${mine.secret}`, 'content-type': 'application/json' },
      body: 'x'.repeat(1_200_000),
    })
    expect(huge.status).toBe(413)
    for (const given of [
      { runId: '../x' },
      { runId, more: 1 },
      { runId, waitSeconds: 1e9 },
      { runId, waitSeconds: -1 },
      {},
    ])
      expect(JSON.stringify((await call(mine.secret, {}, given)).json)).toMatch(/isError":true|"code":-32602/)
    for (const given of [
      { prompt: '' },
      { prompt: 'x', workspace: '../etc' },
      { prompt: 'x', approvals: { mode: 'all' } },
      { prompt: 'x'.repeat(300_000) },
    ]) {
      const { json } = await sendCall(server.url, mine.secret, { name: 'run_task', arguments: given })
      expect(JSON.stringify(json)).toMatch(/isError":true|"code":-32602/)
    }
    expect(
      (await sendCall(server.url, mine.secret, { name: 'answer_approval', arguments: {} })).json.error,
    ).toBeDefined()
  })

  it('without a key, or of another site, reaches nothing [H.03 H.02]', async () => {
    const { mine, server } = await waitingRun()
    const get = { name: 'get_run', arguments: waiting }
    const without = await sendCall(server.url, 'wrong', get)
    expect(without.status).toBe(401)
    for (const headers of [{ origin: 'https://evil.example' }, { origin: 'null' }])
      expect([headers, (await sendCall(server.url, mine.secret, get, { headers })).status]).toEqual([
        headers,
        403,
      ])
    expect(await statusWithHost(server.url, 'evil.example', mine.secret)).toBe(403)
    expect(
      (await fetch(new URL('/', server.url), { headers: { authorization: `Bearer ${mine.secret}` } })).status,
    ).toBe(404)
  })

  it('does not get the session of another, and has a bounded number of them [H.03]', async () => {
    const { host, served, mine, server } = await waitingRun()
    const other = await holderOf(host, served, 'other')
    const transport = httpTransport(server.url, mine.secret)
    await connectMcp(transport, { revision: '2025-11-25' })
    const id = transport.sessionId ?? ''
    const list = async (secret: string, session: string) =>
      (
        await fetch(server.url, {
          method: 'POST',
          headers: {
            ...{
              authorization: `Bearer ${secret}`,
              'content-type': 'application/json',
              accept: 'application/json, text/event-stream',
            },
            ...{ 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' },
          },
          body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
        })
      ).status
    expect(await list(mine.secret, id)).toBe(200)
    expect(await list(other.secret, id)).toBe(404)
    for (let at = 0; at < 16; at++)
      await connectMcp(httpTransport(server.url, mine.secret), { revision: '2025-11-25' })
    expect(await list(mine.secret, id)).toBe(404)
  })
})

async function statusWithHost(url: string, host: string, secret: string): Promise<number> {
  return await new Promise((resolve, reject) => {
    const sent = request(
      url,
      { method: 'POST', headers: { host, authorization: `Bearer ${secret}` } },
      (response) => {
        response.resume()
        resolve(response.statusCode ?? 0)
      },
    )
    sent.once('error', reject)
    sent.end('{}')
  })
}
