import { execFileSync } from 'node:child_process'
import { chmod, chown, mkdir, symlink, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { configFile, loadConfig, parseConfig, readConfig } from '../../config/load.ts'
import { Config } from '../../config/schema.ts'

async function folderWith(content?: string | Uint8Array) {
  const config = path.join(await temporaryFolder('config'), 'caisson')
  await mkdir(config, { mode: 0o700 })
  const file = configFile({ config })
  if (content !== undefined) await writeFile(file, content)
  return { config, file }
}

const wrong = (text: string) => {
  const read = readConfig(text, 'FILE')
  if (read.ok) throw new Error('it was taken')
  return read.error
}

describe('the configuration file', () => {
  it('may be missing, and then everything has its default: nothing is allowed [H.01] [G.02]', async () => {
    const loaded = await loadConfig(await folderWith())
    expect(loaded).toEqual({ ok: true, value: Config.parse({}) })
    expect(loaded).toMatchObject({
      value: { egress: { default: 'deny', rules: [] }, providers: {}, limits: {} },
    })
  })

  it('names a setting that is missing as missing [H.01]', () => {
    expect(wrong('[secrets.T]\nfrom = { env = "T" }')).toContain(
      'secrets.T.hosts: is missing; must be a list',
    )
    expect(wrong('[limits]\nmaxTokens = "many"')).toContain('limits.maxTokens: must be a number, got text')
  })

  it('is taken by way of links of its user, as dotfile managers create them [H.01]', async () => {
    const { config, file } = await folderWith()
    await writeFile(path.join(config, 'real.toml'), 'model = "m"')
    await symlink('real.toml', file)
    expect(await loadConfig({ config })).toMatchObject({ ok: true, value: { model: 'm' } })
  })

  it('is refused where others could write it, its folder, or what a link leads to [H.01]', async () => {
    const { config, file } = await folderWith('model = "m"')
    await chmod(file, 0o666)
    expect(await loadConfig({ config })).toMatchObject({
      ok: false,
      error: expect.stringMatching(/config\.toml can be written by others.*chmod go-w/),
    })
    await chmod(file, 0o600)
    await chmod(config, 0o777)
    expect(await loadConfig({ config })).toMatchObject({
      ok: false,
      error: expect.stringContaining(`is reached through ${config}, which can be written by others`),
    })
    await chmod(config, 0o700)
    expect(await loadConfig({ config })).toMatchObject({ ok: true })

    const linked = await folderWith()
    const open = path.join(await temporaryFolder('open'), 'open.toml')
    await writeFile(open, 'model = "m"')
    await chmod(open, 0o666)
    await symlink(open, linked.file)
    expect(await loadConfig(linked)).toMatchObject({ ok: false, error: expect.stringContaining(open) })

    // Only root can give a file away.
    if (process.getuid?.() !== 0) return
    await chown(file, 12_345, 12_345)
    const given = await loadConfig({ config })
    expect(given).toMatchObject({ ok: false, error: expect.stringContaining('belongs to user 12345') })
  })

  it('is read up to a bound, and no device, pipe or folder is read in its place [H.01]', async () => {
    const huge = await folderWith('')
    await truncate(huge.file, 1024 ** 3)
    expect(await loadConfig(huge)).toMatchObject({ ok: false, error: expect.stringContaining('longer than') })
    const folder = await folderWith()
    await mkdir(folder.file)
    expect(await loadConfig(folder)).toMatchObject({ ok: false, error: expect.stringContaining(folder.file) })
    const pipe = await folderWith()
    execFileSync('mkfifo', ['-m', '600', pipe.file])
    expect(await loadConfig(pipe)).toMatchObject({
      ok: false,
      error: expect.stringContaining('is not a file'),
    })
    expect(await loadConfig(await folderWith(Buffer.from([0xff, 0xfe, 0x00])))).toMatchObject({
      ok: false,
      error: expect.stringContaining('UTF-8'),
    })
  })

  it('names the place, what was expected and what to do [H.01]', () => {
    expect(wrong('model = 5')).toBe(
      'FILE: model: must be text, got a number. Correct the file, then run caisson config check',
    )
    expect(wrong('model = "a"\nmodel')).toMatch(/^FILE, line 2: invalid TOML/)
    expect(wrong('[providers.local]\nurll = "x"')).toContain('providers.local: unknown field "urll"')
    expect(wrong('[egress]\nrules = [{ effect = "maybe", host = "x" }]')).toContain('egress.rules.0.effect')
    expect(wrong('[providers.offline]\nurl = "http://x"')).toContain(
      'providers.offline: this name is reserved',
    )
    expect(wrong('[providers.a]\nmodels = ["a*b"]')).toContain('a prefix followed by *')
    expect(wrong('[limits]\nmaxCostUsd = -1\nmaxTokens = 1.5\nmaxRequests = "9"\nmore = 1')).toContain(
      'and 1 more',
    )
  })

  it('has the time until a run that waits goes to sleep, in whole milliseconds that a timer can have [R.12 H.01]', () => {
    const read = (text: string) => parseConfig({ vm: { sleepAfterMs: 5 } }, 'FILE', [text])
    expect(read('vm.sleepAfterMs=600_000')).toMatchObject({
      ok: true,
      value: { vm: { sleepAfterMs: 600_000 } },
    })
    expect(read('vm.sleepAfterMs=0')).toMatchObject({ ok: true, value: { vm: { sleepAfterMs: 0 } } })
    expect(wrong('[vm]\nsleepAfterMs = -1')).toContain('vm.sleepAfterMs: must be 0 or more, got -1')
    expect(wrong('[vm]\nsleepAfterMs = 2_147_483_648')).toContain(
      'vm.sleepAfterMs: must be 2147483647 or less',
    )
    expect(wrong('[vm]\nsleepAfterMs = 1.5')).toContain('vm.sleepAfterMs: must be a whole number')
    expect(wrong('[vm]\nsleepAfterMs = "1h"')).toContain('vm.sleepAfterMs: must be a number, got text')
    expect(wrong('[vm]\nsleepAfter = 1')).toContain('did you mean vm.sleepAfterMs?')
  })

  it.each([
    ['__proto__ = 1'],
    ['[prices]\n__proto__ = { input = 1, output = 1 }'],
    ['[providers.__proto__]\nurl = "http://127.0.0.1/v1"'],
    ['[providers.constructor]\nurl = 1'],
  ])('refuses %s instead of leaving it out in silence [H.01]', (text) => {
    expect(wrong(text)).toContain('FILE')
    expect(({} as { url?: unknown }).url).toBeUndefined()
  })

  it('does not repeat a key that was written into it by mistake [G.01]', () => {
    const key = 'nvapi-0123456789'
    const texts = [
      `[providers.local]\nkey = "${key}"`,
      `[providers.local]\nkey = { keyring = "${key.toUpperCase()}" }`,
      `[search]\nprovider = "brave"\nkey = "${key}"`,
      `[secrets.TOKEN]\nfrom = "${key}"\nhosts = ["a.example"]`,
      `key = "${key}`,
    ]
    for (const text of texts) expect(wrong(text)).not.toContain(key)
    expect(wrong(texts[0] ?? '')).toContain('{ env = "NAME" }')
  })

  it('never throws, whatever stands in it [H.01]', () => {
    const names = ['model', 'providers', 'prices', 'limits', 'egress', 'secrets', 'search', '__proto__', 'x']
    const table = fc.dictionary(fc.constantFrom(...names), fc.jsonValue({ maxDepth: 4 }))
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.string()), (text) => {
        expect(typeof readConfig(text, 'FILE').ok).toBe('boolean')
      }),
      { numRuns: 400, seed: 41 },
    )
    fc.assert(
      fc.property(table, (value) => {
        expect(typeof parseConfig(value, 'FILE').ok).toBe('boolean')
      }),
      { numRuns: 400, seed: 42 },
    )
    expect(wrong(`x = ${'['.repeat(100_000)}`)).toContain('nested')
  })
})
