// What a workspace says of MCP servers in its .mcp.json, whatever that is; and the names of their tools.

import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { McpServer, ToolName } from '#specs/protocol/extension.ts'
import { chooseServers } from '../../mcp/extension.ts'
import { ServerToolNames } from '../../mcp/open-servers.ts'
import { parseWorkspaceServers, readWorkspaceServers } from '../../mcp/workspace-servers.ts'

let root = ''
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'caisson-servers-'))
})
afterEach(() => rm(root, { recursive: true, force: true }))
const read = () => readWorkspaceServers({ root })
const nothing = { servers: new Map(), notes: [] }

describe('.mcp.json of a workspace', () => {
  it('names programs to run in the VM, and nothing that is outside of it [A.09]', () => {
    const { servers, notes } = parseWorkspaceServers(
      JSON.stringify({
        mcpServers: {
          good: { command: 'node', args: ['s.js'], env: { A: '1' }, trustHints: true, disabled: false },
          off: { command: 'node', disabled: true },
          web: { url: 'https://mcp.example.com' },
          old: { type: 'sse', url: 'https://mcp.example.com' },
          'bad name': { command: 'node' },
          odd: { command: 7 },
        },
      }),
    )
    // Whether it is believed is not its own affair.
    expect([...servers]).toEqual([
      ['good', { transport: 'stdio', command: 'node', args: ['s.js'], env: { A: '1' } }],
    ])
    expect(notes).toHaveLength(4)
    expect(notes.filter((note) => note.includes('is not asked'))).toHaveLength(2)
  })

  it('that is not there is nothing; one that is no JSON, too long, or leads elsewhere is a note [A.09]', async () => {
    expect(await read()).toEqual(nothing)
    const file = path.join(root, '.mcp.json')
    await writeFile(file, '{"mcpServers":')
    expect((await read()).notes).toEqual(['.mcp.json of the workspace: it is not JSON'])
    await writeFile(file, ' '.repeat(64 * 1024 + 1))
    expect((await read()).notes[0]).toContain('longer than 65536 bytes')
    await rm(file)
    await symlink('/etc/hostname', file)
    expect((await read()).notes[0]).toContain('outside')
    await rm(file)
    await mkdir(file)
    expect(await read()).toMatchObject({ servers: new Map(), notes: [expect.any(String)] })
  })

  it('of any content gives servers of the form, bounded notes, and no fault [A.09]', () => {
    const entry = fc.dictionary(
      fc.constantFrom('command', 'args', 'env', 'url', 'type', 'cwd', 'disabled', 'headers', '__proto__'),
      fc.oneof(fc.string(), fc.array(fc.string()), fc.dictionary(fc.string(), fc.string()), fc.boolean()),
    )
    const document = fc.record({ mcpServers: fc.oneof(fc.dictionary(fc.string(), entry), fc.jsonValue()) })
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          document.map((value) => JSON.stringify(value)),
        ),
        (text) => {
          const { servers, notes } = parseWorkspaceServers(text)
          for (const server of servers.values()) {
            expect(McpServer.safeParse(server).success).toBe(true)
            expect(server.transport).toBe('stdio')
          }
          expect(servers.size).toBeLessThanOrEqual(8)
          expect(notes.every((note) => note.length <= 500)).toBe(true)
        },
      ),
      { seed: 6, numRuns: 500 },
    )
  })
})

describe('the servers of a run', () => {
  const program = { transport: 'stdio' as const, command: 'node' }
  const found = { servers: new Map([['a', program]]), notes: [] }

  it("are the user's before the workspace's of the same name, with a note [A.09]", () => {
    const { chosen, notes } = chooseServers({ mcpServers: { a: { ...program, args: ['own'] } } }, found)
    expect(chosen).toMatchObject([{ name: 'a', source: 'user', config: { args: ['own'] } }])
    expect(notes).toEqual([expect.stringContaining('your own server of that name')])
  })

  it.each([
    [['a_tool'], true],
    [['list_mcp_resources'], true],
    [['a_*'], true],
    [['*'], true],
    [['!run_bash'], true],
    [['read_file', 'b_tool'], false],
    [['read_*'], false],
    [['!a_*'], false],
  ])('are those whose tools the task may use: %s', (tools, isWanted) => {
    expect(chooseServers({ tools }, found).chosen.length === 1).toBe(isWanted)
  })

  it('are bounded in number, with a note [A.09]', () => {
    const many = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`s${index}`, program]))
    const { chosen, notes } = chooseServers({ mcpServers: many }, { servers: new Map(), notes: [] })
    expect(chosen).toHaveLength(12)
    expect(notes[0]).toContain('at most 12 MCP servers')
  })
})

describe("names of servers' tools", () => {
  it('are what every provider takes, and differ, whatever servers call them [A.09]', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.string(), fc.string()), { maxLength: 30 }), (pairs) => {
        const names = new ServerToolNames(['read_file'])
        const unique = new Map(pairs.map((pair) => [JSON.stringify(pair), pair]))
        const claimed = [...unique.values()].map(([server, tool]) => names.claim(server, tool))
        for (const name of claimed) expect(ToolName.safeParse(name).success).toBe(true)
        const folded = new Set(claimed.map((name) => name.replaceAll('-', '_').toLowerCase()))
        expect(folded.size).toBe(claimed.length)
        expect(folded.has('read_file')).toBe(false)
      }),
      { seed: 7, numRuns: 300 },
    )
  })
})
