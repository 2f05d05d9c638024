// MCP servers as real child processes and over HTTP: good ones, somebody else's, and bad ones.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { createLLMEnvironment } from '../../environment/environment.ts'
import { resolveTools } from '../../environment/tool-set.ts'
import { executeTool } from '../../generate/execute-tool.ts'
import { McpRegistry } from '../../mcp/registry.ts'
import { isAlive } from '../support/processes.ts'

const script = path.join(import.meta.dirname, '../../../test/support/mcp-server.ts')
const everything = path.join(
  import.meta.dirname,
  '../../../node_modules/@modelcontextprotocol/server-everything/dist/index.js',
)
const small = (...ways: string[]) => ({ command: process.execPath, args: [script, ...ways] })
const soon = () => AbortSignal.timeout(15_000)

describe('a server over standard input and output', () => {
  it('gives its tools with their nested schemas, and what it says of a call [S2.12]', async () => {
    await using registry = new McpRegistry({ mcpServers: { 'my-docs': small() } })
    await using environment = createLLMEnvironment({ mcpRegistry: registry })
    const set = await resolveTools(environment, { toolPermission: 'auto' })
    const served = set.definitions.map(({ name }) => name).filter((name) => name.startsWith('my_docs'))
    expect(served).toEqual([
      'my_docs_ask',
      'my_docs_change',
      'my_docs_die',
      'my_docs_fail',
      'my_docs_huge',
      'my_docs_pid',
      'my_docs_search_all',
      'my_docs_slow',
    ])
    expect(set.find('my_docs_search_all')?.definition).toEqual({
      name: 'my_docs_search_all',
      description: 'Searches',
      parameters: {
        type: 'object',
        properties: {
          filter: {
            type: 'object',
            properties: {
              tags: { type: 'array', items: { type: 'object', properties: { deep: { type: 'string' } } } },
            },
            required: ['tags'],
          },
        },
        additionalProperties: false,
      },
    })
    const call = (name: string, args: string) =>
      executeTool(environment, { id: 'c', type: 'function', function: { name, arguments: args } })
    expect(await call('my_docs_search_all', '{"filter":{"tags":[{"deep":"x"}]}}')).toMatchObject({
      ok: true,
      content: '{"filter":{"tags":[{"deep":"x"}]}}',
    })
    expect(await call('my_docs_fail', '')).toMatchObject({ ok: false, content: 'it did not work' })
    expect((await call('my_docs_huge', '{}')).content.length).toBeLessThan(300_000)
  })

  it('is asked for its tools once, and again when it says that they changed [S2.12]', async () => {
    await using registry = new McpRegistry({ servers: { s: small() } })
    expect((await registry.listTools()).map(({ name }) => name)).not.toContain('added')
    expect(await registry.callTool('s', 'change', {}, soon())).toEqual({
      ok: true,
      content: '{"changed":true}',
    })
    await expect.poll(async () => (await registry.listTools()).map(({ name }) => name)).toContain('added')
  })

  it('that is not enabled, or dead, costs its own tools alone [S2.12]', async () => {
    await using registry = new McpRegistry({
      servers: {
        off: { ...small(), enabled: false },
        gone: { command: '/nowhere/at-all' },
        crash: { command: process.execPath, args: ['-e', 'console.error("no token"); process.exit(1)'] },
        good: small(),
      },
    })
    expect(new Set((await registry.listTools()).map(({ server }) => server))).toEqual(new Set(['good']))
    const [crash, gone, good] = registry.listServers()
    expect(crash).toMatchObject({ name: 'crash', state: 'failed' })
    expect(crash?.problem).toContain('no token')
    expect(gone?.problem).toContain('ENOENT')
    expect(good).toMatchObject({ state: 'connected', problem: null })
  })

  it('that dies in a call fails that call at once, and is started anew for the next [S2.12]', async () => {
    await using registry = new McpRegistry({ servers: { s: small() } })
    const first = await registry.callTool('s', 'pid', {}, soon())
    const died = await registry.callTool('s', 'die', {}, soon())
    expect(died.ok).toBe(false)
    expect(died.content).toContain('the MCP server s did not carry out die')
    expect(registry.listServers()[0]?.problem).toContain('I die now')
    const second = await registry.callTool('s', 'pid', {}, soon())
    expect(second.ok).toBe(true)
    expect(second.content).not.toBe(first.content)
  })

  it('that never answers is given up at its deadline or when the call is cancelled [S2.12]', async () => {
    await using registry = new McpRegistry({ servers: { s: { ...small(), timeoutMs: 2_000 } } })
    expect(await registry.callTool('s', 'slow', {}, soon())).toMatchObject({ ok: false })
    const controller = new AbortController()
    const pending = registry.callTool('s', 'slow', {}, controller.signal)
    controller.abort()
    expect(await pending).toEqual({ ok: false, content: 'the call of slow was cancelled' })
    expect((await registry.callTool('s', 'pid', {}, soon())).ok).toBe(true)
  })

  it('that never gets ready holds up one call at most, and no shutdown [S2.12]', async () => {
    await using registry = new McpRegistry({ servers: { s: { ...small('dumb'), connectTimeoutMs: 300 } } })
    expect(await registry.listTools()).toEqual([])
    const started = performance.now()
    for (let turn = 0; turn < 20; turn++) expect(await registry.listTools()).toEqual([])
    expect((await registry.callTool('s', 'pid', {}, soon())).content).toContain('could not be connected')
    // Each would have waited out its deadline.
    expect(performance.now() - started).toBeLessThan(20 * 300)
    const slow = new McpRegistry({ servers: { s: { ...small('dumb'), connectTimeoutMs: 600_000 } } })
    await using environment = createLLMEnvironment({ mcpRegistry: slow })
    const controller = new AbortController()
    const call = { id: 'c', type: 'function', function: { name: 's_pid', arguments: '{}' } } as const
    const running = executeTool(environment, call, { abortSignal: controller.signal })
    controller.abort()
    expect((await running).content).toBe('Error: the call of s_pid was cancelled')
    const listing = slow.listTools()
    await slow.shutdown()
    expect(await listing).toEqual([])
  })

  it('that writes noise beside its messages is understood [S2.12]', async () => {
    await using registry = new McpRegistry({ servers: { s: small('noise') } })
    expect((await registry.callTool('s', 'pid', {}, soon())).ok).toBe(true)
  })

  it('that floods us is ended with a bounded memory [S2.12]', async () => {
    await using registry = new McpRegistry({ servers: { s: small('flood') } })
    expect(await registry.listTools()).toEqual([])
    expect(registry.listServers()[0]?.state).toBe('failed')
  })

  it('that asks without an end and reads no answer is ended, and no call waits for its deadline [S2.12]', async () => {
    const warned: Error[] = []
    // Files of one process share its warnings: a file that another one left open is not of this test.
    const listen = (warning: Error) => {
      if (!warning.message.includes('garbage collection')) warned.push(warning)
    }
    process.on('warning', listen)
    await using registry = new McpRegistry({ servers: { s: { ...small('deaf'), timeoutMs: 600_000 } } })
    const answer = await registry.callTool('s', 'pid', {}, AbortSignal.timeout(60_000))
    process.off('warning', listen)
    expect(answer.content).not.toContain('cancelled')
    expect(registry.listServers()[0]?.state).toBe('failed')
    expect(warned).toEqual([])
  })

  it('that writes its variables to its log gives no secret away [S2.12]', async () => {
    const code = 'console.error("no luck with " + process.env.TOKEN); process.exit(1)'
    await using registry = new McpRegistry({
      servers: { s: { command: process.execPath, args: ['-e', code], env: { TOKEN: 'tok-0123456789' } } },
    })
    await registry.listTools()
    expect(registry.listServers()[0]?.problem).toContain('no luck with [secret]')
  })

  it('with a list of tools that never ends gives a bounded one [S2.12]', async () => {
    await using registry = new McpRegistry({ servers: { s: small('pages') } })
    expect((await registry.listTools()).length).toBe(50)
  })

  it('gets our path and nothing secret of ours [S2.12]', async () => {
    process.env.CAISSON_TEST_SECRET = 'x'
    // The names, and one value: a problem is shortened, and a PATH can be long.
    const code =
      'console.error(Object.keys(process.env).join(), process.env.OWN, process.env.PATH.length); process.exit(1)'
    await using registry = new McpRegistry({
      servers: { s: { command: process.execPath, args: ['-e', code], env: { OWN: 'mine' } } },
    })
    await registry.listTools()
    delete process.env.CAISSON_TEST_SECRET
    const problem = registry.listServers()[0]?.problem ?? ''
    expect(problem).toContain(`mine ${process.env.PATH?.length}`)
    expect(problem).not.toContain('CAISSON_TEST_SECRET')
  })

  it('ends with all that it started, however it resists [S2.05] [S2.12]', async () => {
    const registry = new McpRegistry({ servers: { s: small('child', 'stubborn') } })
    const pid = Number((await registry.callTool('s', 'pid', {}, soon())).content)
    const group = () => {
      try {
        process.kill(-pid, 0)
        return true
      } catch {
        return false
      }
    }
    expect(group()).toBe(true)
    const pending = registry.callTool('s', 'slow', {}, soon())
    await registry.shutdown()
    await registry.shutdown()
    expect((await pending).ok).toBe(false)
    await expect.poll(group).toBe(false)
    expect(await registry.callTool('s', 'pid', {}, soon())).toMatchObject({ ok: false })
    expect(await registry.listTools()).toEqual([])
    expect(isAlive(pid)).toBe(false)
  })
})

/** The reference server that speaks HTTP, on a free port. */
async function startEverything(transport: string): Promise<{ origin: string } & AsyncDisposable> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as AddressInfo
  await new Promise((resolve) => probe.close(resolve))
  const child: ChildProcess = spawn(process.execPath, [everything, transport], {
    env: { PATH: process.env.PATH, PORT: String(port) },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const said = new Promise<void>((resolve) => {
    child.stdout?.on('data', (text: Buffer) => text.includes('port') && resolve())
    child.stderr?.on('data', (text: Buffer) => text.includes('port') && resolve())
  })
  await said
  return {
    origin: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, 'exit')
      child.kill('SIGKILL')
      await ended
    },
  }
}

describe("somebody else's server", () => {
  const check = async (registry: McpRegistry) => {
    const names = (await registry.listTools()).map(({ name }) => name)
    expect(registry.listServers()).toMatchObject([{ state: 'connected' }])
    expect(names).toContain('echo')
    expect(await registry.callTool('s', 'echo', { message: 'été' }, soon())).toEqual({
      ok: true,
      content: 'Echo: été',
    })
    expect(await registry.callTool('s', 'get-sum', { a: 2, b: 3 }, soon())).toMatchObject({ ok: true })
    expect((await registry.callTool('s', 'get-tiny-image', {}, soon())).content).toMatch(
      /\[image image\/png: \d+ bytes\]/,
    )
    expect((await registry.callTool('s', 'get-sum', { a: 'x' }, soon())).ok).toBe(false)
    expect((await registry.callTool('s', 'nobody', {}, soon())).ok).toBe(false)
  }

  it('is spoken to over standard input and output [S2.12]', async () => {
    await using registry = new McpRegistry({
      servers: { s: { command: process.execPath, args: [everything] } },
    })
    await check(registry)
  })

  it('is spoken to over streamable HTTP [S2.12]', async () => {
    await using server = await startEverything('streamableHttp')
    await using registry = new McpRegistry({
      mcpServers: { s: { type: 'http', url: `${server.origin}/mcp` } },
    })
    await check(registry)
  })

  it('is spoken to over server-sent events [S2.12]', async () => {
    await using server = await startEverything('sse')
    await using registry = new McpRegistry({
      mcpServers: { s: { type: 'sse', url: `${server.origin}/sse` } },
    })
    await check(registry)
  })

  it('that is none, but a web page, is a problem in words [S2.12]', async () => {
    const page = createServer((_request, response) => response.end('<html>hello</html>')).listen(
      0,
      '127.0.0.1',
    )
    await once(page, 'listening')
    const { port } = page.address() as AddressInfo
    await using registry = new McpRegistry({ servers: { s: { url: `http://127.0.0.1:${port}/mcp` } } })
    expect(await registry.listTools()).toEqual([])
    expect(registry.listServers()[0]).toMatchObject({ state: 'failed' })
    page.closeAllConnections()
    page.close()
  })
})
