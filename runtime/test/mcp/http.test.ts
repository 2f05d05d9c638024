// MCP servers over HTTP that say too much, or what is not theirs to say.
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { answerMaxBytes } from '../../mcp/http.ts'
import { McpRegistry } from '../../mcp/registry.ts'

const soon = () => AbortSignal.timeout(30_000)

async function serve(listener: RequestListener): Promise<{ url: string } & AsyncDisposable> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Writes `piece` until nobody listens any more; how much that was. */
function flood(
  type: string,
  begin: string,
  piece: string,
): { readonly bytes: () => number; readonly listener: RequestListener } {
  let bytes = 0
  return {
    bytes: () => bytes,
    listener: (_, response) => {
      response.writeHead(200, { 'content-type': type })
      response.write(begin)
      const more = (): void => {
        bytes += piece.length
        if (!response.destroyed && bytes < 20 * answerMaxBytes) response.write(piece, more)
      }
      more()
    },
  }
}

describe('a server over HTTP', () => {
  it.each([
    ['one answer', 'streamable-http', 'application/json', '"', 'x'.repeat(1024 * 1024)],
    ['one event in a line', 'streamable-http', 'text/event-stream', 'data: ', 'x'.repeat(1024 * 1024)],
    ['one event of many lines', 'sse', 'text/event-stream', '', 'data: xxxxxxx\r\n'.repeat(70_000)],
  ])(
    'that floods us with %s is heard no more, long before its deadline [S2.12]',
    async (_, transport, ...how) => {
      const endless = flood(...(how as [string, string, string]))
      await using server = await serve(endless.listener)
      await using registry = new McpRegistry({
        servers: { s: { url: server.url, transport, connectTimeoutMs: 600_000 } },
      })
      expect(await registry.callTool('s', 'any', {}, soon())).toMatchObject({ ok: false })
      // What was under way in sockets is beside the bound.
      expect(endless.bytes()).toBeLessThan(3 * answerMaxBytes)
      expect(registry.listServers()[0]?.state).toBe('failed')
    },
  )

  it('that never says where to write to is given up at the deadline for getting ready [S2.12]', async () => {
    await using server = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': wait\n\n')
    })
    await using registry = new McpRegistry({
      servers: { s: { url: server.url, transport: 'sse', connectTimeoutMs: 200 } },
    })
    expect(await registry.listTools()).toEqual([])
    expect(registry.listServers()[0]?.problem).toContain('was not ready after 200 ms')
  })

  it('may say as much as it likes in events of a fair size [S2.12]', async () => {
    let sent = 0
    await using server = await serve((request, response) => {
      if (request.method !== 'POST') return void response.writeHead(405).end()
      request.on('data', (body: Buffer) => {
        const { id, method, params } = JSON.parse(String(body))
        if (id === undefined) return void response.writeHead(202).end()
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        const notice = {
          jsonrpc: '2.0',
          method: 'notifications/message',
          params: { data: 'x'.repeat(1_000_000) },
        }
        for (let turn = 0; method === 'tools/call' && turn < 20; turn++) {
          sent += 1_000_000
          response.write(`data: ${JSON.stringify(notice)}\r\n\r\n`)
        }
        const result =
          method === 'initialize'
            ? {
                protocolVersion: params.protocolVersion,
                capabilities: {},
                serverInfo: { name: 's', version: '1' },
              }
            : { content: [{ type: 'text', text: 'done' }] }
        response.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\r\n\r\n`)
      })
    })
    await using registry = new McpRegistry({ servers: { s: { url: server.url } } })
    expect(await registry.callTool('s', 'any', {}, soon())).toEqual({ ok: true, content: 'done' })
    expect(sent).toBeGreaterThan(answerMaxBytes)
  })

  it('that echoes what it was sent gives no key away [S2.12]', async () => {
    await using server = await serve((request, response) => {
      const { 'x-key': key, authorization } = request.headers
      response.writeHead(500).end(`bad key ${key} in ${authorization} at ${request.url}`)
    })
    const headers = { 'x-key': 'sk-very-secret', authorization: 'Bearer tok-0123456789' }
    await using registry = new McpRegistry({
      servers: { s: { url: `${server.url}?key=query%20secret`, headers } },
    })
    const { content } = await registry.callTool('s', 'any', {}, soon())
    expect(content).toContain('bad key [secret] in')
    for (const told of [content, registry.listServers()[0]?.problem])
      expect(told).not.toMatch(/very-secret|0123456789|query/)
  })
})
