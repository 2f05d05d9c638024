// One connection to a server: what else it has beside tools, what it may ask, and how its end is noticed over HTTP too.
import { getEventListeners, once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { McpServerConfig } from '../../mcp/config.ts'
import { McpConnection, type McpConnectionOptions } from '../../mcp/connection.ts'
import { McpRegistry } from '../../mcp/registry.ts'

const root = path.join(import.meta.dirname, '../../..')
const script = path.join(import.meta.dirname, '../../../test/support/mcp-server.ts')
const everything = path.join(root, 'node_modules/@modelcontextprotocol/server-everything/dist/index.js')
const soon = () => AbortSignal.timeout(15_000)

type Open = McpConnection & AsyncDisposable

function connect(config: Partial<McpServerConfig>, options?: McpConnectionOptions): Open {
  const connection = new McpConnection('s', { transport: 'stdio', ...config }, options)
  return Object.assign(connection, { [Symbol.asyncDispose]: () => connection.close() })
}

const small = (
  ways: readonly string[],
  more: Partial<McpServerConfig> = {},
  options?: McpConnectionOptions,
) => connect({ command: process.execPath, args: [script, ...ways], ...more }, options)

describe('what a server has beside tools', () => {
  it('is listed and read: resources, templates, and prompts with their arguments [S2.12] [A.09]', async () => {
    await using server = connect({ command: process.execPath, args: [everything] })
    expect(await server.readAbilities()).toEqual({ ok: true, value: { resources: true, prompts: true } })
    const resources = await server.listResources()
    const first = resources.ok ? resources.value.find(({ isTemplate }) => !isTemplate) : undefined
    expect(
      resources.ok && resources.value.some(({ isTemplate, uri }) => isTemplate && uri.includes('{')),
    ).toBe(true)
    const read = await server.readResource(first?.uri ?? '', soon())
    expect(read.ok).toBe(true)
    expect(read.content.length).toBeGreaterThan(10)
    const prompts = await server.listPrompts()
    expect(prompts).toMatchObject({ ok: true })
    const args = { name: 'args-prompt', arguments: [{ name: 'city', required: true }] }
    expect(prompts.ok && prompts.value).toContainEqual(
      expect.objectContaining({ name: args.name, arguments: expect.arrayContaining(args.arguments) }),
    )
    const prompt = await server.getPrompt('args-prompt', { city: 'Bern' }, soon())
    expect(prompt.content).toMatch(/^user: .*Bern/)
    expect((await server.readResource('demo://nowhere', soon())).ok).toBe(false)
  })

  it('is nothing where the server has only tools [A.09]', async () => {
    await using server = small([])
    expect(await server.readAbilities()).toEqual({ ok: true, value: { resources: false, prompts: false } })
  })
})

describe('what a tool takes', () => {
  it('is any object where its schema nests deeper than requests may [S2.12]', async () => {
    await using server = small(['deep'])
    const listed = await server.listTools()
    expect(listed.ok && listed.value).toMatchObject([{ name: 'deep', inputSchema: { properties: {} } }])
  })
})

describe('what a server asks in its turn', () => {
  it('is answered where it is about roots, and refused in words where it is about people or models [A.09]', async () => {
    const roots = [{ uri: 'file:///mnt/workspace', name: 'workspace' }]
    await using server = small([], {}, { roots })
    const ask = async (method: string) => (await server.callTool('ask', { method }, soon())).content
    expect(JSON.parse(await ask('roots/list'))).toEqual({ roots })
    // Nobody was said to be there.
    for (const method of ['sampling/createMessage', 'elicitation/create'])
      expect(JSON.parse(await ask(method))).toMatchObject({
        code: -32_601,
        message: expect.stringContaining(`this client does not do ${method}`),
      })
  })
})

describe('a call that is admitted only by what the tool is now', () => {
  it('is not made where it is refused, and learns the definition of the server that it would go to [A.09]', async () => {
    await using server = small([])
    const seen: unknown[] = []
    const refused = await server.callTool('pid', {}, soon(), async (tool) => {
      seen.push(tool?.name)
      return { ok: false, content: 'not this one' }
    })
    expect(refused).toEqual({ ok: false, content: 'not this one' })
    expect((await server.callTool('pid', {}, soon(), async () => null)).ok).toBe(true)
    await server.callTool('nobody', {}, soon(), async (tool) => {
      seen.push(tool)
      return { ok: false, content: '' }
    })
    expect(seen).toEqual(['pid', undefined])
  })
})

describe('the signal of a run', () => {
  it('is not held on to by calls that have ended [S2.12]', async () => {
    await using server = small([])
    const controller = new AbortController()
    for (let call = 0; call < 20; call++) await server.callTool('pid', {}, controller.signal)
    expect(getEventListeners(controller.signal, 'abort')).toEqual([])
    const pending = server.callTool('slow', {}, controller.signal)
    controller.abort()
    expect(await pending).toEqual({ ok: false, content: 'the call of slow was cancelled' })
  })
})

describe('a call that is cancelled', () => {
  it('ends at once, also where its server is still getting ready [S2.12]', async () => {
    await using server = small(['dumb'], { connectTimeoutMs: 600_000 })
    const controller = new AbortController()
    const pending = server.callTool('pid', {}, controller.signal)
    controller.abort()
    expect(await pending).toEqual({ ok: false, content: 'the call of pid was cancelled' })
  })
})

describe('a server that goes wrong', () => {
  it('as it starts is failed with its own reason, not with the frames below that [S2.12]', async () => {
    const fail = 'function f(n) { if (n === 0) throw new Error("no notes here"); f(n - 1) }; f(9)'
    await using server = connect({ command: process.execPath, args: ['-e', fail] })
    const listed = await server.listTools()
    const error = listed.ok ? '' : listed.error
    expect(error).toContain('it wrote:')
    expect(error).toContain('Error: no notes here')
    expect(error).not.toContain('at f (')
  })

  it('by answering under other ids is reported, when its time is over [S2.12]', async () => {
    await using server = small(['wrong'], { timeoutMs: 2_000 })
    const { content } = await server.callTool('pid', {}, soon())
    expect(content).toContain('timed out')
    expect(content).toContain('it said what was not expected')
    expect(content).toContain('unknown message ID')
  })

  it('by writing HTML is given up with its words [S2.12]', async () => {
    await using server = small(['html'], { connectTimeoutMs: 300 })
    const { content } = await server.callTool('pid', {}, soon())
    expect(content).toContain('was not ready after 300 ms')
  })

  it('by dying while what it started holds its output open fails the call at once [S2.12]', async () => {
    await using server = small(['orphan'], { timeoutMs: 600_000 })
    const { ok, content } = await server.callTool('die', {}, AbortSignal.timeout(30_000))
    expect(ok).toBe(false)
    expect(content).not.toContain('cancelled')
    expect(server.state).toBe('failed')
  })
})

/** A server over HTTP whose calls never end, and which can be killed and started again at its port. */
async function startHttp(listener: RequestListener) {
  const listen = async (port: number): Promise<Server> => {
    const server = createServer(listener).listen(port, '127.0.0.1')
    await once(server, 'listening')
    return server
  }
  let server = await listen(0)
  const { port } = server.address() as AddressInfo
  const kill = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    kill,
    restart: async () => {
      server = await listen(port)
    },
    [Symbol.asyncDispose]: kill,
  }
}

const initialized = (protocolVersion: string) => ({
  protocolVersion,
  capabilities: { tools: {} },
  serverInfo: { name: 's', version: '1' },
})

/** Streamable HTTP: `slow` begins a stream and says nothing more; a session of before a restart is unknown. */
function streamable(onSlow: () => void) {
  let session = 1
  const listener: RequestListener = (request, response) => {
    if (request.method !== 'POST') return void response.writeHead(405).end()
    request.on('data', (body: Buffer) => {
      const { id, method, params } = JSON.parse(String(body))
      if (method !== 'initialize' && request.headers['mcp-session-id'] !== String(session))
        return void response.writeHead(404).end('no such session')
      if (id === undefined) return void response.writeHead(202).end()
      if (params?.name === 'slow') {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': wait\n\n')
        return onSlow()
      }
      const result = method === 'initialize' ? initialized(params.protocolVersion) : { content: [] }
      response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': String(session) })
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result }))
    })
  }
  return { listener, forget: () => void session++ }
}

/** Server-sent events of the old kind: answers come on the one stream. */
function sse(onSlow: () => void): RequestListener {
  let stream: { write(text: string): void } | undefined
  return (request, response) => {
    if (request.method === 'GET') {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write('event: endpoint\ndata: /messages\n\n')
      stream = response
      return
    }
    request.on('data', (body: Buffer) => {
      const { id, method, params } = JSON.parse(String(body))
      response.writeHead(202).end()
      if (id === undefined) return
      if (params?.name === 'slow') return onSlow()
      const result = method === 'initialize' ? initialized(params.protocolVersion) : { content: [] }
      stream?.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`)
    })
  }
}

describe('a server over HTTP', () => {
  it.each(['streamable-http', 'sse'] as const)(
    'that dies in a call over %s fails the call long before its deadline [S2.12]',
    async (transport) => {
      const called = Promise.withResolvers<void>()
      const listener = transport === 'sse' ? sse(called.resolve) : streamable(called.resolve).listener
      await using server = await startHttp(listener)
      await using connection = connect({ transport, url: server.url, timeoutMs: 600_000 })
      const call = connection.callTool('slow', {}, AbortSignal.timeout(60_000))
      await called.promise
      await server.kill()
      const { ok, content } = await call
      expect(ok).toBe(false)
      expect(content).not.toContain('cancelled')
    },
    90_000,
  )

  it('that was started anew, and knows nothing of the session, is connected anew [S2.12]', async () => {
    const { listener, forget } = streamable(() => undefined)
    await using server = await startHttp(listener)
    await using connection = connect({ transport: 'streamable-http', url: server.url })
    expect((await connection.callTool('any', {}, soon())).ok).toBe(true)
    forget()
    expect((await connection.callTool('any', {}, soon())).content).toContain('no such session')
    expect((await connection.callTool('any', {}, soon())).ok).toBe(true)
    await server.kill()
    expect((await connection.callTool('any', {}, soon())).ok).toBe(false)
    await server.restart()
    const again = async () => (await connection.callTool('any', {}, soon())).ok
    await expect.poll(again, { timeout: 20_000, interval: 500 }).toBe(true)
  })
})

describe("somebody else's servers", () => {
  const reference = (name: string) =>
    path.join(root, `node_modules/@modelcontextprotocol/${name}/dist/index.js`)

  it('for files and for memory do their work [S2.12] [A.09]', async () => {
    const folder = path.join(root, 'examples')
    await using registry = new McpRegistry({
      mcpServers: {
        files: { command: process.execPath, args: [reference('server-filesystem'), folder] },
        memory: {
          command: process.execPath,
          args: [reference('server-memory')],
          env: {
            MEMORY_FILE_PATH: path.join(process.env.TMPDIR ?? '/tmp', `caisson-mcp-${process.pid}.jsonl`),
          },
        },
      },
    })
    const names = (await registry.listTools()).map(({ server, name }) => `${server} ${name}`)
    expect(names).toEqual(
      expect.arrayContaining(['files list_directory', 'files read_text_file', 'memory create_entities']),
    )
    const listed = await registry.callTool('files', 'list_directory', { path: folder }, soon())
    expect(listed).toMatchObject({ ok: true, content: expect.stringContaining('[DIR]') })
    const outside = await registry.callTool('files', 'read_text_file', { path: '/etc/passwd' }, soon())
    expect(outside).toMatchObject({ ok: false, content: expect.stringContaining('Access denied') })
    const entities = [{ name: 'Caisson', entityType: 'program', observations: ['sealed'] }]
    expect((await registry.callTool('memory', 'create_entities', { entities }, soon())).ok).toBe(true)
    const found = await registry.callTool('memory', 'search_nodes', { query: 'sealed' }, soon())
    expect(found.content).toContain('Caisson')
  })
})
