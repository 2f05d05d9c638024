import { once } from 'node:events'
import {
  createServer,
  type IncomingMessage,
  type RequestOptions,
  request,
  type ServerResponse,
} from 'node:http'
import { connect } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { buildHeaders, passHeaders } from '../../host/egress/plain.ts'
import { until, wait } from '../../host/test/support/run-values.ts'
import { checkHeaders } from '../../host/web/request-headers.ts'
import { type EgressPath, exchange, listen, openEgress, startTcp } from './support.ts'

const MiB = 1024 * 1024

interface Web extends AsyncDisposable {
  readonly port: number
  readonly rules: [{ effect: 'allow'; host: string; ports: number[]; schemes: ['http'] }]
  readonly seen: IncomingMessage[]
}

/** A web server, and the rule for http to web.test at its port. */
async function startWeb(respond: (request: IncomingMessage, response: ServerResponse) => void): Promise<Web> {
  const seen: IncomingMessage[] = []
  const server = createServer((request, response) => {
    seen.push(request)
    response.on('error', () => undefined)
    respond(request, response)
  })
  const port = await listen(server)
  return {
    port,
    rules: [{ effect: 'allow', host: 'web.test', ports: [port], schemes: ['http'] }],
    seen,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
    },
  }
}

interface Answer {
  readonly status: number
  readonly reason: string
  readonly headers: IncomingMessage['headers']
  readonly body: Buffer
}

async function ask(
  way: EgressPath,
  url: string,
  options: RequestOptions = {},
  body?: Buffer,
): Promise<Answer> {
  const sent = request({ host: '127.0.0.1', port: way.port, path: url, ...options })
  sent.end(body)
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  return {
    status: response.statusCode ?? 0,
    reason: response.statusMessage ?? '',
    headers: response.headers,
    body: await buffer(response),
  }
}

describe('a request in the clear', () => {
  it('reaches the permitted server and brings its answer back, large both ways, and is recorded [G.08]', async () => {
    await using web = await startWeb((request, response) => {
      response.setHeader('set-cookie', ['a=1', 'b=2'])
      request.pipe(response)
    })
    await using way = await openEgress({ rules: web.rules })
    const body = Buffer.alloc(3 * MiB, 'abc')
    const url = `http://web.test:${web.port}/up?x=1`
    const answer = await ask(way, url, { method: 'POST', headers: { 'content-length': body.length } }, body)
    expect(answer.status).toBe(200)
    expect(answer.body.equals(body)).toBe(true)
    expect(answer.headers['set-cookie']).toEqual(['a=1', 'b=2'])
    const [record] = await way.recorded(1)
    expect(record).toMatchObject({
      kind: 'http',
      target: `POST ${url}`,
      bytesOut: body.length,
      bytesIn: body.length,
    })
    expect(record).not.toHaveProperty('error')
    const chunked = await ask(way, url, { method: 'PUT', headers: { 'transfer-encoding': 'chunked' } }, body)
    expect(chunked.body.equals(body)).toBe(true)
  })

  it.each([true, false])(
    'is sent once the journal has its line (written: %s) [G.08 R.01]',
    async (isWritten) => {
      await using web = await startWeb((_request, response) => response.end('yes'))
      const written = Promise.withResolvers<boolean>()
      let started = 0
      const onStart = (): Promise<boolean> => {
        started += 1
        return written.promise
      }
      await using way = await openEgress({ rules: web.rules, onStart })
      const asked = ask(way, `http://web.test:${web.port}/`)
      await until(() => started > 0, 'a line')
      await wait(50)
      expect(web.seen).toHaveLength(0)
      written.resolve(isWritten)
      const { body } = await asked
      expect(body.toString()).toMatch(isWritten ? /^yes$/ : /^Refused: Nothing was sent: the journal/)
      expect(web.seen).toHaveLength(isWritten ? 1 : 0)
      expect(await way.recorded(1)).toHaveLength(1)
    },
  )

  it('is refused with its rule in words, and as a rule about method and path says [G.02 G.03]', async () => {
    await using web = await startWeb((_request, response) => response.end('yes'))
    const [rule] = web.rules
    const rules = [{ ...rule, methods: ['GET'], path: '/open/*' }]
    await using way = await openEgress({ rules })
    const base = `http://web.test:${web.port}`
    expect((await ask(way, `${base}/open/a`)).body.toString()).toBe('yes')
    for (const [method, path] of [
      ['GET', '/closed'],
      ['POST', '/open/a'],
      ['GET', '/open/../closed'],
      ['GET', '/open/%2e%2e/closed'],
    ] as const) {
      const answer = await ask(way, base + path, { method })
      expect([method, path, answer.status]).toEqual([method, path, 403])
      expect(answer.reason).toContain('no rule allows it')
      expect(answer.body.toString()).toMatch(/^Refused: .*request_access/)
    }
    expect(way.denied).toHaveLength(4)
    expect(way.refusals.watch().list()).toEqual([])
    expect(web.seen).toHaveLength(1)
  })

  it('carries no header of the connection, of a proxy, or of ours, either way [G.01 G.02]', async () => {
    await using web = await startWeb((_request, response) => {
      response.writeHead(200, {
        connection: 'x-secret, close',
        'x-secret': '1',
        'proxy-authenticate': 'Basic',
        'caisson-error': 'egress_denied',
        'x-kept': '1',
      })
      response.end('ok')
    })
    await using way = await openEgress({ rules: web.rules })
    const answer = await ask(way, `http://web.test:${web.port}/`, {
      headers: {
        host: 'other.test',
        'proxy-authorization': 'Basic c2VjcmV0',
        'proxy-connection': 'keep-alive',
        connection: 'keep-alive, x-hop',
        'x-hop': '1',
        te: 'gzip',
        expect: '100-continue',
        upgrade: 'h2c',
        'x-end': 'kept',
      },
    })
    expect(answer.body.toString()).toBe('ok')
    expect(answer.headers['x-kept']).toBe('1')
    for (const name of ['x-secret', 'proxy-authenticate', 'caisson-error'])
      expect(answer.headers).not.toHaveProperty(name)
    expect(web.seen[0]?.rawHeaders).toEqual([
      'host',
      `web.test:${web.port}`,
      'x-end',
      'kept',
      'connection',
      'close',
    ])
  })

  it('never becomes two: bodies keep to their length, and lengths that contradict are refused [G.02]', async () => {
    const received: string[] = []
    await using server = await startTcp((socket) => {
      socket.on('data', (piece) => received.push(piece.toString('latin1')))
    })
    const rules = [
      { effect: 'allow' as const, host: 'web.test', ports: [server.port], schemes: ['http' as const] },
    ]
    await using way = await openEgress({ rules })
    const head = `POST http://web.test:${server.port}/ HTTP/1.1\r\nHost: web.test\r\n`
    const smuggled = 'GET /smuggled HTTP/1.1\r\nHost: web.test\r\n\r\n'
    for (const fields of [
      'Content-Length: 3\r\nTransfer-Encoding: chunked\r\n',
      'Content-Length: 3\r\nContent-Length: 30\r\n',
      'Content-Length: 3, 30\r\n',
      'Content-Length: -1\r\n',
      'X-A: b\r\n folded: c\r\nContent-Length : 3\r\n',
      'X-A: b\rGET /smuggled HTTP/1.1\r\n',
      'X-A: b\0c\r\n',
    ]) {
      const socket = connect(way.port, '127.0.0.1')
      socket.on('error', () => undefined)
      const answer = await exchange(socket, `${head}${fields}\r\nabc${smuggled}`)
      expect([fields, answer.slice(0, 12)]).toEqual([fields, 'HTTP/1.1 400'])
    }
    expect(received.join('')).toBe('')

    // A guest that speaks HTTP/2 itself and says another length than it sends: the stream is reset before it counts.
    const stream = await way.guest.http.openStream({
      ':method': 'POST',
      ':scheme': 'http',
      ':authority': `web.test:${server.port}`,
      ':path': '/',
      'content-length': '3',
    })
    stream.end(`abc${smuggled}`)
    await new Promise((resolve) => stream.once('close', resolve))
    await until(() => way.open() === 0, 'the end')
    expect(received.join('')).not.toContain('smuggled')
  })

  it.each([
    ['an address that is no address', 'http:///x', 400],
    ['a user in the address', 'http://user:secret@web.test/', 400],
    ['the gateway', 'http://gateway/v1/models', 403],
    ['the gateway with a port', 'http://Gateway.:80/v1/models', 403],
    ['https without a tunnel', 'https://web.test/', 400],
    ['another scheme', 'ftp://web.test/', 400],
    ['metadata of a cloud', 'http://169.254.169.254/latest', 403],
    ['the same in another spelling', 'http://2852039166/latest', 403],
    ['a path that is a host', 'http://web.test//evil.test/x', 403],
  ])('is refused to %s [G.02 G.03]', async (_what, url, status) => {
    await using way = await openEgress()
    const answer = await ask(way, url)
    expect([answer.status, answer.body.toString().startsWith('Refused: ') || status === 400]).toEqual([
      status,
      true,
    ])
  })

  it('says what a broken server did, and never makes a cut answer look whole [G.03]', async () => {
    const answers = [
      'no http at all\r\n\r\n',
      'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc',
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
      '',
    ]
    for (const text of answers) {
      await using server = await startTcp((socket) => socket.once('data', () => socket.end(text)))
      const rules = [
        { effect: 'allow' as const, host: 'web.test', ports: [server.port], schemes: ['http' as const] },
      ]
      await using way = await openEgress({ rules })
      const answer = await ask(way, `http://web.test:${server.port}/`)
      expect([text, answer.status]).toEqual([text, 502])
      expect(answer.body.toString()).toContain('the server gave no answer that could be read')
      expect((await way.recorded(1))[0]).toHaveProperty('error')
    }
    await using server = await startTcp((socket) =>
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc')),
    )
    const rules = [
      { effect: 'allow' as const, host: 'web.test', ports: [server.port], schemes: ['http' as const] },
    ]
    await using way = await openEgress({ rules })
    await expect(ask(way, `http://web.test:${server.port}/`)).rejects.toThrow(/aborted|ECONNRESET/)
    expect((await way.recorded(1))[0]?.error).toBe('the answer broke off')
  })

  it('ends at its limits, before an answer with words [G.03 G.08]', async () => {
    await using web = await startWeb((request, response) => {
      if (request.url === '/big') response.end(Buffer.alloc(2 * MiB))
    })
    await using way = await openEgress({ rules: web.rules, limits: { maxBytes: MiB, idleMs: 200 } })
    await expect(ask(way, `http://web.test:${web.port}/big`)).rejects.toThrow(/aborted|ECONNRESET/)
    const silent = await ask(way, `http://web.test:${web.port}/silent`)
    expect([silent.status, silent.body.toString()]).toEqual([504, expect.stringContaining('without a byte')])
    expect((await way.recorded(2)).map(({ error }) => error)).toEqual([
      'ended: more than 1 MiB received',
      expect.stringContaining('without a byte'),
    ])
  })

  it('goes through for HEAD, 204 and 304, and for many on one connection [G.08]', async () => {
    await using web = await startWeb((request, response) => {
      response.writeHead(Number(request.url?.slice(1)), { 'x-method': request.method })
      response.end()
    })
    await using way = await openEgress({ rules: web.rules })
    const base = `http://web.test:${web.port}`
    expect((await ask(way, `${base}/200`, { method: 'HEAD' })).headers['x-method']).toBe('HEAD')
    expect((await ask(way, `${base}/204`)).status).toBe(204)
    expect((await ask(way, `${base}/304`)).status).toBe(304)
    expect((await ask(way, `${base}/200`, { method: 'DELETE' })).headers['x-method']).toBe('DELETE')
    const socket = connect(way.port, '127.0.0.1')
    const two = `GET ${base}/200 HTTP/1.1\r\nHost: a\r\n\r\nGET ${base}/204 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`
    expect((await exchange(socket, two)).match(/HTTP\/1\.1 20[04]/g)).toEqual([
      'HTTP/1.1 200',
      'HTTP/1.1 204',
    ])
  })

  it('ends at the server when the program goes [G.08]', async () => {
    let closed = 0
    await using web = await startWeb((request) => request.once('close', () => (closed += 1)))
    await using way = await openEgress({ rules: web.rules })
    const sent = request({ port: way.port, path: `http://web.test:${web.port}/` })
    sent.on('error', () => undefined).end()
    await until(() => web.seen.length === 1, 'the request')
    sent.destroy()
    await until(() => closed === 1 && way.open() === 0, 'its end')
    expect((await way.recorded(1))[0]?.error).toContain('the guest ended it')
  })
})

describe('the headers of a request', () => {
  const target = { scheme: 'http', host: 'web.test', port: 80, method: 'POST', path: '/' } as const

  it('are tokens and lines whatever the guest says, with one host and one length [G.02]', () => {
    const name = fc.oneof(
      fc.constantFrom('host', 'connection', 'transfer-encoding', 'content-length', 'proxy-x', 'x-a', ':path'),
      fc.string({ maxLength: 8 }),
    )
    const value = fc.oneof(
      fc.string({ unit: 'binary-ascii', maxLength: 12 }),
      fc.constantFrom('3', 'chunked', 'a\r\nb: c'),
    )
    fc.assert(
      fc.property(fc.dictionary(name, fc.oneof(value, fc.array(value, { maxLength: 3 }))), (guest) => {
        const built = buildHeaders(target, guest, { isEmpty: false })
        if (!built.ok) return
        expect(built.value.host).toBe('web.test')
        expect('content-length' in built.value && 'transfer-encoding' in built.value).toBe(false)
        for (const [field, content] of Object.entries(built.value)) {
          expect(field).toMatch(/^[!#$%&'*+.^_`|~0-9a-z-]+$/)
          expect([content].flat().join('')).not.toMatch(/[\r\n\0]/)
        }
      }),
      { seed: 4, numRuns: 2_000 },
    )
  })

  it('do not say that the request is another one than was judged [G.02]', () => {
    const target = { scheme: 'http', host: 'a.test', port: 80, method: 'GET', path: '/public' } as const
    const names = [
      'forwarded',
      'x-forwarded-host',
      'x-forwarded-proto',
      'x-forwarded-server',
      'x-host',
      'x-http-host-override',
      'x-http-method',
      'x-http-method-override',
      'x-method-override',
      'x-original-host',
      'x-original-uri',
      'x-original-url',
      'x-envoy-original-path',
      'x-rewrite-url',
    ]
    // A server that hands headers on as CGI variables reads these as the same names.
    const spellings = names.flatMap((name) => [name, name.replaceAll('-', '_'), name.replaceAll('-', '.')])
    for (const name of spellings) {
      expect(checkHeaders({ [name.toUpperCase()]: '/admin' }).ok).toBe(false)
      expect(buildHeaders(target, { [name]: '/admin' }, { isEmpty: true })).toMatchObject({
        ok: false,
        error: expect.stringContaining(name),
      })
    }
    for (const name of ['x-forwarded-for', 'x-request-id', 'x-api-key', 'authorization', 'content_type'])
      expect(buildHeaders(target, { [name]: '1.1.1.1' }, { isEmpty: true }).ok).toBe(true)
    const connection = { transfer_encoding: 'chunked', Content_Length: '9', proxy_authorization: 'x' }
    expect(buildHeaders(target, connection, { isEmpty: true })).toEqual({
      ok: true,
      value: { host: 'a.test' },
    })
  })

  it('name an address and a port as a URL does [G.02]', () => {
    const host = (at: object): unknown => {
      const built = buildHeaders({ ...target, ...at }, {}, { isEmpty: true })
      return built.ok ? built.value : built.error
    }
    expect(host({})).toEqual({ host: 'web.test', 'content-length': '0' })
    expect(host({ host: '2001:db8::1', port: 8080, method: 'GET' })).toEqual({ host: '[2001:db8::1]:8080' })
  })

  it('of an answer are refused where there are more than anybody needs [G.08]', () => {
    const many = Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`x-${at}`, '1']))
    expect(passHeaders(many)).toBe(null)
    expect(passHeaders({ 'x-a': 'a', 'transfer-encoding': 'chunked', 'content-length': '3' })).toEqual({
      'x-a': 'a',
      'content-length': '3',
    })
  })
})

describe('what a program learns of the proxy', () => {
  it('is the same text in a body that a person reads [G.03]', async () => {
    await using way = await openEgress()
    const sent = request({ port: way.port, path: 'http://web.test/' }).end()
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    expect(response.headers['content-type']).toBe('text/plain; charset=utf-8')
    expect(await text(response)).toMatch(/^Refused: GET http:\/\/web\.test\/: no rule allows it/)
  })
})
