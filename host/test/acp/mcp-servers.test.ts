// MCP servers that an editor names: which ones runs get, and what the person reads of the others.
import { type McpServer, methods } from '@agentclientprotocol/sdk'
import { describe, expect, it } from 'vitest'
import { takeMcpServers } from '../../acp/mcp-servers.ts'
import { placeOfRuns } from '../support/changed-run.ts'
import { serveNear } from './support.ts'

const http = { type: 'http' as const, name: 'docs', url: 'https://mcp.example.com/mcp', headers: [] }
const key = { name: 'Authorization', value: 'Bearer abc-123' }

describe('MCP servers of an editor', () => {
  it('over HTTP without headers are used, each other one is refused with a reason and without its values [H.03 A.09]', () => {
    const { servers, notes } = takeMcpServers(
      [
        http,
        { name: 'local', command: '/usr/bin/server', args: ['--token', 'abc-123'], env: [] },
        { ...http, name: 'keyed', headers: [key] },
        { ...http, name: 'bad name' },
        { ...http, name: '__proto__' },
        { ...http, name: '-x' },
        { ...http, name: 'mine' },
        { ...http, name: 'file', url: 'file:///etc/passwd' },
        { ...http, name: 'user', url: 'https://user:abc-123@example.com/' },
        { ...http, type: 'sse', name: 'old' },
        { ...http, url: 'https://other.example.com/' },
      ],
      ['mine'],
    )
    expect(servers).toEqual({ docs: { type: 'http', url: 'https://mcp.example.com/mcp' } })
    expect(notes.map((note) => /"(.*?)"/.exec(note)?.[1])).toEqual([
      ...['local', 'keyed', 'bad name', '__proto__', '-x', 'mine', 'file', 'user', 'old', 'docs'],
    ])
    expect(notes.join('\n')).not.toContain('abc-123')
    const many = Array.from({ length: 40 }, (_, at) => ({ ...http, name: `s${at}` }))
    expect(Object.keys(takeMcpServers(many, []).servers)).toHaveLength(32)
  })

  it('reach the runs of their session, and the person reads which do not [H.03 A.09]', async () => {
    const { host, directory } = await placeOfRuns({})
    const started: unknown[] = []
    const said: string[] = []
    const agent = await serveNear(
      host,
      async (options) => {
        started.push(options.extensions)
        throw new Error('no run is started here')
      },
      (update) => void said.push(JSON.stringify(update)),
    )
    const local: McpServer = { name: 'local', command: '/usr/bin/server', args: [], env: [] }
    const mcpServers: McpServer[] = [http, local]
    const opened = await agent.request(methods.agent.session.new, { cwd: directory, mcpServers })
    const { sessionId } = opened
    const prompt = [{ type: 'text' as const, text: 'Do it.' }]
    await agent.request(methods.agent.session.prompt, { sessionId, prompt }).catch(() => undefined)
    expect(started).toEqual([{ mcpServers: { docs: { type: 'http', url: http.url } } }])
    await expect.poll(() => said.join('\n')).toContain('servers run in the VM')
  })
})
