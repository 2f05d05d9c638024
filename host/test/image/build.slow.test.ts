import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { buildRoot, errorFrom } from '../../image/build-root.ts'
import { imageFiles } from '../../image/manifest.ts'
import { ensureRootImage } from '../../image/root-image.ts'
import { Bom } from '../../image/sbom.ts'
import { describeFiles } from '../../image/verify.ts'
import { prepareFolders } from '../../state/folders.ts'
import { makeTestFolders } from '../support/vm.ts'
import { makeScratch, realRecipe, type Scratch } from './support.ts'

const run = promisify(execFile)
let scratch: Scratch
let first: string

beforeAll(async () => {
  scratch = await makeScratch()
  using home = makeTestFolders()
  await prepareFolders(home.folders)
  const { cache } = home.folders
  // The image that all tests use was built in this checkout, or in another one.
  first = (await ensureRootImage({ recipe: realRecipe, arch: 'amd64', cacheDir: cache })).directory
  const downloads = path.join(scratch.cacheDir, 'downloads')
  await cp(path.join(cache, 'downloads'), downloads, { recursive: true }).catch(async () => {
    // They were cleaned meanwhile.
    first = path.join(scratch.folder, 'first')
    await buildRoot({ recipe: realRecipe, arch: 'amd64', cacheDir: scratch.cacheDir, out: first })
  })
})
afterAll(async () => await scratch[Symbol.asyncDispose]())

it('gives the same bytes, bill of materials and all, from another folder, under another umask, without a network [V.07]', async () => {
  const second = path.join(scratch.folder, 'second')
  const cache = path.join(scratch.folder, 'elsewhere')
  await cp(path.join(scratch.cacheDir, 'downloads'), path.join(cache, 'downloads'), { recursive: true })
  const noMirror = path.join(scratch.folder, 'apt')
  await mkdir(noMirror)
  await writeFile(path.join(noMirror, 'sources.list'), 'deb http://127.0.0.1:1/debian bookworm main\n')
  const line = `umask 077; exec bash ${realRecipe}/build.sh --cache ${cache} --out ${second}`
  await run('bash', ['-c', line], {
    env: {
      ...process.env,
      CAISSON_APT_SOURCES: noMirror,
      PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
    },
  })
  expect(await describeFiles(second, imageFiles)).toEqual(await describeFiles(first, imageFiles))
})

it('makes kernel, initramfs and root of at most 120 MB together [V.07]', async () => {
  const files = Object.values(await describeFiles(first, ['vmlinuz', 'initramfs', 'root.erofs']))
  expect(files.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(120_000_000)
})

it('writes a bill of materials that fits the official schema and names every locked package and file [V.07]', async () => {
  const text = await readFile(path.join(first, 'sbom.cdx.json'), 'utf8')
  expect(await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(text)).toBeNull()
  const bom = Bom.parse(JSON.parse(text))
  const lock = await run(process.execPath, [
    path.join(realRecipe, 'packages.mjs'),
    ...['packages', path.join(realRecipe, 'packages.lock.json'), 'amd64'],
  ])
  const locked = lock.stdout
    .trim()
    .split('\n')
    .map((line) => line.split('\t').slice(1, 3).join(' '))
  const [others = [], fromNpm = []] = [false, true].map((isNpm) =>
    bom.components.filter(
      ({ name, purl }) => isNpm === (String(purl).startsWith('pkg:npm/') && name !== 'node'),
    ),
  )
  expect(others.map(({ name, version }) => `${name} ${version}`)).toEqual([
    ...locked,
    expect.stringMatching(/^node 24\./),
  ])
  // npm and what its archive brings with it.
  expect(fromNpm).toContainEqual(expect.objectContaining({ type: 'application', name: 'npm' }))
  expect(fromNpm.length).toBeGreaterThan(100)
  const { vmlinuz, initramfs, ...rest } = await describeFiles(first, imageFiles)
  for (const { sha256 } of [vmlinuz, initramfs, rest['root.erofs']]) expect(text).toContain(sha256)
  expect(bom.components.find(({ name }) => name === 'bash')).toMatchObject({
    purl: expect.stringMatching(/^pkg:deb\/debian\/bash@5\.2\S*\?arch=amd64&distro=bookworm$/),
    licenses: expect.arrayContaining([{ license: { id: 'GPL-3.0-or-later' } }]),
  })
  // Their copyright files are in packages of their own, beside the root.
  const licensed = bom.components.filter((component) => component.licenses !== undefined)
  expect(licensed.map(({ name }) => name)).toContainEqual(expect.stringMatching(/^linux-image-/))
  expect(licensed.length).toBeGreaterThan(60)
})

it('builds for another architecture without running its programs [V.07]', async () => {
  const out = path.join(scratch.folder, 'arm64')
  await buildRoot({ recipe: realRecipe, arch: 'arm64', cacheDir: scratch.cacheDir, out })
  const kernel = await readFile(path.join(out, 'vmlinuz'))
  // The magic number of an arm64 Image (Linux, Documentation/arch/arm64/booting.rst).
  expect(kernel.subarray(56, 60).toString('latin1')).toBe('ARM\x64')
  expect(await readFile(path.join(out, 'sbom.cdx.json'), 'utf8')).toContain('?arch=arm64&distro=bookworm')
})

it('names the packages whose locked version the mirror no longer has, and the remedy [V.07]', async () => {
  const lock = path.join(scratch.folder, 'old.json')
  const text = await readFile(path.join(realRecipe, 'packages.lock.json'), 'utf8')
  const sha256 = '0'.repeat(64)
  const old = text.replace(/("name":"curl","version":")[^"]+(".*?"sha256":")\w+/, `$17.0-1$2${sha256}`)
  await writeFile(lock, old)
  const failure = await run('bash', [
    path.join(realRecipe, 'build.sh'),
    ...['--cache', scratch.cacheDir, '--out', path.join(scratch.folder, 'third'), '--lock', lock],
  ]).catch((error: { stderr: string; code: number }) => errorFrom(error.stderr, error.code))
  expect(failure).toMatchObject({
    kind: 'lock_unsatisfied',
    message: expect.stringMatching(/curl 7\.0-1; .* caisson image build --update-lock/),
  })
})

it('resolves the packages of today into a lock that can be built from [V.07]', async () => {
  const lock = path.join(scratch.folder, 'new.json')
  const script = path.join(realRecipe, 'build.sh')
  await run('bash', [script, '--cache', scratch.cacheDir, '--lock', lock, '--update-lock'], {
    env: { ...process.env, PATH: `${path.dirname(process.execPath)}:${process.env.PATH}` },
  })
  const names = (file: string) =>
    run(process.execPath, [path.join(realRecipe, 'packages.mjs'), 'packages', file, 'amd64'])
  const [mine, locked] = await Promise.all([names(lock), names(path.join(realRecipe, 'packages.lock.json'))])
  const columns = (text: string) =>
    text
      .trim()
      .split('\n')
      .map((row) => row.split('\t').slice(0, 2).join(' '))
  // Versions may have moved on; the kernel's name carries its version.
  const stable = (text: string) => columns(text).filter((row) => !row.startsWith('kernel '))
  expect(stable(mine.stdout)).toEqual(stable(locked.stdout))
})
