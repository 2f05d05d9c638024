import { writeFile } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { request } from 'undici'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { directNetwork, type Network, openNetwork } from '../../net/network.ts'
import { isExcepted, openThroughProxy, ProxyError, parseProxy } from '../../net/user-proxy.ts'
import { makeAuthority, type TestAuthority } from '../support/authority.ts'
import { startConnectProxy } from '../support/connect-proxy.ts'
import { startRawUpstream } from '../support/gateway.ts'

async function startServer(authority?: TestAuthority): Promise<{ port: number } & AsyncDisposable> {
  const server: Server | ReturnType<typeof createHttpServer> =
    authority === undefined ? createHttpServer() : createServer({ cert: authority.cert, key: authority.key })
  server.on('request', (_request, response) => response.end('reached'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

async function get(network: Network, url: string): Promise<string> {
  const dispatcher = network.dispatcher()
  try {
    const response = await request(url, { dispatcher })
    return await response.body.text()
  } finally {
    await dispatcher.destroy()
  }
}

function open(...[config, env]: Parameters<typeof openNetwork>): Network {
  const opened = openNetwork(config, env)
  if (!opened.ok) throw new Error(opened.error)
  return opened.value
}

describe("the host's own connections", () => {
  it('trust an authority of the user by its file, and without it do not [S0.09]', async () => {
    const authority = await makeAuthority('IP:127.0.0.1')
    await using server = await startServer(authority)
    const url = `https://127.0.0.1:${server.port}/`
    await expect(get(directNetwork, url)).rejects.toThrow(/certificate/)
    expect(await get(open({ ca: authority.caFile }), url)).toBe('reached')
  })

  it('go through the proxy, TLS with the server inside it, and the password only to the proxy [S0.09]', async () => {
    const authority = await makeAuthority('DNS:model.test')
    await using server = await startServer(authority)
    await using proxy = await startConnectProxy({
      user: 'me:p@ss',
      leadsTo: { host: '127.0.0.1', port: server.port },
    })
    const proxyUrl = `http://me:p%40ss@127.0.0.1:${proxy.port}`
    expect(await get(open({ proxy: proxyUrl, ca: authority.caFile }), 'https://model.test/')).toBe('reached')
    expect(proxy.asked).toEqual(['model.test:443'])
    const env = { HTTPS_PROXY: proxyUrl }
    expect(await get(open({ ca: authority.caFile }, env), 'https://model.test:8443/')).toBe('reached')
    expect(proxy.asked).toEqual(['model.test:443', 'model.test:8443'])
  })

  it('reach a proxy that itself speaks TLS [S0.09]', async () => {
    const authority = await makeAuthority('DNS:model.test', 'IP:127.0.0.1')
    await using server = await startServer(authority)
    await using proxy = await startConnectProxy({
      tls: authority,
      leadsTo: { host: '127.0.0.1', port: server.port },
    })
    const network = open({ proxy: `https://127.0.0.1:${proxy.port}`, ca: authority.caFile })
    expect(await get(network, 'https://model.test/')).toBe('reached')
    expect(proxy.asked).toEqual(['model.test:443'])
  })

  it('never go through a proxy to this machine, nor to what NO_PROXY excepts [S0.09]', async () => {
    await using server = await startServer()
    await using proxy = await startConnectProxy()
    const network = open({ proxy: `127.0.0.1:${proxy.port}` }, { no_proxy: 'internal.test, 10.0.0.0/8' })
    expect(await get(network, `http://localhost:${server.port}/`)).toBe('reached')
    expect(await get(network, `http://127.0.0.1:${server.port}/`)).toBe('reached')
    expect(proxy.asked).toEqual([])
    const through = (host: string) => network.proxyFor({ scheme: 'https', host, port: 443 })?.shown ?? null
    expect(['::1', 'a.internal.test', '10.1.2.3'].map(through)).toEqual([null, null, null])
    expect(through('example.com')).toBe(`http://127.0.0.1:${proxy.port}`)
  })

  it('say why a proxy gave none, without the password [S0.09]', async () => {
    await using locked = await startConnectProxy({ user: 'me:right' })
    const wrong = open({ proxy: `http://me:wr0ng@127.0.0.1:${locked.port}` })
    const failed = get(wrong, 'https://model.test/')
    await expect(failed).rejects.toThrow(ProxyError)
    await expect(failed).rejects.toThrow(/407.*user and a password/)
    await expect(failed).rejects.not.toThrow(/wr0ng/)
    await using silent = await startConnectProxy({ silent: true })
    const quiet = parseProxy(`127.0.0.1:${silent.port}`, 'test')
    if (!quiet.ok) throw new Error(quiet.error)
    const to = { host: 'model.test', port: 443 }
    const late = await openThroughProxy(quiet.value, to, { timeoutMs: 50 })
    expect(late).toMatchObject({ ok: false, error: { message: expect.stringContaining('within 0.05 s') } })
    await using strange = await startRawUpstream(Buffer.from('220 mail.example ESMTP\r\n'), (socket) =>
      socket.end(),
    )
    const port = new URL(strange.url).port
    await expect(get(open({ proxy: `127.0.0.1:${port}` }), 'https://model.test/')).rejects.toThrow(/HPE_/)
    const controller = new AbortController()
    const cancelled = openThroughProxy(quiet.value, to, { timeoutMs: 60_000, signal: controller.signal })
    controller.abort()
    expect(await cancelled).toMatchObject({
      ok: false,
      error: { message: expect.stringContaining('cancelled') },
    })
  })
})

describe('settings of the network', () => {
  it('that cannot be used are refused with the place they come from [S0.09]', async () => {
    const folder = await temporaryFolder('ca')
    const empty = path.join(folder, 'empty.pem')
    await writeFile(empty, 'nothing')
    expect(openNetwork({ ca: empty })).toMatchObject({ ok: false, error: expect.stringContaining(empty) })
    expect(openNetwork({ ca: path.join(folder, 'none.pem') })).toMatchObject({ ok: false })
    expect(openNetwork({ ca: 'relative.pem' })).toMatchObject({ ok: false })
    const socks = openNetwork({}, { ALL_PROXY: 'socks5://127.0.0.1:1080' })
    expect(socks).toMatchObject({ ok: false, error: expect.stringMatching(/ALL_PROXY.*socks5/) })
    expect(openNetwork({ proxy: 'http://' })).toMatchObject({ ok: false })
  })

  it.each([
    ['*', 'a.test', true],
    ['a.test', 'a.test', true],
    ['a.test', 'b.a.test', true],
    ['a.test', 'nota.test', false],
    ['.a.test', 'a.test', true],
    ['*.a.test', 'a.test', false],
    ['*.a.test', 'b.a.test', true],
    ['A.TEST.', 'a.test.', true],
    ['x, a.test:443', 'a.test', true],
    ['a.test:8443', 'a.test', false],
    ['10.0.0.0/8', '10.9.9.9', true],
    ['10.0.0.0/8', '11.0.0.1', false],
    ['10.0.0.0/8', 'ten.test', false],
    ['192.168.1.1', '192.168.1.1', true],
    ['192.168.1.1', '192.168.1.10', false],
    ['::1', '::1', true],
    ['[fd00::1]:443', 'fd00:0::1', true],
    ['fd00::/8', 'fd00::7', true],
    ['[', 'a.test', false],
    ['10.0.0.0/99', '10.0.0.1', false],
    ['', 'a.test', false],
  ])('NO_PROXY %j excepts %s: %s [S0.09]', (noProxy, host, excepted) => {
    expect(isExcepted(noProxy, { host, port: 443 })).toBe(excepted)
  })
})
