import { type AddressInfo, createServer, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createConnector, insideOf } from '../../egress/connect.ts'
import type { Resolve } from '../../egress/resolve.ts'
import { directNetwork, type Network, openNetwork } from '../../net/network.ts'
import type { Target } from '../../net/target.ts'
import { startConnectProxy } from '../support/connect-proxy.ts'

const never = new AbortController().signal
const anyAddress = () => null

async function startServer(host = '127.0.0.1') {
  const server = createServer((socket: Socket) => socket.end(`you came to ${socket.localAddress}`))
  let connections = 0
  server.on('connection', () => (connections += 1))
  await new Promise<void>((resolve) => server.listen(0, host, resolve))
  onTestFinished(() => void server.close())
  return { port: (server.address() as AddressInfo).port, connections: () => connections }
}

const target = (port: number, host = 'name.example'): Target => ({
  scheme: 'https',
  host,
  port,
  method: null,
  path: null,
})

/** Each look-up gives the next answer. */
function answers(...lists: string[][]): { resolve: Resolve; names: string[] } {
  const names: string[] = []
  const resolve: Resolve = (name) => {
    names.push(name)
    const value = lists.shift()
    return Promise.resolve(
      value === undefined
        ? { ok: false, error: { kind: 'not-found', message: 'is not known (ENOTFOUND)' } }
        : { ok: true, value },
    )
  }
  return { resolve, names }
}

function through(port: number): Network {
  const network = openNetwork({ proxy: `http://127.0.0.1:${port}` })
  if (!network.ok) throw new Error(network.error)
  return network.value
}

describe('a connection', () => {
  it('goes to the address that was judged, by one look-up [G.02]', async () => {
    const server = await startServer()
    const judged: unknown[] = []
    // The second answer is what a rebinding name would give.
    const { resolve, names } = answers(['127.0.0.1'], ['127.0.0.9'])
    const connect = createConnector({ network: directNetwork, resolve })
    const judge = (...seen: unknown[]): null => {
      judged.push(seen)
      return null
    }
    const connected = await connect(target(server.port), judge, never)
    expect(connected.ok && (await text(connected.value))).toBe('you came to 127.0.0.1')
    expect(judged).toEqual([['127.0.0.1', 'this machine (loopback)']])
    expect(names).toEqual(['name.example'])
  })

  it('is not begun when one of the addresses is refused, even if others are not [G.02]', async () => {
    const server = await startServer()
    const { resolve } = answers(['127.0.0.1', '10.0.0.1'])
    const connect = createConnector({ network: directNetwork, resolve })
    const judge = (address: string) => (address.startsWith('10.') ? `no, not ${address}` : null)
    expect(await connect(target(server.port), judge, never)).toEqual({
      ok: false,
      error: { kind: 'refused', message: 'no, not 10.0.0.1' },
    })
    expect(server.connections()).toBe(0)
  })

  it('is judged under the spelling that rules have, whatever the resolver writes [G.02]', async () => {
    const { resolve } = answers(['::ffff:93.184.216.34', '::FFFF:0a00:0001', '2606:4700:0:0::1'])
    const judged: string[] = []
    const judge = (address: string) => {
      judged.push(address)
      return judged.length < 3 ? null : 'no'
    }
    await createConnector({ network: directNetwork, resolve })(target(443), judge, never)
    expect(judged).toEqual(['93.184.216.34', '10.0.0.1', '2606:4700::1'])
  })

  it('looks nothing up for an address, and judges it too [G.02]', async () => {
    const server = await startServer()
    const { resolve, names } = answers()
    const connect = createConnector({ network: directNetwork, resolve })
    const to = target(server.port, '127.0.0.1')
    expect(await connect(to, (_, inside) => inside, never)).toMatchObject({ error: { kind: 'refused' } })
    expect(await connect(to, anyAddress, never)).toMatchObject({ ok: true })
    expect(names).toEqual([])
  })

  it('takes the next address when one does not answer [G.08]', async () => {
    const server = await startServer()
    const { resolve } = answers(['127.0.0.2', '::1', '127.0.0.1'])
    const connected = await createConnector({ network: directNetwork, resolve })(
      target(server.port),
      anyAddress,
      never,
    )
    expect(connected.ok && (await text(connected.value))).toBe('you came to 127.0.0.1')
  })

  it('says why there is none: no such name, no answer, no time, not wanted [G.03]', async () => {
    const { port } = await startServer()
    const closed = await startServer()
    const connect = (resolve: Resolve, signal = never) =>
      createConnector({ network: directNetwork, resolve })(target(port, 'name.example'), anyAddress, signal)
    expect(await connect(answers().resolve)).toMatchObject({
      error: { kind: 'unreachable', message: expect.stringMatching(/name\.example is not known.*Check/) },
    })
    expect(
      await createConnector({ network: directNetwork, resolve: answers(['127.0.0.3']).resolve })(
        target(closed.port),
        anyAddress,
        never,
      ),
    ).toMatchObject({ error: { kind: 'unreachable', message: expect.stringMatching(/ECONNREFUSED/) } })
    const slow: Resolve = () =>
      Promise.resolve({ ok: false, error: { kind: 'timeout', message: 'took too long' } })
    expect(await connect(slow)).toMatchObject({ error: { kind: 'timeout' } })
    expect(await connect(answers(['127.0.0.1']).resolve, AbortSignal.abort())).toMatchObject({
      error: { kind: 'cancelled' },
    })
  })
})

describe('a connection through the user’s proxy', () => {
  it('leaves a name to the proxy that only the proxy knows [G.02]', async () => {
    const server = await startServer()
    await using proxy = await startConnectProxy({ leadsTo: { host: '127.0.0.1', port: server.port } })
    const connect = createConnector({ network: through(proxy.port), resolve: answers().resolve })
    const connected = await connect(target(443, 'only.inside.example'), anyAddress, never)
    expect(connected.ok && (await text(connected.value))).toContain('you came to')
    expect(proxy.asked).toEqual(['only.inside.example:443'])
  })

  it('is refused before the proxy hears of it where the name leads inside as far as can be seen here [G.02]', async () => {
    await using proxy = await startConnectProxy()
    const connect = createConnector({ network: through(proxy.port), resolve: answers(['10.0.0.1']).resolve })
    expect(await connect(target(443), (_, inside) => inside, never)).toMatchObject({
      error: { kind: 'refused' },
    })
    const literal = createConnector({ network: through(proxy.port), resolve: answers().resolve })
    expect(await literal(target(443, '169.254.169.254'), (_, inside) => inside, never)).toMatchObject({
      error: { kind: 'refused', message: expect.stringContaining('metadata') },
    })
    expect(proxy.asked).toEqual([])
  })

  it('says what the proxy said [G.03]', async () => {
    await using proxy = await startConnectProxy({ user: 'a:b' })
    const connect = createConnector({ network: through(proxy.port), resolve: answers(['1.1.1.1']).resolve })
    expect(await connect(target(443), anyAddress, never)).toMatchObject({
      error: { kind: 'unreachable', message: expect.stringContaining('407') },
    })
  })
})

describe('an address that this machine is beside', () => {
  const near = (address: string, ...cidrs: string[]): string | null => {
    const list = cidrs.map((cidr) => {
      const own = cidr.split('/', 1)[0] ?? ''
      const family = own.includes(':') ? { family: 'IPv6' as const, scopeid: 0 } : { family: 'IPv4' as const }
      return { address: own, cidr, netmask: '', mac: '', internal: false, ...family }
    })
    return insideOf(address, { eth0: list })
  }

  it('is inside, although it is public: homes and offices have such addresses [G.02]', () => {
    expect(near('2a02:810a:1:2::9', '2a02:810a:1:2::5/64')).toContain('own network')
    expect(near('131.188.3.9', '131.188.3.5/24')).toContain('own network')
    expect(near('64:ff9b::83bc:309', '131.188.3.5/24')).toContain('own network')
    expect(near('131.188.3.5', '131.188.3.5/24')).toBe('this machine')
    expect(near('64:ff9b::83bc:305', '131.188.3.5/24')).toBe('this machine')
  })

  it('is not one of another network, nor of one that is a way to everything [G.02]', () => {
    expect(near('2a02:810a:1:3::9', '2a02:810a:1:2::5/64', '131.188.3.5/24')).toBeNull()
    expect(near('131.188.4.9', '131.188.3.5/24', '2a02:810a:1:2::5/64')).toBeNull()
    expect(near('131.188.4.9', '131.188.3.5/8', '1.1.1.1/0')).toBeNull()
    expect(near('2a02:810a:1:3::9', '2a02::5/16', '2000::1/3')).toBeNull()
  })
})
