import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { defaultGate } from '../../agent/proxy/gate.ts'
import { makeAuthority, type TestAuthority } from '../../host/test/support/authority.ts'
import { until, wait } from '../../host/test/support/run-values.ts'
import { type EgressPath, exchange, listen, openEgress, startTcp } from './support.ts'

const MiB = 1024 * 1024
/** Made in the first test that needs it. */
let made: Promise<TestAuthority> | undefined
function theAuthority(): Promise<TestAuthority> {
  made ??= makeAuthority('DNS:packages.test', 'DNS:other.test')
  return made
}

/** A TLS server, and the rule that lets packages.test at its port be reached. */
async function startTls(onConnection: (socket: TLSSocket) => void) {
  const { cert, key } = await theAuthority()
  const server = createTlsServer({ cert, key, allowHalfOpen: true }, onConnection)
  server.on('tlsClientError', () => undefined)
  const port = await listen(server)
  const rules = [{ effect: 'allow' as const, host: 'packages.test', ports: [port] }]
  return { port, rules, [Symbol.dispose]: () => void server.close() }
}

/** CONNECT as a program says it; the answer's head and the socket behind it. */
async function ask(way: EgressPath, target: string): Promise<{ head: string; socket: Socket }> {
  const socket = connect(way.port, '127.0.0.1')
  socket.on('error', () => undefined)
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`)
  let head = ''
  while (!head.includes('\r\n\r\n')) {
    const [piece] = (await once(socket, 'data')) as [Buffer]
    head += piece.toString('latin1')
  }
  return { head, socket }
}

/** Also when it ends by an error, which `once` would throw. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()))
}

async function secure(socket: Socket, servername: string): Promise<TLSSocket> {
  const { ca } = await theAuthority()
  const tls = connectTls({ socket, servername, ca })
  await once(tls, 'secureConnect')
  return tls
}

describe('a tunnel', () => {
  it.each([true, false])(
    'opens once the journal has its line (written: %s) [G.08 R.01]',
    async (isWritten) => {
      let connections = 0
      using server = await startTls((socket) => {
        connections += 1
        socket.on('error', () => undefined).end()
      })
      const written = Promise.withResolvers<boolean>()
      await using way = await openEgress({ rules: server.rules, onStart: () => written.promise })
      const asked = ask(way, `packages.test:${server.port}`)
      await wait(50)
      written.resolve(isWritten)
      const { head, socket } = await asked
      if (isWritten) await secure(socket, 'packages.test')
      else expect(head).toContain('Nothing was sent: the journal of the run could not be written.')
      await until(() => connections === (isWritten ? 1 : 0), 'the connections')
      socket.destroy()
      expect(await way.recorded(1)).toHaveLength(1)
    },
  )

  it('carries TLS to the permitted host, large both ways and with its half-close, and is recorded [G.08]', async () => {
    const body = randomBytes(3 * MiB)
    using server = await startTls((socket) => {
      // Answers when all has come.
      void buffer(socket).then((all) => socket.end(all))
    })
    await using way = await openEgress({ rules: server.rules })
    const { head, socket } = await ask(way, `packages.test:${server.port}`)
    expect(head).toMatch(/^HTTP\/1\.1 200 /)
    const tls = await secure(socket, 'packages.test')
    tls.end(body)
    expect(body.equals(await buffer(tls))).toBe(true)
    const [record] = await way.recorded(1)
    expect(record).toMatchObject({
      kind: 'tunnel',
      target: `CONNECT packages.test:${server.port}`,
      rule: expect.stringContaining('packages.test'),
    })
    expect(record?.error).toBeUndefined()
    expect(record?.bytesOut).toBeGreaterThan(3 * MiB)
    expect(record?.bytesIn).toBeGreaterThan(3 * MiB)
    expect(way.refusals.watch().list()).toEqual([])
  })

  it('is refused at once with its rule, in status line, body and the list of refusals [G.03]', async () => {
    await using way = await openEgress()
    const watch = way.refusals.watch()
    const { head, socket } = await ask(way, 'packages.test:443')
    expect(head).toMatch(/^HTTP\/1\.1 403 Refused: CONNECT packages\.test:443: no rule allows it/)
    await closed(socket)
    expect(watch.list()).toEqual([
      expect.stringMatching(/^CONNECT packages\.test:443: .*no rule allows it.*request_access/),
    ])
    expect(way.denied).toEqual([expect.stringContaining('CONNECT packages.test:443')])
    expect(way.records).toEqual([])
  })

  it.each([
    ['the gateway', 'gateway:443', 403],
    ['the gateway in other letters', 'GATEWAY.:8080', 403],
    ['no port', 'packages.test', 400],
    ['a user', 'user@packages.test:443', 400],
    ['a path', 'packages.test:443/x', 400],
    ['an address of this machine in another spelling', '0x7f.1:443', 403],
    ['this machine', 'localhost:22', 403],
  ])('is refused to %s [G.02 G.03]', async (_what, target, status) => {
    await using way = await openEgress()
    const { head } = await ask(way, target)
    expect(head).toContain(`HTTP/1.1 ${status} `)
  })

  it('is not opened for TLS with another name, without one, or for what is no TLS; not a byte gets out [G.02 G.03]', async () => {
    let bytes = 0
    await using server = await startTcp((socket) => socket.on('data', (piece) => (bytes += piece.length)))
    const rules = [{ effect: 'allow' as const, host: 'packages.test', ports: [server.port] }]
    await using way = await openEgress({ rules })
    const watch = way.refusals.watch()
    const target = `packages.test:${server.port}`
    const other = await ask(way, target)
    await expect(secure(other.socket, 'other.test')).rejects.toThrow(/unrecognized name/i)
    const nameless = await ask(way, target)
    const tls = connectTls({ socket: nameless.socket })
    await expect(once(tls, 'secureConnect')).rejects.toThrow(/unrecognized name/i)
    const plain = await ask(way, target)
    // An alert of TLS, and the end.
    expect(await exchange(plain.socket, 'SSH-2.0-x\r\n')).toHaveLength(7)
    const records = await way.recorded(3)
    expect(records.map(({ error }) => error)).toEqual([
      expect.stringContaining('asks for other.test'),
      expect.stringContaining('names no server'),
      expect.stringContaining('not TLS'),
    ])
    await until(() => watch.list().length > 0, 'the refusals')
    expect(watch.list()[0]).toContain('its TLS asks for other.test')
    expect(bytes).toBe(0)
  })

  it('ends at its limits of bytes, time and silence, and says so [G.08]', async () => {
    using server = await startTls((socket) => {
      socket.on('error', () => undefined)
      socket.write(Buffer.alloc(2 * MiB))
    })
    const endOf = async (limits: object): Promise<string | undefined> => {
      await using way = await openEgress({ rules: server.rules, limits })
      const watch = way.refusals.watch()
      const { socket } = await ask(way, `packages.test:${server.port}`)
      const tls = connectTls({ socket, servername: 'packages.test', rejectUnauthorized: false })
      tls.on('error', () => undefined).resume()
      await closed(socket)
      const [record] = await way.recorded(1)
      await until(() => watch.list().length > 0, 'the refusal')
      expect(watch.list()[0]).toContain(record?.error)
      return record?.error
    }
    expect(await endOf({ maxBytes: MiB })).toBe('ended: more than 1 MiB received')
    expect(await endOf({ maxMs: 300 })).toContain('the longest a connection may take')
    expect(await endOf({ idleMs: 300 })).toContain('without a byte')
  })

  it('does not end for silence while bytes pass [G.08]', async () => {
    using server = await startTls((socket) => {
      socket.on('error', () => undefined)
      const timer = setInterval(() => socket.write('.'), 100)
      setTimeout(() => {
        clearInterval(timer)
        socket.end('done')
      }, 2_000)
    })
    await using way = await openEgress({ rules: server.rules, limits: { idleMs: 1_000 } })
    const { socket } = await ask(way, `packages.test:${server.port}`)
    expect((await buffer(await secure(socket, 'packages.test'))).toString()).toMatch(/^\.+done$/)
  })

  it('that never says for whom its TLS is comes to an end [G.02]', async () => {
    await using server = await startTcp(() => undefined)
    const rules = [{ effect: 'allow' as const, host: 'packages.test', ports: [server.port] }]
    await using way = await openEgress({ rules, limits: { helloMs: 50 } })
    const { socket } = await ask(way, `packages.test:${server.port}`)
    await closed(socket)
    expect((await way.recorded(1))[0]?.error).toContain('no TLS ClientHello')
    await until(() => server.sockets.every((one) => one.destroyed || one.readableEnded), 'the end outside')
  })

  it('holds the server back while the program does not read [C.04 G.08]', async () => {
    let taken = 0
    using server = await startTls((socket) => {
      socket.on('error', () => undefined)
      const more = (): void => {
        while (socket.write(Buffer.alloc(64 * 1024))) taken += 64 * 1024
        socket.once('drain', more)
      }
      more()
    })
    await using way = await openEgress({ rules: server.rules })
    const { socket } = await ask(way, `packages.test:${server.port}`)
    const tls = await secure(socket, 'packages.test')
    tls.pause()
    let before = -1
    while (before !== taken) {
      before = taken
      await wait(300)
    }
    // Buffers of the sockets, windows of HTTP/2: some megabytes, not all that there is.
    expect(taken).toBeLessThan(64 * MiB)
    tls.on('error', () => undefined).destroy()
    await way.recorded(1)
  })

  it('ends outside when the program is killed, and in the guest when the server breaks off [G.08]', async () => {
    using server = await startTls((socket) => {
      socket.on('error', () => undefined)
      socket.write('x')
    })
    await using way = await openEgress({ rules: server.rules })
    const first = await ask(way, `packages.test:${server.port}`)
    const tls = await secure(first.socket, 'packages.test')
    tls.on('error', () => undefined)
    first.socket.resetAndDestroy()
    expect((await way.recorded(1))[0]?.error).toBeDefined()
    await until(() => way.open() === 0, 'no stream is served')

    await using breaking = await startTcp((socket) => socket.once('data', () => socket.resetAndDestroy()))
    const rules = [{ effect: 'allow' as const, host: 'packages.test', ports: [breaking.port] }]
    await using second = await openEgress({ rules })
    const { socket } = await ask(second, `packages.test:${breaking.port}`)
    connectTls({ socket, servername: 'packages.test' }).on('error', () => undefined)
    await closed(socket)
    expect((await second.recorded(1))[0]?.error).toContain('broke off')
  })

  it('says that a server cannot be reached, instead of hanging or being reset [G.03]', async () => {
    const { port } = await startTcp(() => undefined).then(async (server) => {
      await server[Symbol.asyncDispose]()
      return server
    })
    await using way = await openEgress({ rules: [{ effect: 'allow', host: 'packages.test', ports: [port] }] })
    const { head } = await ask(way, `packages.test:${port}`)
    expect(head).toMatch(/^HTTP\/1\.1 502 .*ECONNREFUSED/)
    expect(way.refusals.watch().list()).toEqual([])
  })

  it('waits for a person, is given up when the program goes, and opens when the answer is yes [G.02]', async () => {
    using server = await startTls((socket) => void socket.end('hello'))
    const answers: ((granted: boolean) => void)[] = []
    let gaveUp = 0
    await using way = await openEgress({
      rules: [{ effect: 'deny', host: 'never.test', ports: [server.port] }],
      askFor: (_target, _decision, signal) => {
        signal.addEventListener('abort', () => (gaveUp += 1))
        return new Promise((resolve) => {
          answers.push((granted) =>
            resolve(granted ? { ok: true, value: 'a person' } : { ok: false, error: 'refused: no' }),
          )
        })
      },
    })
    const target = `CONNECT packages.test:${server.port} HTTP/1.1\r\n\r\n`
    const gone = connect(way.port, '127.0.0.1')
    gone.write(target)
    await until(() => answers.length === 1, 'the question')
    gone.destroy()
    await until(() => gaveUp === 1, 'the end of the question')
    const opening = ask(way, `packages.test:${server.port}`)
    await until(() => answers.length === 2, 'the second question')
    answers[1]?.(true)
    const tls = await secure((await opening).socket, 'packages.test')
    expect((await buffer(tls)).toString()).toBe('hello')
    expect((await way.recorded(1))[0]?.rule).toBe('a person')
  })

  it('leaves room for the model: more than its share wait or are refused, and learn it [G.08]', async () => {
    await using server = await startTcp(() => undefined)
    const rules = [{ effect: 'allow' as const, host: 'packages.test', ports: [server.port] }]
    await using way = await openEgress({ rules, maxOpen: 2 })
    const target = `packages.test:${server.port}`
    await ask(way, target)
    const second = await ask(way, target)
    expect((await ask(way, target)).head).toContain('HTTP/1.1 429 ')
    second.socket.destroy()
    await until(() => way.open() === 1, 'a free place')
    expect((await ask(way, target)).head).toContain('HTTP/1.1 200 ')

    await using narrow = await openEgress({ rules, gate: { ...defaultGate, maxOpen: 1, waitMs: 100 } })
    await ask(narrow, target)
    expect((await ask(narrow, target)).head).toContain('HTTP/1.1 503 ')
  })

  it('that is broken off again and again is held back before the host ends the session for it [C.04 G.08]', async () => {
    await using way = await openEgress({
      askFor: (_target, _decision, signal) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => resolve({ ok: false, error: 'withdrawn' }))
        }),
      gate: { ...defaultGate, waitMs: 100, resetBurst: 5, resetsPerSecond: 0.01 },
    })
    for (let round = 0; round < 6; round += 1) {
      const socket = connect(way.port, '127.0.0.1')
      socket.on('error', () => undefined)
      socket.write('CONNECT packages.test:443 HTTP/1.1\r\n\r\n')
      await until(() => way.open() === 1, 'the stream')
      socket.resetAndDestroy()
      await until(() => way.open() === 0, 'its end')
    }
    expect((await ask(way, 'packages.test:443')).head).toContain('HTTP/1.1 503 ')
  })

  it('to port 80 holds requests in the clear, as Node’s fetch makes them, and each is judged [G.02 G.03]', async () => {
    await using way = await openEgress()
    const { head, socket } = await ask(way, 'packages.test:80')
    expect(head).toContain(' 200 ')
    const answer = await exchange(socket, 'GET /a HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n')
    expect(answer).toMatch(/^HTTP\/1\.1 403 Refused: /)
    expect(way.denied).toEqual([expect.stringMatching(/^GET http:\/\/packages\.test\/a: /)])
  })
})

describe('the guest’s proxy', () => {
  it('tells who asks it for a page of its own what it is', async () => {
    await using way = await openEgress()
    const [response] = (await once(httpRequest({ port: way.port, path: '/' }).end(), 'response')) as [
      NodeJS.ReadableStream & { statusCode: number },
    ]
    expect(response.statusCode).toBe(400)
    expect((await buffer(response)).toString()).toContain('This is a proxy')
    const socket = connect(way.port, '127.0.0.1')
    expect(await exchange(socket, '\x16\x03\x01 no http\r\n\r\n')).toContain('400')
  })
})
