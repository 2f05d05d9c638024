// MCP servers at an address, the whole way but the VM: the agent's client, the link, the host's egress with
// its secrets, and TLS to a reference server.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer } from 'node:https'
import { createServer as createTcpServer } from 'node:net'
import path from 'node:path'
import { createSecureContext } from 'node:tls'
import { describe, expect, it } from 'vitest'
import type { McpServerConfig } from '#runtime/mcp/config.ts'
import { McpConnection } from '#runtime/mcp/connection.ts'
import { openHttpTransport } from '#runtime/mcp/http.ts'
import { createEgressFetch } from '../../agent/mcp/egress-fetch.ts'
import { SecretChanges, Secrets } from '../../host/secrets/secrets.ts'
import { makeAuthority } from '../../host/test/support/authority.ts'
import { listen, openEgress } from '../egress/support.ts'

const everything = path.join(
  import.meta.dirname,
  '../../node_modules/@modelcontextprotocol/server-everything/dist/index.js',
)
const value = 'hunter2-very-secret'
const soon = () => AbortSignal.timeout(20_000)

/** The reference server on a port of its own. */
async function startEverything(transport: string): Promise<{ port: number } & AsyncDisposable> {
  const probe = createTcpServer()
  const port = await listen(probe)
  await new Promise((resolve) => probe.close(resolve))
  const child: ChildProcess = spawn(process.execPath, [everything, transport], {
    env: { PATH: process.env.PATH, PORT: String(port) },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  await new Promise<void>((resolve) => {
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (text: Buffer) => text.includes('port') && resolve())
  })
  return {
    port,
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, 'exit')
      child.kill('SIGKILL')
      await ended
    },
  }
}

/** Passes requests on to the reference server. */
function passOn(port: number): RequestListener {
  return (request, response) => {
    const { method, url, headers } = request
    const onward = httpRequest(
      { host: '127.0.0.1', port, method, path: url, headers, agent: false },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(response)
      },
    )
    onward.on('error', () => response.destroy())
    response.once('close', () => onward.destroy())
    request.pipe(onward)
  }
}

/** A TLS server for `api.test`, a way to it by the host, a secret that is bound to it, and connections of the agent. */
async function setUp(listener: RequestListener) {
  const authority = await makeAuthority('DNS:api.test')
  const seen: IncomingMessage[] = []
  const server = createServer({ cert: authority.cert, key: authority.key }, (request, response) => {
    seen.push(request)
    listener(request, response)
  })
  const port = await listen(server)
  const changes = new SecretChanges()
  changes.set('API_KEY', { hosts: ['api.test'], value })
  changes.set('OTHER_KEY', { hosts: ['other.test'], value: 'another-secret' })
  const secrets = new Secrets({}, async () => ({ ok: false, error: 'no source' }), changes)
  const context = createSecureContext({ ca: authority.ca })
  const way = await openEgress({
    rules: [{ effect: 'allow', host: 'api.test', ports: [port], schemes: ['https', 'http'] }],
    upgrade: { secrets, secureContext: () => context },
  })
  const egressFetch = createEgressFetch(way.guest.http)
  const connections: McpConnection[] = []
  return {
    way,
    seen,
    connect(config: Omit<McpServerConfig, 'transport'> & Partial<McpServerConfig>): McpConnection {
      const url = config.url?.replace('PORT', String(port)) ?? ''
      const connection = new McpConnection(
        's',
        { transport: 'streamable-http', ...config, url },
        { openTransport: (server) => openHttpTransport(server, egressFetch) },
      )
      connections.push(connection)
      return connection
    },
    async [Symbol.asyncDispose]() {
      for (const connection of connections) await connection.close()
      server.closeAllConnections()
      server.close()
      await way[Symbol.asyncDispose]()
    },
  }
}

const headers = { Authorization: 'Bearer {{API_KEY}}' }

describe('an MCP server at an address', () => {
  it.each([
    ['streamableHttp', 'streamable-http', 'https://api.test:PORT/mcp'],
    ['sse', 'sse', 'https://api.test:PORT/sse'],
  ] as const)(
    'is spoken to through the host over %s, which makes the TLS and puts the secret in [A.09 G.04]',
    async (way, transport, url) => {
      await using reference = await startEverything(way)
      await using at = await setUp(passOn(reference.port))
      const server = at.connect({ transport, url, headers })
      const tools = await server.listTools()
      expect(tools.ok && tools.value.map(({ name }) => name)).toContain('echo')
      const said = await server.callTool('echo', { message: 'été' }, soon())
      expect(said).toEqual({ ok: true, content: 'Echo: été' })
      expect(at.seen.every((request) => request.headers.authorization === `Bearer ${value}`)).toBe(true)
      expect(at.seen.some((request) => 'caisson-upgrade' in request.headers)).toBe(false)
      // The stream for what the server says by itself stays open; requests are over and recorded.
      expect(await at.way.recorded(2)).toContainEqual(
        expect.objectContaining({
          secrets: ['API_KEY'],
          target: expect.stringMatching(/^POST https:\/\/api\.test/),
        }),
      )
      await server.close()
      await expect.poll(() => at.way.open()).toBe(0)
    },
    30_000,
  )

  it('that is not let out is a problem in words, with the rule, and at once [A.09 G.02 G.03]', async () => {
    await using at = await setUp((_, response) => void response.end())
    const server = at.connect({ url: 'https://other.test/mcp', connectTimeoutMs: 600_000 })
    const listed = await server.listTools()
    expect(listed).toMatchObject({ ok: false })
    expect(server.problem).toContain('the host did not let it through')
    expect(server.problem).toContain('other.test')
    expect(at.way.denied).toHaveLength(1)
    // It is left alone for a while: nobody is asked again and again.
    await server.callTool('any', {}, soon())
    expect(at.way.denied).toHaveLength(1)
  })

  it('is not sent the secret of another host [A.09 G.04]', async () => {
    await using at = await setUp((_, response) => void response.end())
    const server = at.connect({ url: 'https://api.test:PORT/mcp', headers: { 'X-Api-Key': '{{OTHER_KEY}}' } })
    expect((await server.listTools()).ok).toBe(false)
    expect(server.problem).toContain('OTHER_KEY')
    expect(at.seen).toEqual([])
  })

  it('may send on within its origin, and nowhere else [A.09 G.02]', async () => {
    await using reference = await startEverything('streamableHttp')
    const pass = passOn(reference.port)
    let host = 'api.test'
    await using at = await setUp((request, response) => {
      if (request.url !== '/here') return pass(request, response)
      const port = request.headers.host?.split(':')[1]
      response.writeHead(307, { location: `https://${host}:${port}/mcp` }).end()
    })
    expect((await at.connect({ url: 'https://api.test:PORT/here', headers }).listTools()).ok).toBe(true)
    host = 'other.test'
    const elsewhere = at.connect({ url: 'https://api.test:PORT/here', headers })
    expect((await elsewhere.listTools()).ok).toBe(false)
    expect(elsewhere.problem).toMatch(/Redirect to https:\/\/other\.test:\d+\/mcp not followed/)
  }, 30_000)

  it('whose session with the host is lost fails the call at once [A.09 C.04]', async () => {
    const called = Promise.withResolvers<void>()
    await using at = await setUp((request, response) => {
      if (request.method !== 'POST') return void response.writeHead(405).end()
      request.on('data', (body: Buffer) => {
        const { id, method, params } = JSON.parse(String(body))
        if (id === undefined) return void response.writeHead(202).end()
        if (method === 'tools/call') {
          response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': wait\n\n')
          return called.resolve()
        }
        const { protocolVersion } = params
        const result = {
          protocolVersion,
          capabilities: { tools: {} },
          serverInfo: { name: 's', version: '1' },
        }
        response.writeHead(200, { 'content-type': 'application/json' })
        response.end(JSON.stringify({ jsonrpc: '2.0', id, result }))
      })
    })
    const server = at.connect({ url: 'https://api.test:PORT/mcp', timeoutMs: 600_000 })
    const call = server.callTool('slow', {}, AbortSignal.timeout(60_000))
    await called.promise
    at.way.guest.http.disconnect('the session is over')
    const { ok, content } = await call
    expect(ok).toBe(false)
    expect(content).not.toContain('cancelled')
  }, 90_000)
})
