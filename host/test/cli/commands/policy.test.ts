import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../../cli/main.ts'
import { PersistentGrants } from '../../../egress/persistent-grants.ts'
import { prepareFolders, resolveFolders } from '../../../state/folders.ts'

/** A machine of the test's own, with this configuration. */
async function place(config = '') {
  const home = await temporaryFolder('policy')
  const env = { HOME: home, PATH: process.env.PATH ?? '' }
  const folders = resolveFolders(env)
  await prepareFolders(folders)
  await mkdir(folders.config, { recursive: true, mode: 0o700 })
  await writeFile(path.join(folders.config, 'config.toml'), config, { mode: 0o600 })
  const cli = async (...argv: string[]) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const code = await runCli(argv, { stdin: new PassThrough(), stdout, stderr, env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { home, folders, cli }
}

const rules = `
[[egress.rules]]
effect = "allow"
host = "8.8.8.8"

[[egress.rules]]
effect = "allow"
host = "1.1.1.1"
methods = ["GET"]

[[egress.rules]]
effect = "deny"
host = "*.evil.example"
reason = "no"
`

describe('policy check', () => {
  it('says decision, rule and addresses, of a request and of the tunnel a program would make [G.02] [G.03]', async () => {
    const { cli } = await place(rules)
    expect(await cli('policy', 'check', 'https://8.8.8.8/dns?x')).toEqual({
      code: 0,
      stderr: '',
      stdout: [
        'GET https://8.8.8.8/dns?x: allow',
        '  rule     allow 8.8.8.8 (the configuration)',
        '  address  8.8.8.8',
        'CONNECT 8.8.8.8:443: allow',
        '  rule     allow 8.8.8.8 (the configuration)',
        '  address  8.8.8.8',
        '',
      ].join('\n'),
    })
    const narrow = await cli('policy', 'check', '--method', 'post', 'https://1.1.1.1/')
    expect(narrow).toMatchObject({
      code: 3,
      stdout: expect.stringMatching(/^POST https:\/\/1\.1\.1\.1\/: deny/),
    })
    const { code, stdout } = await cli('policy', 'check', '--json', 'https://1.1.1.1/')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({
      request: {
        target: 'GET https://1.1.1.1/',
        effect: 'allow',
        rule: 'allow 1.1.1.1, GET (the configuration)',
        addresses: [{ address: '1.1.1.1' }],
      },
      tunnel: { target: 'CONNECT 1.1.1.1:443', effect: 'deny', rule: 'no rule allows it', addresses: [] },
    })
  })

  it('looks nothing up that is denied, and refuses what leads inside [G.02]', async () => {
    const { cli } = await place(rules)
    expect(await cli('policy', 'check', 'https://a.evil.example/')).toMatchObject({
      code: 3,
      stdout: expect.not.stringContaining('address'),
    })
    const inside = await cli('policy', 'check', '--allow-host', 'localhost', 'https://localhost/')
    expect(inside.code).toBe(3)
    expect(inside.stdout).toMatch(
      /localhost\/: allow\n.*\n {2}address {2}(127\.0\.0\.1|::1) {2}refused: localhost is .*this machine/,
    )
  })

  it('takes the rules of a run by flag and file, and answers for always [G.02]', async () => {
    const { home, folders, cli } = await place()
    expect(await cli('policy', 'check', 'https://9.9.9.9/')).toMatchObject({ code: 3 })
    expect(await cli('policy', 'check', '--allow-host', '9.9.9.9', 'https://9.9.9.9/')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('allow 9.9.9.9 (this run’s own rules)'),
    })
    const file = path.join(home, 'rules.toml')
    await writeFile(file, '[[rules]]\neffect = "allow"\nhost = "9.9.9.9"\nschemes = ["http"]\n')
    expect(await cli('policy', 'check', '--egress', file, 'http://9.9.9.9/')).toMatchObject({ code: 0 })
    await new PersistentGrants(folders).add([{ effect: 'allow', host: '9.9.9.9' }], `run-${'0'.repeat(20)}`)
    expect(await cli('policy', 'check', 'https://9.9.9.9/')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('granted permanently'),
    })
  })

  it('says when a proxy of the user’s looks names up itself [G.02]', async () => {
    const { cli } = await place('[network]\nproxy = "http://me:hidden@proxy.example:3128"\n')
    const { stdout } = await cli('policy', 'check', '--allow-host', '8.8.8.8', 'https://8.8.8.8/')
    expect(stdout).toContain('  proxy    http://proxy.example:3128, which resolves the name itself')
    expect(stdout).not.toContain('hidden')
  })

  it('is a mistake of usage for what is no address, no rule and no file of rules [H.01]', async () => {
    const { home, cli } = await place()
    const file = path.join(home, 'rules.toml')
    for (const [argv, words] of [
      [['example.com'], 'not a whole http or https address'],
      [['https://a@b/'], 'user or password'],
      [['--method', 'G T', 'https://a/'], 'not a method'],
      [['--allow-host', 'https://a', 'https://a/'], '--allow-host host "https://a"'],
      [['--egress', path.join(home, 'none'), 'https://a/'], 'cannot read'],
    ] as const) {
      const { code, stderr } = await cli('policy', 'check', ...argv)
      expect([code, stderr]).toEqual([2, expect.stringContaining(words)])
    }
    for (const [content, words] of [
      ['[[rules]]\neffect = "allow"\nhost = "a:1"\n', 'rules.0: host "a:1"'],
      ['[[rules]]\neffect = "maybe"\nhost = "a"\n', 'rules.0.effect'],
      ['[[rules]]\neffect = "allow"\nhost = "a"\nport = 1\n', 'rules.0'],
      ['rules', 'line 1: not TOML'],
    ] as const) {
      await writeFile(file, content)
      const { code, stderr } = await cli('policy', 'explain', '--egress', file)
      expect([code, stderr]).toEqual([2, expect.stringContaining(words)])
    }
  })
})

describe('policy explain', () => {
  it('lists the rules, the strongest first, with where each comes from [G.02]', async () => {
    const { folders, cli } = await place(rules)
    await new PersistentGrants(folders).add([{ effect: 'allow', host: 'b.example' }], `run-${'0'.repeat(20)}`)
    const { code, stdout } = await cli('policy', 'explain', '--allow-host', '*.a.example')
    expect(code).toBe(0)
    expect(stdout.split('\n').filter((line) => line.startsWith('  '))).toEqual([
      '  deny *.evil.example: no (the configuration)',
      '  allow 1.1.1.1, GET (the configuration)',
      '  allow 8.8.8.8 (the configuration)',
      '  allow *.a.example (this run’s own rules)',
      '  allow b.example (granted permanently)',
    ])
    expect(stdout).toContain(path.join(folders.config, 'config.toml'))
    expect(stdout).toContain('Everything else is denied')
  })

  it('says when there are no rules, and no configuration file [H.01]', async () => {
    const { folders, cli } = await place()
    await rm(path.join(folders.config, 'config.toml'))
    const { stdout } = await cli('policy', 'explain')
    expect(stdout).toContain(
      'config.toml, which does not exist.\nThere are no rules.\nEverything else is denied',
    )
  })

  it('gives programs the same as JSON, and says what the default is [H.01]', async () => {
    const { cli } = await place('[egress]\ndefault = "ask"\n')
    const { stdout } = await cli('policy', 'explain', '--json', '--allow-host', 'a.example')
    expect(JSON.parse(stdout)).toEqual({
      rules: [{ effect: 'allow', host: 'a.example', origin: 'run' }],
      answers: [],
      otherwise: 'ask',
    })
    expect((await cli('policy', 'explain')).stdout).toContain('Everything else requires approval')
  })

  it('refuses a configuration with a rule that could be read in two ways, and names it [G.02]', async () => {
    const { cli } = await place('[[egress.rules]]\neffect = "allow"\nhost = "https://example.com"\n')
    const { code, stderr } = await cli('policy', 'explain')
    expect(code).toBe(2)
    expect(stderr).toMatch(/egress\.rules\.0\.host: host "https:\/\/example\.com": expected a name/)
  })
})
