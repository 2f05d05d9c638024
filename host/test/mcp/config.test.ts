import { describe, expect, it } from 'vitest'
import { readConfig } from '../../config/load.ts'
import { inspectMcpServers } from '../../doctor/inspect-config.ts'
import { mcpServersOf, readMcpFile } from '../../mcp/config.ts'
import { signInServersOf } from '../../mcp/oauth-settings.ts'

const read = (toml: string) => readConfig(toml, 'config.toml')

describe('MCP servers in the configuration', () => {
  it('are programs in the VM, or addresses with placeholders of secrets [A.09]', () => {
    const config = read(`
[mcpServers.notes]
command = "node"
args = ["tools/notes.js"]
cwd = "/mnt/workspace/tools"
env = { MODE = "quiet" }
trustHints = true
[mcpServers.tracker]
url = "https://mcp.example.com/mcp"
headers = { Authorization = "Bearer {{TRACKER}}" }
[mcpServers.off]
command = "node"
enabled = false
`)
    expect(config.ok && mcpServersOf(config.value.mcpServers)).toEqual({
      ok: true,
      value: {
        notes: {
          transport: 'stdio',
          command: 'node',
          args: ['tools/notes.js'],
          cwd: 'tools',
          env: { MODE: 'quiet' },
          trustHints: true,
        },
        tracker: {
          transport: 'streamable-http',
          url: 'https://mcp.example.com/mcp',
          headers: { Authorization: 'Bearer {{TRACKER}}' },
        },
      },
    })
  })

  it.each([
    [
      'url = "https://x.example/mcp"\nheaders = { Authorization = "Bearer sk-very-secret" }',
      'headers.Authorization',
    ],
    ['url = "https://x.example/mcp"\nheaders = { X-Api-Key = "sk-very-secret" }', 'headers.X-Api-Key'],
    ['url = "https://x.example/mcp"\nheaders = { COOKIE = "session=sk-very-secret" }', 'headers.COOKIE'],
    ['url = "https://sk:very-secret@x.example/mcp"', 'its url holds a name or password'],
    ['url = "ftp://x.example/very-secret"', 'http or https url'],
    ['command = "node"\ncwd = "../very-secret"', 'cwd: expected a folder of the workspace'],
    ['command = "node"\ncwd = "/home/very-secret"', 'cwd: expected a folder of the workspace'],
    ['command = "node"\ncomand = "very-secret"', 'mcpServers.one: unknown field "comand"'],
    ['command = "  "\nargs = ["very-secret"]', 'its command is blank'],
    ['args = ["very-secret"]', 'has neither a command nor a url'],
  ])('are refused where they are wrong, by place and never with a value: %s [A.09 G.01]', (text, words) => {
    const config = read(`[mcpServers.one]\n${text}\n`)
    expect(config).toMatchObject({ ok: false, error: expect.stringContaining(words) })
    expect(config).toMatchObject({ error: expect.stringContaining('mcpServers.one') })
    expect(JSON.stringify(config)).not.toContain('very-secret')
  })

  it('of a name that no tool could have are refused [A.09]', () => {
    expect(read('[mcpServers."a b"]\ncommand = "node"\n').ok).toBe(false)
    expect(mcpServersOf({}, { 'a b': { command: 'node' } })).toMatchObject({
      ok: false,
      error: expect.stringContaining('a name is'),
    })
  })

  it('of an application go before those of the same name [A.09]', () => {
    const both = mcpServersOf({ a: { command: 'one' }, b: { command: 'b' } }, { a: { command: 'two' } })
    expect(both).toMatchObject({ ok: true, value: { a: { command: 'two' }, b: { command: 'b' } } })
  })
})

describe('a file of --mcp', () => {
  it('has the usual form; what is wrong names file, server and place [A.09]', () => {
    const file = '{"mcpServers":{"a":{"command":"node"},"b":{"type":"http","url":"https://x.example/mcp"}}}'
    expect(readMcpFile(file, 'mcp.json')).toMatchObject({ ok: true, value: { a: {}, b: {} } })
    expect(readMcpFile('{', 'mcp.json')).toMatchObject({ error: 'mcp.json: not JSON; correct the file' })
    expect(readMcpFile('{"mcpServers":{"a":{}}}', 'mcp.json')).toMatchObject({
      error: 'mcp.json: the MCP server "a": it has neither a command nor a url',
    })
    expect(readMcpFile('{"mcpServers":[1]}', 'mcp.json').ok).toBe(false)
  })
})

describe('a server of elsewhere than the configuration file', () => {
  const url = 'https://x.example/mcp'
  const machine = { flow: 'client-credentials', clientId: 'x' }
  it.each([
    ['clientSecret', { ...machine, clientSecret: { command: ['touch', '/tmp/x'] } }],
    ['clientSecret', { clientId: 'x', clientSecret: { file: '~/.ssh/id_ed25519' } }],
    ['privateKey', { ...machine, privateKey: { env: 'HOME' } }],
  ])('runs no program and reads no file or variable for oauth.%s [A.09 G.04]', (field, oauth) => {
    const servers = { tracker: { url, oauth } }
    const words = `oauth.${field}: only a server of the configuration file`
    expect(mcpServersOf({}, servers)).toMatchObject({ ok: false, error: expect.stringContaining(words) })
    expect(readMcpFile(JSON.stringify({ mcpServers: servers }), 'mcp.json')).toMatchObject({
      error: expect.stringContaining(words),
    })
    expect([...signInServersOf({}, servers).keys()]).toEqual([])
    // Nor in the place of one of the same name and address.
    expect([...signInServersOf({ tracker: { url } }, servers).keys()]).toEqual([])
    expect(mcpServersOf(servers).ok).toBe(true)
    expect([...signInServersOf(servers).keys()]).toEqual(['tracker'])
  })

  it('may have other settings of a sign-in [A.09]', () => {
    const servers = { tracker: { url, oauth: { scopes: ['read'] } } }
    expect(mcpServersOf({}, servers).ok).toBe(true)
    expect(signInServersOf({}, servers).get('tracker')?.oauth).toEqual({ scopes: ['read'] })
  })
})

describe('caisson config check', () => {
  it('says of each server where it is, and what it lacks [A.09]', () => {
    const config = read(`
[mcpServers.notes]
command = "node"
args = ["notes.js"]
[mcpServers.open]
url = "https://open.example/mcp?key=1"
[mcpServers.shut]
url = "https://shut.example/mcp"
[mcpServers.bare]
url = "https://open.example/mcp"
headers = { Authorization = "Bearer {{NOBODY}}" }
[mcpServers.off]
command = "node"
enabled = false
[egress]
rules = [{ effect = "allow", host = "open.example" }]
`)
    expect(config.ok && inspectMcpServers(config.value)).toEqual([
      { what: 'mcpServers.notes', seen: 'node notes.js, in the VM' },
      { what: 'mcpServers.open', seen: 'https://open.example/mcp, by streamable-http' },
      {
        what: 'mcpServers.shut',
        seen: 'https://shut.example/mcp, by streamable-http',
        note: expect.stringContaining('{ effect = "allow", host = "shut.example" }'),
      },
      {
        what: 'mcpServers.bare',
        seen: 'https://open.example/mcp, by streamable-http',
        problem: expect.stringContaining('there is no secret NOBODY'),
      },
      { what: 'mcpServers.off', seen: 'switched off' },
    ])
  })
})
