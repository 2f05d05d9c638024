import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const run = promisify(execFile)
const program = path.join(import.meta.dirname, '../../scripts/check-node.mjs')

it('says what to do where npm takes a Node that is too old', async () => {
  expect(await run(process.execPath, [program])).toEqual({ stdout: '', stderr: '' })
  const old = `data:text/javascript,Object.defineProperty(process, 'version', { value: 'v20.1.0' })`
  const env = { ...process.env, npm_lifecycle_event: 'image' }
  const failure = await run(process.execPath, ['--import', old, program], { env }).catch(
    (error: unknown) => error,
  )
  expect(failure).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/needs Node 24 or newer, .* v20\.1\.0 .*first in PATH.* npm run image$/ms),
  })
})

it('is asked by every npm script that starts TypeScript', async () => {
  const file = await readFile(path.join(import.meta.dirname, '../../package.json'), 'utf8')
  const { scripts } = JSON.parse(file) as { scripts: Record<string, string> }
  const starting = Object.entries(scripts).filter(([, line]) => /\.ts\b|vitest/.test(line))
  expect(starting.length).toBeGreaterThan(10)
  for (const [name, line] of starting)
    expect([name, line]).toEqual([name, expect.stringMatching(/^node scripts\/check-node\.mjs && /)])
})
