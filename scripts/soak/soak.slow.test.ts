import path from 'node:path'
import { execa } from 'execa'
import { expect, it } from 'vitest'

const root = path.join(import.meta.dirname, '../..')
const minutes = 1

it(`${minutes} minute of random runs and losses leaves each run whole, and nothing behind [R.01, V.01]`, async () => {
  const args = ['--conditions=caisson-source', 'scripts/soak/soak.ts', '--minutes', String(minutes), '--json']
  const { stdout, stderr, exitCode } = await execa(process.execPath, args, {
    cwd: root,
    reject: false,
    timeout: 580_000,
  })
  console.log(stderr)
  // The violations first: a long message is cut at its end.
  if (stdout !== '') expect(JSON.parse(stdout).breaches).toEqual([])
  expect(exitCode, stderr.slice(-4_000)).toBe(0)
  expect(stdout).not.toBe('')
})
