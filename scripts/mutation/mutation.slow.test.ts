import path from 'node:path'
import { execa } from 'execa'
import { expect, it } from 'vitest'

const root = path.join(import.meta.dirname, '../..')

it('tests notice most of a sample of mutants, and every essential one [T.03]', async () => {
  const program = path.join(import.meta.dirname, 'main.ts')
  const { exitCode, stdout, stderr } = await execa(
    process.execPath,
    ['--conditions=caisson-source', program, '--count', '60', '--seconds', '80', '--seed', '1'],
    { cwd: root, reject: false, timeout: 580_000 },
  )
  console.log(stdout)
  expect(stderr).toBe('')
  expect(exitCode, stdout).toBe(0)
})
