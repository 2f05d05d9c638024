// Sessions of MCP clients of revision 2025-11-25 over HTTP: whose token their calls go with, and how many there are.
import { McpServer } from '@modelcontextprotocol/server'
import { expect, it, onTestFinished } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { McpSessions } from '../../host/mcp-server/sessions.ts'
import { makeKey, serveJwt } from './jwt-support.ts'
import { startMcp } from './mcp-support.ts'

/** Sends a message as a client of the revision does. */
async function post(url: string, token: string, message: object, sessionId?: string) {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      ...{ authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...{ accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' },
      ...(sessionId === undefined ? {} : { 'mcp-session-id': sessionId }),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...message }),
  })
  const text = await response.text()
  return { status: response.status, text, id: response.headers.get('mcp-session-id') ?? '' }
}

const initialize = {
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } },
}

it('its calls go with the token of the request: a renewed JWT works on, and one for less may do less [H.03 H.02]', async () => {
  let now = Date.now()
  const key = await makeKey('ES256', 'k1', () => now)
  const { service } = await serveJwt([key], { now: () => now })
  const { url } = await startMcp(service.url)
  const { id } = await post(url, await key.sign(), initialize)
  const call = async (token: string) =>
    await post(url, token, { method: 'tools/call', params: { name: 'list_runs', arguments: {} } }, id)
  now += 700_000
  expect((await call(await key.sign())).text).toContain('"structuredContent":{"runs":[]}')
  expect((await call(await key.sign({ scope: 'run' }))).text).toContain('lacks the scope read')
  expect((await call(await key.sign({ sub: 'eve' }))).status).toBe(404)
})

it('one caller that begins very many at once has 16 of them, and others still begin theirs [H.03]', async () => {
  let open = 0
  const sessions = new McpSessions({
    bodyMaxBytes: 10_000,
    create: () => {
      const server = new McpServer({ name: 'test', version: '1' }, { capabilities: { tools: {} } })
      open++
      server.server.onclose = () => void open--
      return server
    },
  })
  onTestFinished(() => sessions.close())
  const callerOf = (id: string) => ({
    ...{ id, seesMarkedRunsAlone: false, service: new ServiceClient({ baseUrl: 'http://localhost' }) },
  })
  const respond = (message: object, id: string) =>
    sessions.respond(
      new Request('http://localhost/mcp', {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...message }),
      }),
      callerOf(id),
    )
  const begun = await Promise.all(Array.from({ length: 200 }, () => respond(initialize, 'mine')))
  expect(begun.filter(({ status }) => status === 503)).toHaveLength(184)
  expect(open).toBe(16)
  expect((await respond(initialize, 'mine')).status).toBe(200)
  expect(open).toBe(16)
  expect((await respond(initialize, 'other')).status).toBe(200)
  // What begins none leaves no place taken.
  for (let at = 0; at < 130; at++) await respond({ method: 'tools/list' }, 'third')
  expect((await respond(initialize, 'third')).status).toBe(200)
})
