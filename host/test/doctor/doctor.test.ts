import { chmod, copyFile, mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { checkPrograms, type Finding, type ImageCheck, runDoctor } from '../../doctor/doctor.ts'
import { type Folders, resolveFolders } from '../../state/folders.ts'
import { TemplateFailures } from '../../vm/template/template-failures.ts'
import { writeTemplate } from '../support/templates.ts'

const noImage: ImageCheck = { status: 'fail', seen: 'no image', remedy: 'caisson image build' }
let root: string
let folders: Folders
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'caisson-doctor-'))
  folders = resolveFolders({
    CAISSON_HOME: join(root, 'home'),
    CAISSON_CACHE: join(root, 'cache'),
    XDG_CONFIG_HOME: join(root, 'config'),
  })
})
afterEach(() => rm(root, { recursive: true, force: true }))

async function examine(env: Record<string, string> = {}, checkImage = async () => noImage) {
  const findings = await runDoctor({ folders, env, checkImage })
  const byId = (id: string): Finding => {
    const found = findings.find((finding) => finding.id === id)
    if (!found) throw new Error(`no finding ${id}`)
    return found
  }
  return { findings, byId }
}

describe('runDoctor', () => {
  it('looks at everything a run needs and gives a remedy for whatever is not in order [V.02]', async () => {
    const { findings } = await examine()
    const ids = findings.map((finding) => finding.id)
    for (const id of [
      'node',
      'qemu',
      'programs',
      'image',
      'template',
      'memory',
      'disk-state',
      'disk-cache',
      'folders',
      'configuration',
      'key',
    ]) {
      expect(ids).toContain(id)
    }
    expect(new Set(ids).size).toBe(ids.length)
    for (const { status, remedy, seen } of findings) {
      expect(seen).not.toBe('')
      if (status !== 'ok') expect(remedy).toBeTruthy()
    }
  })

  it('says that emulation is no security boundary, and what protects the user then [V.02]', async () => {
    const { findings, byId } = await examine()
    if (!findings.some(({ id }) => id === 'accelerator')) {
      expect(byId('qemu')).toMatchObject({
        status: 'fail',
        remedy: expect.stringContaining('qemu-system-x86'),
      })
      return
    }
    // Without an image nothing can be tried, so it is emulation.
    expect(byId('accelerator')).toMatchObject({ status: 'warn' })
    expect(byId('accelerator').seen).toMatch(/no(t call it)? a? ?security boundary/)
    expect(byId('confinement').seen).toMatch(/bubblewrap|seccomp|none/)
  })

  it('tells whether there is a key and never shows it [V.02] [S0.09]', async () => {
    const secret = 'nvapi-secret-value'
    const set = await examine({ NVIDIA_API_KEY: secret, CAISSON_LLM_KEY: secret })
    expect(set.byId('key').status).toBe('ok')
    expect(JSON.stringify(set.findings)).not.toContain(secret)
    expect((await examine()).byId('key')).toMatchObject({ status: 'warn' })
  })

  it('shows the path of each program, and which one on PATH is not run and why [V.02 V.10]', async () => {
    const packages = join(root, 'node_modules/.bin')
    await mkdir(packages, { recursive: true })
    await copyFile('/bin/true', join(packages, 'bwrap'))
    const before = process.env.PATH
    try {
      process.env.PATH = `${packages}:${before}`
      const { byId } = await examine()
      expect(byId('programs').seen).toMatch(/(^|, )(\/.*|no )mkfs\.erofs/)
      expect(byId('programs')).toMatchObject({
        status: 'warn',
        seen: expect.stringContaining(
          `not used: "${packages}/bwrap" (a project's packages put programs there)`,
        ),
      })
    } finally {
      process.env.PATH = before
    }
  })

  it('fails without the program for locks, which every run takes [V.02]', async () => {
    const without = (missing: string) =>
      checkPrograms(async (name) =>
        name === missing ? { leftOut: [] } : { path: `/bin/${name}`, leftOut: [] },
      )
    expect(await without('flock')).toMatchObject({ status: 'fail', remedy: 'Install util-linux.' })
    expect(await without('bwrap')).toMatchObject({ status: 'warn', remedy: 'Install bubblewrap.' })
    expect(await without('')).toMatchObject({ status: 'ok' })
  })

  it('says how VMs start here, and why they are booted where no template can be used [V.02, V.01]', async () => {
    expect((await examine()).byId('template')).toMatchObject({
      status: 'ok',
      seen: expect.stringContaining('no template yet'),
    })
    const notes = new TemplateFailures(join(folders.cache, 'templates'))
    const [name, failed] = ['a'.repeat(32), 'b'.repeat(32)]
    await writeTemplate(folders.cache, name)
    expect((await examine()).byId('template').seen).toContain('its memory mapped (1 template')
    await notes.note(failed, 'mapped', 'no mapping here')
    expect((await examine()).byId('template')).toMatchObject({
      status: 'warn',
      seen: expect.stringContaining('cannot be mapped: no mapping here'),
    })
    await notes.note(failed, 'plain', 'no state here')
    expect((await examine()).byId('template')).toMatchObject({
      seen: expect.stringMatching(/are booted: mapped memory: no mapping here; plain memory: no state here/),
      remedy: expect.stringContaining('caisson vm templates --prune --all'),
    })
    // A VM has begun from a template since.
    const later = new Date(Date.now() + 60_000)
    await utimes(join(folders.cache, 'templates', name, 'used'), later, later)
    expect((await examine()).byId('template')).toMatchObject({ status: 'ok' })
  })

  it('reports an image check that throws as a failed check', async () => {
    const { byId } = await examine({}, () => Promise.reject(new Error('manifest is damaged')))
    expect(byId('image')).toMatchObject({ status: 'fail', seen: 'manifest is damaged' })
  })

  it('names where a key comes from, and says when it is not there or the configuration does not fit [V.02] [S0.09]', async () => {
    const write = async (text: string) => {
      await mkdir(folders.config, { recursive: true })
      await writeFile(join(folders.config, 'config.toml'), text)
      return await examine({ LOCAL_KEY: 'key-9876543210', PATH: process.env.PATH ?? '' })
    }
    const absent = await examine()
    expect(absent.byId('configuration')).toMatchObject({
      status: 'ok',
      seen: expect.stringMatching(/config\.toml does not exist; the defaults apply$/),
    })
    const server = '[providers.local]\nurl = "http://127.0.0.1:9/v1"\nmodels = ["qwen3"]\n'
    const good = await write(`provider = "local"\n${server}key = { env = "LOCAL_KEY" }`)
    expect(good.byId('configuration')).toMatchObject({
      status: 'ok',
      seen: expect.stringMatching(/config\.toml$/),
    })
    expect(good.byId('key')).toMatchObject({
      status: 'ok',
      seen: 'qwen3 of local at http://127.0.0.1:9/v1, key from the variable LOCAL_KEY',
    })
    expect(JSON.stringify(good.findings)).not.toContain('key-9876543210')
    const missing = await write(`provider = "local"\n${server}key = { file = "/nowhere/key" }`)
    expect(missing.byId('key')).toMatchObject({
      status: 'warn',
      seen: expect.stringContaining('/nowhere/key'),
    })
    expect(missing.byId('configuration')).toMatchObject({
      status: 'warn',
      seen: expect.stringContaining('providers.local'),
    })
    const useless = await write('[network]\nca = "/nowhere/ca.pem"')
    expect(useless.byId('configuration')).toMatchObject({
      status: 'fail',
      seen: expect.stringContaining('/nowhere/ca.pem'),
    })
    const broken = await write('provider = 5')
    expect(broken.byId('configuration')).toMatchObject({
      status: 'fail',
      seen: expect.stringContaining('provider: must be text, got a number'),
    })
  })

  it('refuses a state folder that others may write to, and remembers nothing there', async () => {
    await examine()
    await chmod(folders.home, 0o777)
    const { byId } = await examine()
    expect(byId('folders')).toMatchObject({ status: 'fail', seen: expect.stringContaining('777') })
    expect(await readdir(folders.cache)).not.toContain('machines')
  })
})
