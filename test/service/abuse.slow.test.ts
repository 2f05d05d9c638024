// Clients that send garbage without end, or nothing for as long as they can, while others use the service.
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { type ServedHost, serveHost } from './support.ts'

const garbageCount = 10_000
const atOnce = 32
const slowClients = 200

async function serveEmpty(): Promise<ServedHost & { readonly host: Host; open(): Promise<Socket> }> {
  const home = path.join(await temporaryFolder('service'), 'state')
  const host = new Host({ env: { PATH: process.env.PATH, HOME: home, CAISSON_HOME: home } })
  const served = await serveHost(host)
  const port = Number(new URL(served.service.url).port)
  const open = async () => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => undefined)
    onTestFinished(() => void socket.destroy())
    await once(socket, 'connect')
    return socket
  }
  return { ...served, host, open }
}

/** Some are whole requests, some are parts, and most are none. */
function garbage(hostName: string, token: string): fc.Arbitrary<Buffer> {
  const line = fc.oneof(
    fc.constantFrom(
      'GET /v1/runs HTTP/1.1',
      'POST /v1/runs HTTP/1.1',
      'GET /healthz HTTP/1.0',
      'PRI * HTTP/2.0',
    ),
    fc.string().map((text) => `GET /${text} HTTP/1.1`),
    fc.string({ unit: 'binary' }),
  )
  const header = fc.oneof(
    fc.constantFrom(
      ...[
        `Host: ${hostName}`,
        `Authorization: Bearer ${token}`,
        'Authorization: Bearer',
        'Host: evil.example',
      ],
      ...[
        'Content-Length: 5',
        'Content-Length: -1',
        'Content-Length: 99999999999999999999',
        'Expect: 100-continue',
      ],
      ...[
        'Transfer-Encoding: chunked',
        'Transfer-Encoding: gzip',
        'Connection: Upgrade',
        'Upgrade: websocket',
      ],
      ...[
        'Content-Type: application/json',
        'Content-Type: text/plain',
        'Content-Encoding: gzip',
        'Cookie: a=b',
      ],
    ),
    fc.string({ unit: 'binary' }).map((text) => `X-${text}: ${text}`),
  )
  const body = fc.oneof(
    fc.constantFrom('', '0\r\n\r\n', 'ffffffff\r\n', '{"prompt":'),
    fc.json(),
    fc.string(),
  )
  return fc
    .record({
      line,
      headers: fc.array(header, { maxLength: 6 }),
      ending: fc.constantFrom('\r\n\r\n', '\r\n', '\n\n', ''),
      body,
      bytes: fc.option(fc.uint8Array({ maxLength: 64 }), { nil: undefined }),
    })
    .map(({ line, headers, ending, body, bytes }) =>
      Buffer.concat([
        Buffer.from(`${[line, ...headers].join('\r\n')}${ending}${body}`),
        ...(bytes === undefined ? [] : [bytes]),
      ]),
    )
}

describe('the HTTP service', () => {
  it('answers as before after ten thousand requests of garbage, and did nothing [H.02]', async () => {
    const { service, token, logged, send, host, open } = await serveEmpty()
    const requests = fc.sample(garbage(new URL(service.url).host, token), { numRuns: garbageCount, seed: 17 })
    const statuses = new Set<string>()
    const workers = Array.from({ length: atOnce }, async () => {
      for (let request = requests.pop(); request !== undefined; request = requests.pop()) {
        const socket = await open()
        socket.on('data', (data: Buffer) => statuses.add(data.toString('latin1', 9, 12)))
        socket.end(request)
        // One that waits for more is left alone.
        await Promise.race([once(socket, 'close').catch(() => undefined), sleep(50)])
        socket.destroy()
      }
    })
    await Promise.all(workers)
    expect((await send('GET', '/healthz')).status).toBe(200)
    expect((await send('GET', '/v1/runs')).json).toEqual({ runs: [] })
    expect(await host.runs.ids()).toEqual([])
    expect(logged.filter(({ level }) => level === 'error')).toEqual([])
    expect([...statuses].filter((status) => status.startsWith('5') && status !== '505')).toEqual([])
    expect(JSON.stringify(logged)).not.toContain(token)
  })

  it('ends a body that never ends, whoever sends it and wherever to [H.02]', async () => {
    const { token, service, send, open } = await serveEmpty()
    const known = `Authorization: Bearer ${token}\r\n`
    const kinds = [
      ['/v1/runs', known, 'application/json', '413'],
      ['/v1/runs', '', 'application/json', '401'],
      ['/v1/runs', known, 'text/plain', '415'],
      ['/v1/workspaces', '', 'application/x-tar', '401'],
      ['/v1/nothing', known, 'application/json', '404'],
    ] as const
    const piece = `10000\r\n${'x'.repeat(0x10000)}\r\n`
    const ended = kinds.map(async ([place, authorization, type, status]) => {
      const socket = await open()
      let answer = ''
      socket.on('data', (data: Buffer) => {
        answer += data.toString('latin1')
      })
      socket.write(
        `POST ${place} HTTP/1.1\r\nHost: ${new URL(service.url).host}\r\n${authorization}Content-Type: ${type}\r\nTransfer-Encoding: chunked\r\n\r\n`,
      )
      const sending = setInterval(() => socket.write(piece), 5)
      await expect.poll(() => socket.destroyed, { timeout: 60_000 }).toBe(true)
      clearInterval(sending)
      expect([place, type, answer.slice(9, 12)]).toEqual([place, type, status])
    })
    await Promise.all(ended)
    expect((await send('GET', '/healthz')).status).toBe(200)
  })

  it('ends connections whose headers or bodies do not come, and answers others meanwhile [H.02]', async () => {
    const { service, token, send, open } = await serveEmpty()
    const start = `POST /v1/runs HTTP/1.1\r\nHost: ${new URL(service.url).host}\r\n`
    const rest = `Authorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{`
    const sockets = await Promise.all(
      Array.from({ length: slowClients }, async (_, at) => {
        const socket = await open()
        socket.resume()
        socket.write(at % 2 === 0 ? start : `${start}${rest}`)
        return socket
      }),
    )
    const dripping = setInterval(() => {
      for (const [at, socket] of sockets.entries())
        if (!socket.destroyed) socket.write(at % 2 === 0 ? 'X-Slow: y\r\n' : ' ')
    }, 1_000)
    onTestFinished(() => clearInterval(dripping))
    const isOpen = () => sockets.filter(({ destroyed }) => !destroyed).length
    expect(isOpen()).toBe(slowClients)
    expect((await send('GET', '/v1/runs')).status).toBe(200)
    await expect.poll(isOpen, { timeout: 120_000, interval: 500 }).toBe(0)
    expect((await send('GET', '/v1/runs')).status).toBe(200)
  })
})
