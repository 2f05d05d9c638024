import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { bundleAgent } from '../../image/agent-bundle.ts'
import { describeNpmPackages, NpmPackages } from '../../image/agent-packages.ts'
import { makeScratch } from './support.ts'

const integrity = `sha512-${'A'.repeat(86)}==`

async function makeLock(folder: string, packages: object): Promise<void> {
  await writeFile(path.join(folder, 'package-lock.json'), JSON.stringify({ packages }))
}

it('names each npm package once, the inner of two nested ones, with version, license and digest of the lock [V.07]', async () => {
  await using scratch = await makeScratch()
  await makeLock(scratch.folder, {
    'node_modules/b': { version: '2.0.0', license: 'MIT', integrity },
    'node_modules/b/node_modules/@s/a': { version: '1.0.0' },
    'node_modules/c/node_modules/@s/a': { version: '1.0.0' },
  })
  const files = [
    'agent/main.ts',
    'node_modules/b/index.js',
    'node_modules/b/lib/x.js',
    'node_modules/b/node_modules/@s/a/i.js',
    'node_modules/c/node_modules/@s/a/i.js',
  ]
  expect(await describeNpmPackages(files.map((file) => path.join(scratch.folder, file)))).toEqual([
    { name: '@s/a', version: '1.0.0' },
    { name: 'b', version: '2.0.0', license: 'MIT', sha512: '0'.repeat(128) },
  ])
})

it('is refused when a package is not pinned [V.07]', async () => {
  await using scratch = await makeScratch()
  await makeLock(scratch.folder, {})
  const file = path.join(scratch.folder, 'node_modules/unpinned/index.js')
  await expect(describeNpmPackages([file])).rejects.toThrow('unpinned is not in')
})

it('lies in the bundle of the real agent, and names what it imports [V.07]', async () => {
  const bundle = await bundleAgent(path.resolve(import.meta.dirname, '../../../agent/main.ts'))
  const packages = NpmPackages.parse(JSON.parse(Buffer.from(bundle.get('packages.json') ?? '').toString()))
  const names = packages.map(({ name }) => name)
  expect(names).toEqual(expect.arrayContaining(['pino', 'vscode-jsonrpc', 'zod']))
  expect(names).not.toContain('esbuild')
  expect(names).not.toContain('undici')
  expect(packages.every(({ license, sha512 }) => license !== undefined && sha512 !== undefined)).toBe(true)
})

it('is empty for an agent that imports no package [V.07]', async () => {
  await using scratch = await makeScratch()
  await mkdir(path.join(scratch.folder, 'agent'))
  const entry = path.join(scratch.folder, 'agent/main.ts')
  await writeFile(entry, 'console.log(1)\n')
  const bundle = await bundleAgent(entry)
  expect(Buffer.from(bundle.get('packages.json') ?? '').toString()).toBe('[]\n')
})
