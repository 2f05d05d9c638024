import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { buildRoot, errorFrom } from '../../image/build-root.ts'
import { imageFiles } from '../../image/manifest.ts'
import { describeFiles } from '../../image/verify.ts'
import { makeScratch, realRecipe, type Scratch } from './support.ts'

const run = promisify(execFile)
let scratch: Scratch
let first: string

beforeAll(async () => {
  scratch = await makeScratch()
  first = path.join(scratch.folder, 'first')
  await buildRoot({ recipe: realRecipe, arch: 'amd64', cacheDir: scratch.cacheDir, out: first })
})
afterAll(async () => await scratch[Symbol.asyncDispose]())

it('gives the same bytes from another folder, under another umask, without a network [V.07]', async () => {
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

it('makes three files of at most 130 MB together [V.07]', async () => {
  const files = Object.values(await describeFiles(first, imageFiles))
  expect(files.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(130_000_000)
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
    code: 'lock_unsatisfied',
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
