import { describe, expect, it } from 'vitest'
import { hasCode } from '#specs/errors.ts'
import { parseMcpConfig } from '../../mcp/config.ts'

describe('the configuration of MCP servers', () => {
  it('is taken in both of its forms, as an object or as JSON, without what is not enabled [S2.12]', () => {
    const docs = { command: 'node', args: ['x.js'], env: { A: 'b' } }
    const expected = { ...docs, transport: 'stdio' }
    expect([...parseMcpConfig({ servers: { docs } })]).toEqual([['docs', expected]])
    expect([...parseMcpConfig(JSON.stringify({ mcpServers: { docs } }))]).toEqual([['docs', expected]])
    const url = 'https://tools.example/mcp'
    const mixed = parseMcpConfig({
      servers: { z: { url }, off: { url, enabled: false }, out: { url, disabled: true } },
      mcpServers: {
        a: { type: 'sse', url },
        b: { type: 'http', url },
        c: { transport: 'streamable-http', url },
      },
    })
    expect([...mixed].map(([name, { transport }]) => [name, transport])).toEqual([
      ['a', 'sse'],
      ['b', 'streamable-http'],
      ['c', 'streamable-http'],
      ['z', 'streamable-http'],
    ])
    expect(parseMcpConfig({}).size).toBe(0)
  })

  it('that is not valid is refused by server and field, without its values [S2.12]', () => {
    const refusal = (config: unknown) => {
      try {
        parseMcpConfig(config as string)
        return 'none'
      } catch (error) {
        return hasCode(error, 'invalid_options') ? error.message : 'another error'
      }
    }
    expect(refusal('{')).toContain('it is no JSON')
    expect(refusal([])).toContain('expected an object')
    expect(refusal({ servers: { x: { transport: 'stdio' } } })).toContain('a stdio server needs a command')
    for (const command of ['', '  ', '\t\n'])
      expect(refusal({ servers: { x: { command } } })).toContain('its command is blank')
    expect(refusal({ servers: { x: { transport: 'smoke', command: 'a' } } })).toContain('none of stdio, sse')
    expect(refusal({ servers: { x: { url: 'file:///etc/passwd' } } })).toContain('needs an http or https url')
    expect(refusal({ servers: { x: { command: 'a' } }, mcpServers: { x: { command: 'a' } } })).toContain(
      'twice',
    )
    const login = refusal({ servers: { x: { url: 'https://user:hunter2@tools.example/mcp' } } })
    expect(login).toContain('its url holds a name or password')
    expect(login).not.toContain('hunter2')
    const secret = refusal({ servers: { x: { command: 'a', env: { KEY: ['hunter2'] } } } })
    expect(secret).toContain('env.KEY: must be text')
    expect(secret).not.toContain('hunter2')
  })
})
