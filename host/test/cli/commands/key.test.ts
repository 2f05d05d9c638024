import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../../cli/main.ts'
import { cliPlace } from '../../support/cli.ts'
import { testKeyring } from '../../support/keyring.ts'

const key = 'nvapi-abcdefghijklmnop'

async function openPlace(more: Record<string, string> = {}) {
  const keyring = await testKeyring()
  const home = await temporaryFolder('cli')
  const env = { HOME: home, PATH: keyring.PATH, ...more }
  const run = async (argv: string[], input = '') => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
    stdin.end(input)
    const code = await runCli(argv, { stdin, stdout, stderr, env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { keyring, home, run }
}

/** Everything in the state folder, as one text. */
async function stateOf(home: string): Promise<string> {
  const entries = await readdir(home, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile())
  return (
    await Promise.all(files.map(({ parentPath, name }) => readFile(path.join(parentPath, name), 'utf8')))
  ).join()
}

describe('caisson key', () => {
  it('stores what is piped, lists names alone, and removes [H.01 S0.09]', async () => {
    const { keyring, home, run } = await openPlace()
    const end = await run(['key', 'set', 'local'], `${key}\n`)
    expect(end).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringContaining('{ keyring = "local" }'),
    })
    expect(await keyring.kept('local')).toBe(key)
    const list = await run(['key', 'list'])
    expect(list).toMatchObject({ code: 0, stdout: 'local\n' })
    expect(await run(['key', 'list', '--json'])).toMatchObject({ stdout: '{"name":"local"}\n' })
    expect(`${end.stdout}${list.stdout}${await keyring.calls()}${await stateOf(home)}`).not.toContain(key)
    expect(await run(['key', 'rm', 'local'])).toMatchObject({ code: 0 })
    expect(await run(['key', 'rm', 'local'])).toMatchObject({ code: 2 })
    expect(await keyring.kept('local')).toBeUndefined()
  })

  it('asks at a terminal without showing what is typed, or how much; can be given up [H.01 S0.09]', async () => {
    const keyring = await testKeyring()
    const place = await cliPlace({}, { PATH: keyring.PATH })
    const set = place.startInTerminal('key', 'set', 'local')
    await set.sees('Key "local" (not shown): ')
    set.type(`wrong\u0015${key}x\u007f\r`)
    expect(await set.ended).toMatchObject({ code: 0 })
    expect(await keyring.kept('local')).toBe(key)
    expect(set.output()).not.toMatch(/nvapi|wrong|[*•]/)

    const given = place.startInTerminal('key', 'set', 'local')
    await given.sees('not shown')
    given.type(`other-key\u0003`)
    expect(await given.ended).toMatchObject({ code: 3 })
    expect(await keyring.kept('local')).toBe(key)
  })

  it('refuses what is no key and what is no name, without repeating it [H.01 S0.09]', async () => {
    const { keyring, run } = await openPlace()
    for (const piped of ['', '\n', `${key}\n${key}\n`, `${key}\u0001`, 'x'.repeat(70_000)]) {
      const end = await run(['key', 'set', 'local'], piped)
      expect(end).toMatchObject({ code: 2, stderr: expect.stringContaining('the piped key') })
      expect(end.stderr).not.toContain(key)
    }
    const named = await run(['key', 'set', key.toUpperCase()])
    expect(named).toMatchObject({ code: 2, stderr: expect.stringContaining('a-z 0-9') })
    expect(named.stderr).not.toContain(key.toUpperCase())
    expect(await keyring.calls()).toBe('')
  })

  it('says what is wrong with the keyring, escapes included, and ends with 4 [H.01 S0.09]', async () => {
    const { keyring, run } = await openPlace()
    await keyring.lock()
    const end = await run(['key', 'set', 'local'], key)
    expect(end).toMatchObject({ code: 4, stderr: expect.stringContaining('locked object') })
    expect(end.stderr).not.toContain('\u001b')
    expect(end.stderr).toContain('{ command = ["PROGRAM"] }')
    expect(end.stderr).not.toContain(key)
  })
})

describe('caisson config', () => {
  async function withConfig(content: string, more: Record<string, string> = {}) {
    const { home, run } = await openPlace(more)
    const file = path.join(home, '.config/caisson/config.toml')
    expect((await run(['config', 'path'])).stdout).toBe(`${file}\n`)
    await mkdir(path.dirname(file), { recursive: true })
    await writeFile(file, content)
    return run
  }

  it('tells which model is asked of whom, and warns of keys that are not there [H.01] [S0.09]', async () => {
    const run = await withConfig(
      `model = "qwen3"
[providers.local]
url = "http://127.0.0.1:9/v1"
models = ["qwen*"]
key = { env = "LOCAL_KEY" }
[providers.far]
url = "https://far.example/v1"
key = { file = "/nowhere/key" }
[secrets.TOKEN]
from = { command = ["no-such-program"] }
hosts = ["api.example"]`,
      { LOCAL_KEY: key },
    )
    const { code, stdout } = await run(['config', 'check'])
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /ok {3}model +qwen3 \(model in the configuration\) of local at http:\/\/127\.0\.0\.1:9\/v1, key from the variable LOCAL_KEY/,
    )
    expect(stdout).toMatch(/warn providers\.far +https:\/\/far\.example\/v1, when it is the default/)
    expect(stdout).toContain('/nowhere/key')
    expect(stdout).toMatch(/warn secrets\.TOKEN/)
    expect(stdout).not.toContain(key)
    const json = JSON.parse((await run(['config', 'check', '--json'])).stdout)
    expect(json).toMatchObject({
      ok: true,
      exists: true,
      facts: expect.arrayContaining([expect.objectContaining({ what: 'egress' })]),
    })
  })

  it.each([
    [
      'a default model without its key',
      'model',
      '[providers.far]\nurl = "https://far.example/v1"\nkey = { file = "/nowhere/key" }',
    ],
    [
      'a hook without its command',
      'hooks.0',
      '[[hooks]]\npoint = "before-tool"\ncommand = ["no-such-program"]',
    ],
  ])('ends with 4 for what keeps runs from starting: %s [H.01]', async (_, what, content) => {
    const run = await withConfig(content)
    const { code, stdout } = await run(['config', 'check'])
    expect(stdout).toMatch(new RegExp(`^fail ${what} `, 'm'))
    expect(code).toBe(4)
    expect(JSON.parse((await run(['config', 'check', '--json'])).stdout)).toMatchObject({ ok: false })
  })

  it('says of a file that does not fit what every command says, and ends with 2 [H.01]', async () => {
    const run = await withConfig('[egress]\ndefualt = "deny"')
    for (const command of [
      ['config', 'check'],
      ['run', 'x'],
    ]) {
      expect(await run(command)).toMatchObject({
        code: 2,
        stdout: '',
        stderr: expect.stringContaining('egress: unknown field "defualt"'),
      })
    }
  })
})
