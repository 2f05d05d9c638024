import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { createServer } from 'node:https'
import { text } from 'node:stream/consumers'
import { createSecureContext } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { SecretChanges, Secrets } from '../../host/secrets/secrets.ts'
import { makeAuthority } from '../../host/test/support/authority.ts'
import { listen, openEgress } from './support.ts'

const value = 'hunter2-very-secret'

/** A server that says what it was sent, a path to it, and a secret that is bound to it. */
async function setUp(hosts: string[] = ['api.test']) {
  const authority = await makeAuthority('DNS:api.test', 'DNS:other.test')
  const seen: IncomingMessage[] = []
  const server = createServer({ cert: authority.cert, key: authority.key }, (request, response) => {
    seen.push(request)
    response.setHeader('x-echo', request.headers.authorization ?? 'none')
    const isWide = request.url === '/wide'
    if (isWide) response.setHeader('content-type', 'text/plain; charset=UTF-16LE')
    const said = `you sent ${request.headers.authorization} to ${request.url}`
    response.end(Buffer.from(said, isWide ? 'utf16le' : 'utf8'))
  })
  const port = await listen(server)
  const changes = new SecretChanges()
  changes.set('API_KEY', { hosts, value })
  const secrets = new Secrets({}, async () => ({ ok: false, error: 'no source' }), changes)
  const context = createSecureContext({ ca: authority.ca })
  const way = await openEgress({
    rules: ['api.test', 'other.test'].map((host) => ({
      effect: 'allow',
      host,
      ports: [port],
      schemes: ['https', 'http'],
    })),
    upgrade: { secrets, secureContext: () => context },
  })
  const ask = async (address: string, headers: Record<string, string>) => {
    const sent = request({ port: way.port, path: address.replace('PORT', String(port)), headers }).end()
    const [answer] = (await once(sent, 'response')) as [IncomingMessage]
    return { status: answer.statusCode, headers: answer.headers, body: await text(answer) }
  }
  return {
    way,
    seen,
    changes,
    ask,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await way[Symbol.asyncDispose]()
    },
  }
}
const upgrade = { 'caisson-upgrade': 'https' }

describe('a request that the host is asked to make by https', () => {
  it('holds the secret at the server alone: the answer comes back without it [G.04]', async () => {
    await using at = await setUp()
    const headers = { ...upgrade, authorization: 'Bearer {{API_KEY}}', range: 'bytes=1-2' }
    const answer = await at.ask('http://api.test:PORT/a', headers)
    expect(at.seen[0]?.headers).toMatchObject({
      authorization: `Bearer ${value}`,
      'accept-encoding': 'identity',
    })
    for (const name of ['caisson-upgrade', 'range']) expect(at.seen[0]?.headers).not.toHaveProperty(name)
    expect(answer).toMatchObject({ status: 200, body: 'you sent Bearer [redacted] to /a' })
    expect(JSON.stringify(answer)).not.toContain(value)
    const [record] = await at.way.recorded(1)
    expect(record).toMatchObject({
      kind: 'http',
      secrets: ['API_KEY'],
      target: expect.stringMatching(/^GET https:/),
    })
  })

  it('has no answer in a charset in which the secret could not be searched for [G.04]', async () => {
    await using at = await setUp()
    const answer = await at.ask('http://api.test:PORT/wide', {
      ...upgrade,
      authorization: 'Bearer {{API_KEY}}',
    })
    expect(answer).toMatchObject({ status: 502, body: expect.stringContaining('charset') })
    expect(answer.body).not.toContain('\0')
  })

  it('is refused before anything is sent: another host, plain http, in an address, revoked [G.04 G.03]', async () => {
    await using at = await setUp()
    const key = { authorization: 'Bearer {{API_KEY}}' }
    for (const [address, headers] of [
      ['http://other.test:PORT/', { ...upgrade, ...key }],
      ['http://api.test:PORT/', key],
      ['http://api.test:PORT/?key={{API_KEY}}', upgrade],
    ] as const) {
      const answer = await at.ask(address, headers)
      expect([address, answer.status, answer.body]).toEqual([
        address,
        403,
        expect.stringContaining('{{API_KEY}}'),
      ])
    }
    at.changes.revoke('API_KEY')
    expect((await at.ask('http://api.test:PORT/', { ...upgrade, ...key })).status).toBe(403)
    expect((await at.ask('http://api.test:PORT/', { 'caisson-upgrade': 'spdy' })).status).toBe(400)
    expect(at.seen).toEqual([])
  })
})
