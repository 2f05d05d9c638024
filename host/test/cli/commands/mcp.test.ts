import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { loadMcpFile } from '../../../cli/commands/mcp.ts'
import { runCli } from '../../../cli/main.ts'
import { type McpPin, McpPins } from '../../../mcp/pins.ts'
import { resolveFolders } from '../../../state/folders.ts'

async function makePlace() {
  const root = await temporaryFolder('mcp')
  const env = { HOME: root, CAISSON_HOME: path.join(root, 'home'), CAISSON_CACHE: path.join(root, 'cache') }
  const folders = resolveFolders(env)
  await mkdir(folders.locks, { recursive: true, mode: 0o700 })
  const caisson = async (...argv: string[]) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const code = await runCli(argv, { stdin: new PassThrough(), stdout, stderr, env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { root, pins: new McpPins(folders), caisson }
}

const pin = (fields: Partial<McpPin>): McpPin => ({
  source: 'user',
  server: 'notes',
  runs: 'node \u001b[31mnotes.js',
  tools: [],
  runId: 'run-00000000000000000001',
  at: Date.UTC(2026, 0, 2, 3, 4),
  ...fields,
})

describe('caisson mcp', () => {
  it('lists what was allowed of servers, and forgets it by name [A.09] [S1.11]', async () => {
    const { pins, caisson } = await makePlace()
    expect((await caisson('mcp', 'list')).stdout).toBe(
      'no MCP server is approved yet, and you are signed in to none\n',
    )
    await pins.keep(pin({}))
    await pins.keep(pin({ source: 'workspace', directory: '/w' }))
    await pins.keep(pin({ server: 'other' }))
    const { stdout } = await caisson('mcp', 'list')
    expect(stdout).toMatch(
      /^notes {2}2026-01-0\d \d\d:\d\d \S+ {2}yours, 0 tools: node \S+notes\.js · allowed in run-0{19}1\n/,
    )
    expect(stdout).toContain('of /w, 0 tools')
    expect(stdout).not.toContain('\u001b')
    const lines = (await caisson('mcp', 'list', '--json')).stdout.trim().split('\n')
    expect(lines.map((line) => JSON.parse(line).server)).toEqual(['notes', 'notes', 'other'])
    expect(await caisson('mcp', 'forget', 'notes', 'other', '--workspace', '/w')).toMatchObject({
      ...{ code: 2, stdout: '' },
      stderr: expect.stringContaining('no MCP server "other" is approved for /w; nothing was revoked'),
    })
    expect((await caisson('mcp', 'forget', 'notes', '--workspace', '/w/../w/')).stdout).toMatch(
      /^revoked: notes/,
    )
    expect(await pins.list()).toHaveLength(2)
    expect((await caisson('mcp', 'forget', 'nobody')).code).toBe(2)
    expect((await caisson('mcp', 'forget', 'notes', 'other')).code).toBe(0)
    expect(await pins.list()).toEqual([])
  })

  it('reads a file of servers, and says what is wrong with it [A.09]', async () => {
    const { root } = await makePlace()
    const file = path.join(root, 'mcp.json')
    await writeFile(file, '{"mcpServers":{"a":{"command":"node","args":["a.js"]}}}')
    expect(await loadMcpFile(file)).toEqual({ a: { command: 'node', args: ['a.js'] } })
    await writeFile(file, '{"mcpServers":{"a":{"url":"x"}}}')
    await expect(loadMcpFile(file)).rejects.toThrow('the MCP server "a"')
    await expect(loadMcpFile(path.join(root, 'none'))).rejects.toThrow('cannot read the MCP servers')
  })
})
