// A token on its way: the agent's client, the link, the gateway of the host with the sign-ins of its user, TLS, and an MCP
// server behind a real authorization server. The guest has a placeholder alone.
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { createServer } from 'node:https'
import { createSecureContext } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { McpConnection } from '#runtime/mcp/connection.ts'
import { openHttpTransport } from '#runtime/mcp/http.ts'
import { createEgressFetch } from '../../agent/mcp/egress-fetch.ts'
import { type SignInServer, tokenNameOf } from '../../host/mcp/oauth-settings.ts'
import { Secrets } from '../../host/secrets/secrets.ts'
import type { McpSignIns } from '../../host/sign-in/mcp-sign-ins.ts'
import { ServerToken } from '../../host/sign-in/server-token.ts'
import type { SignIns } from '../../host/sign-in/sign-ins.ts'
import { makeAuthority } from '../../host/test/support/authority.ts'
import { listen, openEgress } from '../egress/support.ts'
import { OAuthWorld } from './oauth-world.ts'

const soon = () => AbortSignal.timeout(20_000)

/** The world's MCP server behind TLS as `api.test`, and a connection of the agent to it. */
async function setUp() {
  const world = await OAuthWorld.open()
  const signIns = world.signIns()
  const authority = await makeAuthority('DNS:api.test')
  const seen: IncomingMessage[] = []
  const server = createServer({ cert: authority.cert, key: authority.key }, (request, response) => {
    seen.push(request)
    const { method, headers, url } = request
    const onward = httpRequest(
      new URL(url ?? '/', world.mcpUrl),
      { method, headers, agent: false },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(response)
      },
    )
    onward.on('error', () => response.destroy())
    request.pipe(onward)
  })
  const port = await listen(server)
  const shown: SignInServer = { ...world.server(), url: `https://api.test:${port}/mcp` }
  const name = tokenNameOf(shown)
  const tokens = new Map([[name, tokenOf(world, signIns, shown)]])
  const secrets = new Secrets({}, async () => ({ ok: false, error: 'no source' }), undefined, { tokens })
  const context = createSecureContext({ ca: authority.ca })
  const way = await openEgress({
    rules: [{ effect: 'allow', host: 'api.test', ports: [port], schemes: ['https', 'http'] }],
    upgrade: { secrets, secureContext: () => context },
  })
  const fetchOver = createEgressFetch(way.guest.http)
  const authorization = `Bearer {{${name}}}`
  const connection = new McpConnection(
    'tracker',
    { transport: 'streamable-http', url: shown.url, headers: { Authorization: authorization } },
    { openTransport: (config) => openHttpTransport(config, fetchOver) },
  )
  return {
    ...{ world, signIns, secrets, seen, way, connection, fetchOver, authorization, port },
    async [Symbol.asyncDispose]() {
      await connection.close()
      server.closeAllConnections()
      server.close()
      await way[Symbol.asyncDispose]()
      await world[Symbol.asyncDispose]()
    },
  }
}

/** The authorization server knows the MCP server by its address without TLS. */
function tokenOf(world: OAuthWorld, signIns: SignIns, shown: SignInServer): ServerToken {
  const known = {
    token: () => signIns.token(world.server()),
    refused: (_server: SignInServer, status: number, header: string | undefined, token: string) =>
      signIns.refused(world.server(), status, header, token),
  }
  return new ServerToken({ load: () => Promise.resolve(known) } as unknown as McpSignIns, shown)
}

describe('the token of an MCP server', () => {
  it('is put in by the host, and neither the guest nor the record of the run has it [A.09] [G.04]', async () => {
    await using at = await setUp()
    await at.signIns.signIn(at.world.server(), at.world.person(), soon())
    expect(await at.connection.callTool('issues', {}, soon())).toEqual({ ok: true, content: 'one issue' })
    const token = await at.signIns.token(at.world.server())
    const value = token.ok ? token.value.reveal() : ''
    expect(at.seen.every(({ headers }) => headers.authorization === `Bearer ${value}`)).toBe(true)
    const records = JSON.stringify(await at.way.recorded(2))
    expect(records).toContain('MCP_TOKEN_')
    expect(records).not.toContain(value)
    expect(at.secrets.list()).toEqual([])
  })

  it('is taken out of an answer that repeats it [A.09] [G.04]', async () => {
    await using at = await setUp()
    await at.signIns.signIn(at.world.server(), at.world.person(), soon())
    at.world.mcpAnswer = (request, response) => {
      response.writeHead(500).end(`you sent ${request.headers.authorization}`)
      return true
    }
    const { content } = await at.connection.callTool('issues', {}, soon())
    const token = await at.signIns.token(at.world.server())
    expect(content).toContain('you sent Bearer [')
    expect(content).not.toContain(token.ok ? token.value.reveal() : 'x')
  })

  it('is renewed when the server refuses it, and the call continues [A.09]', async () => {
    await using at = await setUp()
    await at.signIns.signIn(at.world.server(), at.world.person(), soon())
    expect((await at.connection.listTools()).ok).toBe(true)
    const first = await at.signIns.token(at.world.server())
    const old = `Bearer ${first.ok ? first.value.reveal() : ''}`
    at.world.mcpAnswer = (request, response) => {
      if (request.headers.authorization !== old) return false
      response.writeHead(401, { 'www-authenticate': 'Bearer error="invalid_token"' }).end()
      return true
    }
    expect(await at.connection.callTool('issues', {}, soon())).toEqual({ ok: true, content: 'one issue' })
  })

  it('that is not there is an error at once, which names the command [A.09]', async () => {
    await using at = await setUp()
    const began = performance.now()
    const { ok, content } = await at.connection.callTool('issues', {}, soon())
    expect(ok).toBe(false)
    expect(content).toContain('caisson mcp login tracker')
    expect(performance.now() - began).toBeLessThan(5_000)
    expect(at.seen).toEqual([])
  })

  it('that lacks rights is an error that names them and the command [A.09]', async () => {
    await using at = await setUp()
    await at.signIns.signIn(at.world.server(), at.world.person(), soon())
    expect((await at.connection.listTools()).ok).toBe(true)
    at.world.mcpAnswer = (_request, response) => {
      const challenge = 'Bearer error="insufficient_scope", scope="write"'
      response.writeHead(403, { 'www-authenticate': challenge }).end()
      return true
    }
    const { content } = await at.connection.callTool('issues', {}, soon())
    expect(content).toContain('demands rights (write)')
    expect(content).toContain('caisson mcp login tracker')
  })

  it.each([
    ['another path of the server', (port: number) => `https://api.test:${port}/admin`, undefined],
    ['plain http', (port: number) => `http://api.test:${port}/mcp`, undefined],
    [
      'a server that the run was not given',
      (port: number) => `https://api.test:${port}/mcp`,
      'Bearer {{MCP_TOKEN_00112233445566AA}}',
    ],
  ])('does not go to %s, and nothing is sent [A.09] [G.04]', async (_what, address, other) => {
    await using at = await setUp()
    await at.signIns.signIn(at.world.server(), at.world.person(), soon())
    const authorization = other ?? at.authorization
    const asking = at.fetchOver(address(at.port), { headers: { authorization } })
    await expect(asking).rejects.toThrow(/did not let it through/)
    expect(at.seen).toEqual([])
  })
})
