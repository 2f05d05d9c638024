// Both revisions of the protocol: the client speaks the newest one that a server has, over each transport.
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { McpConnection } from '../../mcp/connection.ts'
import type { AskPerson } from '../../mcp/elicitation.ts'
import { serveBoth } from './support/both-revisions.ts'

const source = '--conditions=caisson-source'
const both = path.join(import.meta.dirname, 'support/both-revisions.ts')
const small = path.join(import.meta.dirname, '../../../test/support/mcp-server.ts')
const soon = () => AbortSignal.timeout(20_000)
const ada: AskPerson = () => Promise.resolve('Ada')

function open(config: ConstructorParameters<typeof McpConnection>[1]) {
  const connection = new McpConnection('s', config, { hasPerson: true })
  return { connection, [Symbol.asyncDispose]: () => connection.close() }
}

const program = (file: string, ...args: string[]) =>
  ({ transport: 'stdio', command: process.execPath, args: [source, file, ...args] }) as const

describe('a server of both revisions', () => {
  it('is spoken to in 2026-07-28 over HTTP, and asks the person within a call [A.09] [S2.12]', async () => {
    await using server = await serveBoth()
    await using world = open({ transport: 'streamable-http', url: server.url })
    const { connection } = world
    const listed = await connection.listTools()
    expect(listed.ok && listed.value.map(({ name }) => name)).toEqual(['greet', 'grow'])
    const greeted = await connection.callTool('greet', {}, soon(), undefined, ada)
    expect(greeted).toMatchObject({ ok: true, content: expect.stringContaining('Ada') })
    expect([...server.revisions]).toEqual(['2026-07-28'])
  })

  it('is spoken to in 2026-07-28 over standard input and output, and its changes are heard [A.09] [S2.12]', async () => {
    await using world = open(program(both))
    const { connection } = world
    expect((await connection.listTools()).ok).toBe(true)
    const greeted = await connection.callTool('greet', {}, soon(), undefined, ada)
    expect(greeted).toMatchObject({ ok: true, content: expect.stringContaining('Ada') })
    expect(await connection.callTool('grow', {}, soon())).toEqual({ ok: true, content: 'grown' })
    await expect
      .poll(async () => {
        const listed = await connection.listTools()
        return listed.ok && listed.value.map(({ name }) => name)
      })
      .toEqual(['greet', 'grow', 'more'])
  })
})

describe('a server of 2025-11-25', () => {
  it('that ends when it is asked for its revision is started again, and spoken to as before [A.09] [S2.12]', async () => {
    await using world = open(program(small, 'abrupt'))
    const { connection } = world
    expect(await connection.callTool('search.all', { a: 1 }, soon())).toEqual({
      ok: true,
      content: '{"a":1}',
    })
    await connection.callTool('die', {}, soon())
    // The second start need not ask.
    const began = performance.now()
    expect((await connection.callTool('search.all', {}, soon())).ok).toBe(true)
    expect(performance.now() - began).toBeLessThan(10_000)
  })

  it('that leaves the question unanswered gets ready within its time [A.09] [S2.12]', async () => {
    const silent = `
      const { createInterface } = require('node:readline')
      const send = (id, result) => console.log(JSON.stringify({ jsonrpc: '2.0', id, result }))
      createInterface({ input: process.stdin }).on('line', (line) => {
        const { id, method, params } = JSON.parse(line)
        const serverInfo = { name: 'silent', version: '1' }
        if (method === 'initialize')
          send(id, { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo })
        if (method === 'tools/call') send(id, { content: [{ type: 'text', text: 'here' }] })
      })`
    const config = { transport: 'stdio', command: process.execPath, args: ['-e', silent] } as const
    await using world = open({ ...config, connectTimeoutMs: 6_000 })
    expect(await world.connection.callTool('any', {}, soon())).toEqual({ ok: true, content: 'here' })
  })
})
