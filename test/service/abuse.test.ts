// What a hostile or broken client sends: every answer is a problem with a status below 500, and the service continues.
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect } from 'node:net'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { errorCodes } from '#specs/errors.ts'
import { openApiDocument } from '#specs/service/openapi.ts'
import { Problem } from '#specs/service/resources.ts'
import type { Route } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { Host } from '../../host/index.ts'
import { problemCodes } from '../../host/service/problem-codes.ts'
import { changedRunId, runThatChanged } from '../../host/test/support/changed-run.ts'
import { type Received, serveHost } from './support.ts'

async function makeHost(): Promise<Host> {
  const home = path.join(await temporaryFolder('service'), 'state')
  return new Host({ env: { PATH: process.env.PATH, HOME: home, CAISSON_HOME: home } })
}

/** Every refusal is a problem that names a code and what failed. */
function expectProblem({ status, headers, json, text }: Received, expected?: number): void {
  expect([status, text]).toEqual([expected ?? expect.toSatisfy((code) => code >= 400 && code < 500), text])
  expect(headers['content-type']).toMatch(/^application\/problem\+json/)
  expect(Problem.safeParse(json).error).toBeUndefined()
}

const json = { 'content-type': 'application/json' }

describe('the HTTP service', () => {
  it('refuses paths that are tricks, and routes that are not there [H.02]', async () => {
    const { send } = await serveHost(await makeHost())
    const paths = [
      '/v1/runs/../../../etc/passwd',
      '/v1/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd',
      `/v1/runs/${changedRunId}%00`,
      `/v1/runs/${changedRunId}/..%2f..`,
      '/v1/runs/run-0123/events',
      `/v1/runs/${'a'.repeat(5_000)}`,
      '/v1/runs/%',
      '/v1/runs/%zz',
      '//evil.example/v1/runs',
      '/v1/nothing',
      '/V1/RUNS',
      '/v1/runs/',
    ]
    for (const name of paths) expectProblem(await send('GET', name))
    for (const method of ['PUT', 'PATCH', 'OPTIONS', 'TRACE'])
      expectProblem(await send(method, '/v1/runs'), 404)
  })

  it('refuses bodies that are too large, broken, of another form or nested without end [H.02]', async () => {
    const { send } = await serveHost(await makeHost())
    const post = (body: string | Buffer) => send('POST', '/v1/runs', { headers: json, body })
    expectProblem(await post(JSON.stringify({ prompt: 'x'.repeat(9 * 1024 * 1024) })), 413)
    const bodies = [
      '',
      '{',
      'null',
      '[]',
      '1',
      '"text"',
      '{"prompt":""}',
      '{"prompt":null}',
      '{"prompt":"x","unknown":1}',
      '{"prompt":"x","__proto__":{"model":"y"}}',
      '{"prompt":"x","workspace":"relative"}',
      '{"prompt":"x","workspace":"/tmp/\\u0000"}',
      '{"prompt":"x","limits":{"maxTokens":-1}}',
      '{"prompt":"x","plan":{"from":"../../etc/passwd"}}',
      '{"prompt":"x","continue":"last"}',
      `{"prompt":"x","context":${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}}`,
      `{"prompt":"x","outputSchema":${'{"a":'.repeat(200)}{}${'}'.repeat(200)}}`,
      Buffer.from([0xff, 0xfe, 0x00]),
    ]
    for (const body of bodies) expectProblem(await post(body), 400)
    expect((await send('GET', '/v1/runs')).json).toEqual({ runs: [] })
  })

  it('refuses an Idempotency-Key and a Last-Event-ID that cannot be ones [H.02]', async () => {
    const { host } = await runThatChanged({}, { 'a.txt': 'a\n' })
    const { send } = await serveHost(host)
    const headers = { ...json, 'idempotency-key': 'x'.repeat(201) }
    expectProblem(await send('POST', '/v1/runs', { headers, body: '{"prompt":"x"}' }), 400)
    for (const last of ['-1', '1e9', 'x', '9'.repeat(20)])
      expectProblem(
        await send('GET', `/v1/runs/${changedRunId}/events`, {
          headers: { accept: 'text/event-stream', 'last-event-id': last },
        }),
        400,
      )
  })

  it('answers after raw garbage, half a request and a client that goes away [H.02]', async () => {
    const { send, service } = await serveHost(await makeHost())
    const port = Number(new URL(service.url).port)
    const pieces = [
      '\0\0\0\0\r\n\r\n',
      'GET / HTTP/9.9\r\n\r\n',
      `GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${'X: y\r\n'.repeat(5_000)}`,
      `POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n`,
      'GET /v1/runs HTTP/1.1\r\n',
      `POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"a"`,
    ]
    for (const piece of pieces) {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => undefined)
      await once(socket, 'connect')
      socket.write(piece)
      socket.end()
      await new Promise((resolve) => setTimeout(resolve, 20))
      socket.destroy()
    }
    expect((await send('GET', '/healthz')).status).toBe(200)
  })

  it('writes neither its token nor a query nor a body to its log [H.02]', async () => {
    const { send, token, logged } = await serveHost(await makeHost())
    await send('GET', '/v1/runs?workspace=%2Fsecret-place')
    await send('POST', '/v1/runs', { headers: json, body: '{"prompt":"secret-prompt","x":1}' })
    await expect.poll(() => logged.length).toBeGreaterThanOrEqual(2)
    const text = JSON.stringify(logged)
    for (const secret of [token, 'secret-place', 'secret-prompt']) expect(text).not.toContain(secret)
    expect(logged).toContainEqual(expect.objectContaining({ method: 'POST', path: '/v1/runs', status: 400 }))
  })
})

describe('the OpenAPI document', () => {
  it('has every route with its schemas, and no reference without a target [H.02]', () => {
    const document = openApiDocument('1.2.3') as unknown as {
      openapi: string
      paths: Record<string, Record<string, { operationId: string; responses: Record<string, unknown> }>>
      components: { schemas: Record<string, unknown> }
    }
    expect(document.openapi).toBe('3.1.0')
    const operations = Object.values(document.paths).flatMap((methods) => Object.values(methods))
    expect(operations.map(({ operationId }) => operationId).toSorted()).toEqual(
      Object.keys(routes).toSorted(),
    )
    const text = JSON.stringify(document)
    const targets = new Set(
      [...text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)].map(([, name]) => name ?? ''),
    )
    expect([...targets].filter((name) => !(name in document.components.schemas))).toEqual([])
    expect(targets.size).toBeGreaterThan(10)
    for (const { responses } of operations) expect(Object.keys(responses).length).toBeGreaterThan(1)
  })

  it('is served, and as a page without scripts [H.02]', async () => {
    const { send } = await serveHost(await makeHost())
    const anonymous = { headers: { authorization: undefined } }
    expect((await send('GET', '/openapi.json', anonymous)).json).toMatchObject({ openapi: '3.1.0' })
    const { text, headers } = await send('GET', '/docs', anonymous)
    expect(text).toContain('POST /v1/runs/{run}/changes/apply')
    expect(text).not.toMatch(/<script|javascript:|onload=/)
    expect(headers['content-security-policy']).toContain("default-src 'none'")
  })

  it('explains each code where the type of a problem leads, in the words of the contract [H.02]', async () => {
    const { send } = await serveHost(await makeHost())
    const page = await send('GET', '/docs', { headers: { authorization: undefined } })
    const [table, list] = await Promise.all(
      ['errors.md', 'service.md'].map((name) => readFile(path.join('specs', name), 'utf8')),
    )
    for (const [code, meaning] of Object.entries(problemCodes)) {
      expect(page.text).toContain(`id="${code}"`)
      if (code in errorCodes) expect(table).toContain(` | ${meaning} | `)
      else expect(list).toContain(`\`${code}\``)
    }
    const refused = await send('PUT', '/v1/runs/order-1', {
      headers: { 'content-type': 'text/plain' },
      body: 'x',
    })
    const { type, remedy } = refused.json as { type: string; remedy: string }
    expect(page.text).toContain(`id="${type.replace('/docs#', '')}"`)
    expect([refused.status, remedy]).toEqual([415, 'send it with Content-Type: application/json'])
  })
})

/** Values of every kind for a parameter or a field. */
const anything = fc.oneof(
  fc.string(),
  fc.constantFrom('', 'last', '..', '%00', '1', '-1', '1e99', 'NaN', 'true', 'null', changedRunId),
  fc.integer().map(String),
)

it('answers every route, whatever it is given, with what its document says [H.02]', async () => {
  const { host } = await runThatChanged({ 'a.txt': 'a\n' }, { 'a.txt': 'b\n' })
  // Nothing can be started: no workspace is allowed.
  const { send, logged } = await serveHost(host)
  const names = Object.keys(routes).filter((name) => name !== 'removeRun') as RouteName[]
  const document = openApiDocument('0') as unknown as {
    paths: Record<string, Record<string, { responses: Record<string, unknown> }>>
  }
  const bodies = fc.oneof(
    fc.json(),
    fc.json().map((text) => `{"prompt":"x","workspace":"/etc","plan":${text}}`),
    fc
      .record({ select: fc.anything(), text: fc.anything(), decision: fc.anything() })
      .map((value) => JSON.stringify(value) ?? ''),
  )
  const given = fc.record({
    name: fc.constantFrom(...names),
    params: fc.array(
      fc.oneof({ weight: 3, arbitrary: fc.constant(changedRunId) }, { weight: 1, arbitrary: anything }),
      {
        minLength: 2,
        maxLength: 2,
      },
    ),
    query: fc.dictionary(
      fc.constantFrom('from', 'limit', 'status', 'cursor', 'metadata', 'run', 'x'),
      anything,
      {
        maxKeys: 2,
      },
    ),
    body: bodies,
  })
  await fc.assert(
    fc.asyncProperty(given, async ({ name, params, query, body }) => {
      const route: Route = routes[name]
      let at = 0
      const filled = route.path.replaceAll(
        /\{[a-z]+\}/g,
        () => encodeURIComponent(params[at++] ?? '') || '%20',
      )
      const search = new URLSearchParams(query)
      const isGet = route.method === 'GET'
      const answer = await send(route.method, `${filled}?${search}`, isGet ? {} : { headers: json, body })
      const known = document.paths[route.path]?.[route.method.toLowerCase()]?.responses ?? {}
      expect([name, answer.status, Object.keys(known)]).toEqual([
        name,
        expect.toSatisfy((status) => String(status) in known || status === 404),
        Object.keys(known),
      ])
      expect([name, answer.text, answer.status]).toEqual([
        name,
        answer.text,
        // A machine without an image is not ready.
        expect.toSatisfy((code) => code < 500 || (name === 'ready' && code === 503)),
      ])
      if (answer.status >= 400) expect(Problem.safeParse(answer.json).error).toBeUndefined()
      else if (route.reply.schema !== undefined)
        expect(route.reply.schema.safeParse(answer.json).error).toBeUndefined()
    }),
    { numRuns: perTier(150, 2_000) },
  )
  expect(logged.filter(({ level }) => level === 'error')).toEqual([])
})
