// `caisson mcp login`, `list` and `logout` as a person uses them, over TLS with a real authorization server.

import { mkdir, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { createServer } from 'node:https'
import path from 'node:path'
import { PassThrough, type Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import type { Io } from '../../host/cli/io.ts'
import { runCli } from '../../host/cli/main.ts'
import { configFile } from '../../host/config/load.ts'
import { resolveFolders } from '../../host/state/folders.ts'
import { makeAuthority } from '../../host/test/support/authority.ts'
import { listen } from '../egress/support.ts'
import { OAuthWorld } from './oauth-world.ts'

/** A command line whose person opens each address that standard error or output shows. */
function openTerminal(world: OAuthWorld, env: Readonly<Record<string, string>>) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  let [out, err] = ['', '']
  stdout.on('data', (text: Buffer) => {
    out += text
  })
  stderr.on('data', (text: Buffer) => {
    err += text
    const url = /https?:\/\/\S+\/auth\?\S+/.exec(err)?.[0]
    if (url === undefined || isOpened) return
    isOpened = true
    void world.person().openUrl(url, '')
  })
  let isOpened = false
  const io: Io = { stdin: new PassThrough() as Readable, stdout, stderr, env, version: '0.0.0' }
  return {
    run: async (...argv: string[]) => {
      ;[out, err] = ['', '']
      const code = await runCli(argv, io)
      return { code, out, err }
    },
  }
}

async function setUp() {
  const world = await OAuthWorld.open()
  const { issuerPort, mcpPort } = world.ports
  const authority = await makeAuthority('IP:127.0.0.1')
  const server = createServer({ cert: authority.cert, key: authority.key }, (request, response) => {
    const { method, headers, url } = request
    const onward = httpRequest(
      new URL(url ?? '/', world.mcpUrl),
      { method, headers, agent: false },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(response)
      },
    )
    onward.on('error', () => response.destroy())
    request.pipe(onward)
  })
  const port = await listen(server)
  world.shownUrl = `https://127.0.0.1:${port}/mcp`
  const ca = path.join(world.home, 'ca.pem')
  await writeFile(ca, authority.ca)
  const env = { HOME: world.home, CAISSON_HOME: world.home, PATH: '/nonexistent' }
  const settings = [
    `[network]\nca = "${ca}"`,
    `[[egress.rules]]\neffect = "allow"\nhost = "127.0.0.1"\nports = [${port}, ${issuerPort}, ${mcpPort}]\nschemes = ["https", "http"]`,
    `[mcpServers.tracker]\nurl = "${world.shownUrl}"`,
    '[mcpServers.notes]\ncommand = "node"',
  ]
  return { world, env, settings, server }
}

describe('caisson mcp login', () => {
  it('prints an address, signs in, and is listed; logout ends it [A.09]', async () => {
    const { world, env, settings, server } = await setUp()
    await using _ = world
    await writeConfig(env, settings)
    const terminal = openTerminal(world, env)
    const login = await terminal.run('mcp', 'login', 'tracker')
    expect(login.err).toContain(`Sign in at ${world.issuer}`)
    expect(login).toMatchObject({
      code: 0,
      out: expect.stringContaining('Signed in to tracker: the host renews the token by itself.'),
    })
    const list = await terminal.run('mcp', 'list', '--json')
    expect(JSON.parse(list.out)).toMatchObject({
      type: 'sign-in',
      server: 'tracker',
      state: 'signed-in',
      place: 'file',
    })
    const token = await world.signIns().token({ ...world.server(), url: world.shownUrl })
    expect(list.out + login.out + login.err).not.toContain(token.ok ? token.value.reveal() : 'x')
    const logout = await terminal.run('mcp', 'logout', 'tracker')
    expect(logout).toMatchObject({ code: 0, out: expect.stringContaining('its tokens were revoked there') })
    expect((await terminal.run('mcp', 'list')).out).toContain('no MCP server is approved yet')
    server.closeAllConnections()
    server.close()
  })

  it('says of a server with a plain address that a sign-in needs https [A.09]', async () => {
    const { world, env, settings, server } = await setUp()
    await using _ = world
    await writeConfig(env, [...settings, '[mcpServers.plain]\nurl = "http://mcp.example.com/mcp"'])
    const { code, err } = await openTerminal(world, env).run('mcp', 'login', 'plain')
    expect(code).not.toBe(0)
    expect(err).toContain('"plain" has the address http://mcp.example.com/mcp; a sign-in needs https')
    server.close()
  })

  it('says which servers there are, and that a program needs none [A.09]', async () => {
    const { world, env, settings, server } = await setUp()
    await using _ = world
    await writeConfig(env, settings)
    const terminal = openTerminal(world, env)
    for (const name of ['notes', 'other']) {
      const { code, err } = await terminal.run('mcp', 'login', name)
      expect(code).not.toBe(0)
      expect(err).toContain('there is: tracker')
    }
    expect((await terminal.run('mcp', 'logout', 'tracker')).err).toContain('not signed in')
    server.close()
  })
})

async function writeConfig(
  env: { readonly HOME: string; readonly CAISSON_HOME: string },
  settings: readonly string[],
): Promise<void> {
  const folders = resolveFolders(env)
  await mkdir(folders.config, { recursive: true, mode: 0o700 })
  await writeFile(configFile(folders), settings.join('\n\n'), { mode: 0o600 })
}
