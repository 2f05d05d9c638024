// The tasks of examples/trigger fit the types of Trigger.dev's SDK, installed by their lock, and those of the package.
import { execFile } from 'node:child_process'
import { appendFile, cp, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const run = promisify(execFile)
const root = path.join(import.meta.dirname, '../..')
const { NODE_OPTIONS: _, ...inherited } = process.env

async function compile(folder: string): Promise<string> {
  const compiler = path.join(root, 'node_modules/typescript/bin/tsc')
  const ran = run(process.execPath, [compiler, '--pretty', 'false', '-p', 'check.json'], { cwd: folder })
  return await ran.then(
    () => '',
    ({ stdout }: { stdout: string }) => stdout,
  )
}

it('compiles the tasks against the SDK, and notices a payload that does not fit [S4.09]', async () => {
  const folder = path.join(await temporaryFolder('trigger'), 'example')
  await cp(path.join(root, 'examples/trigger'), folder, { recursive: true })
  const env = {
    ...inherited,
    NODE_USE_SYSTEM_CA: '1',
    PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
  }
  await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: folder, env })
  // In the place of the installed package: the sources of this checkout.
  const compilerOptions = {
    customConditions: ['caisson-source'],
    allowImportingTsExtensions: true,
    typeRoots: [path.join(root, 'node_modules/@types')],
    paths: {
      'caisson/agent': [path.join(root, 'goals/index.ts')],
      'caisson/client': [path.join(root, 'client/index.ts')],
    },
  }
  const { lib } = (JSON.parse(await readFile(path.join(root, 'tsconfig.json'), 'utf8')) as Config)
    .compilerOptions
  const check = { extends: './tsconfig.json', compilerOptions: { ...compilerOptions, lib } }
  await writeFile(path.join(folder, 'check.json'), JSON.stringify(check))
  expect(await compile(folder)).toBe('')
  await appendFile(path.join(folder, 'trigger/direct.ts'), '\nawait carryOutGoal.trigger({ goal: 1 })\n')
  expect(await compile(folder)).toContain("not assignable to type 'string'")
})

interface Config {
  readonly compilerOptions: { readonly lib: readonly string[] }
}
