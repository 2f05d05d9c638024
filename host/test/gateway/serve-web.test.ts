// The web tools' paths as a guest reaches them: through the gateway, over HTTP/2.
import http2 from 'node:http2'
import type { AddressInfo } from 'node:net'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { WebFetchAnswer, WebFetchRequest } from '#specs/protocol/egress.ts'
import { createGateway } from '../../gateway/gateway.ts'
import { serveWeb } from '../../gateway/serve-tools.ts'
import { gatewayError } from '../../net/gateway-error.ts'
import { offlineProvider } from '../../providers/providers.ts'
import type { Web } from '../../web/web.ts'
import { recordWeb, replayWeb } from '../../web/web.ts'
import { readAnswer } from '../support/gateway.ts'

const page: WebFetchAnswer = {
  url: 'https://site.test/',
  status: 200,
  contentType: 'text/plain',
  title: '',
  content: 'x',
  cut: false,
}

async function open(web: Partial<Web>) {
  const whole: Web = {
    fetch: async () => ({ ok: true, value: page }),
    search: async () => ({ ok: true, value: { results: [] } }),
    ...web,
  }
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId: 'run-00000000000000000000',
    limits: { maxTokens: 1_000_000 },
    services: { paths: serveWeb(whole), egress: async (stream) => void stream.destroy() },
    onModelEvent: () => undefined,
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
  const server = http2.createServer()
  server.on('stream', (stream, headers) => gateway.handleStream(stream, headers))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  client.on('error', () => undefined)
  onTestFinished(async () => {
    await gateway.close()
    client.destroy()
    server.close()
  })
  const start = (path: string, body: unknown, method = 'POST') => {
    const pseudo = { ':method': method, ':path': path, ':authority': 'gateway', ':scheme': 'http' }
    const stream = client.request(pseudo)
    stream.on('error', () => undefined)
    stream.end(typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body))
    return stream
  }
  return {
    start,
    post: (path: string, body: unknown, method?: string) => readAnswer(start(path, body, method)),
  }
}

describe("the web tools' paths", () => {
  it('take a request of their form and give its answer, or its error', async () => {
    const seen: WebFetchRequest[] = []
    const { post } = await open({
      fetch: async (request) => {
        seen.push(request)
        return request.form === 'raw'
          ? { ok: false, error: gatewayError('egress_denied', 'no rule') }
          : { ok: true, value: page }
      },
    })
    const good = await post('/web/fetch', { url: 'https://site.test/', headers: { a: 'b' } })
    expect([good.status, JSON.parse(good.text)]).toEqual([200, page])
    expect(await post('/web/fetch', { url: 'x', form: 'raw' })).toMatchObject({
      status: 403,
      code: 'egress_denied',
    })
    expect(seen).toEqual([
      { url: 'https://site.test/', headers: { a: 'b' } },
      { url: 'x', form: 'raw' },
    ])
    expect(await post('/web/search', { query: 'x' })).toMatchObject({ status: 200, text: '{"results":[]}' })
  })

  it.each([
    ['an unknown field', { url: 'x', method: 'POST' }, 400],
    ['another type', { url: 5 }, 400],
    ['an address beyond its bound', { url: 'x'.repeat(5_000) }, 400],
    ['no JSON', 'hello', 400],
    ['bytes that are not UTF-8', Buffer.from([0xff, 0x7b]), 400],
    ['deep nesting', '['.repeat(10_000), 400],
    ['a key of prototypes', '{"url":"x","headers":{"__proto__":"a"}}', 400],
    ['more bytes than a request has', 'x'.repeat(70_000), 413],
  ])('refuse %s without acting on it', async (_, body, status) => {
    const seen: unknown[] = []
    const { post } = await open({
      fetch: async (request) => {
        seen.push(request)
        return { ok: true, value: page }
      },
    })
    const answer = await post('/web/fetch', body)
    expect(answer.status).toBe(status)
    expect(answer.code).not.toBeNull()
    expect(seen).toEqual([])
    expect(await post('/web/fetch', { url: 'x' }, 'PUT')).toMatchObject({ status: 405 })
  })

  it('survive any bytes', async () => {
    const { post } = await open({})
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async (bytes) => {
        const { status } = await post('/web/search', Buffer.from(bytes))
        expect([200, 400]).toContain(status)
      }),
      { seed: 9, numRuns: 60 },
    )
  })

  it('serve eight requests of a run at once, and more when those are done', async () => {
    const release = Promise.withResolvers<void>()
    const { post } = await open({
      fetch: async () => {
        await release.promise
        return { ok: true, value: page }
      },
    })
    const many = Array.from({ length: 9 }, () => post('/web/fetch', { url: 'x' }))
    expect(await Promise.race(many)).toMatchObject({ status: 429, code: 'limit_concurrency' })
    release.resolve()
    const answers = await Promise.all(many)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(8)
    expect(await post('/web/fetch', { url: 'x' })).toMatchObject({ status: 200 })
  })

  it('end the work when the guest goes away', async () => {
    const ended = Promise.withResolvers<void>()
    const { start } = await open({
      fetch: async (_, signal) => {
        signal.addEventListener('abort', () => ended.resolve())
        stream.close(http2.constants.NGHTTP2_CANCEL)
        await ended.promise
        return { ok: true, value: page }
      },
    })
    const stream = start('/web/fetch', { url: 'x' })
    await ended.promise
  })
})

describe('a recorded web', () => {
  it('keeps what the guest got, and gives it again without the web [G.06]', async () => {
    const kept: unknown[][] = []
    const web: Web = {
      fetch: async () => ({ ok: true, value: page }),
      search: async () => ({ ok: false, error: gatewayError('not_configured', 'none') }),
    }
    const { signal } = new AbortController()
    const recording = recordWeb(web, { web: (...exchange) => kept.push(exchange) })
    await recording.fetch({ url: 'a' }, signal)
    await recording.search({ query: 'b' }, signal)
    expect(kept).toMatchObject([
      ['fetch', { url: 'a' }, { ok: true, value: page }],
      ['search', { query: 'b' }, { ok: false, error: { code: 'not_configured' } }],
    ])
    const replayed = replayWeb({
      web: (kind) =>
        kind === 'fetch' ? { ok: true, value: page } : { ok: true, value: { results: 'no list' } },
    })
    expect(await replayed.fetch({ url: 'a' }, signal)).toEqual({ ok: true, value: page })
    expect(await replayed.search({ query: 'b' }, signal)).toMatchObject({
      ok: false,
      error: { code: 'not_recorded' },
    })
  })
})
