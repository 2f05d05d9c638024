import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const run = promisify(execFile)
const program = path.join(import.meta.dirname, '../../../scripts/check-node.mjs')

it('says what to do where npm takes a Node that is too old to build the package', async () => {
  expect(await run(process.execPath, [program])).toEqual({ stdout: '', stderr: '' })
  const old = `data:text/javascript,Object.defineProperty(process, 'version', { value: 'v20.1.0' })`
  const failure = await run(process.execPath, ['--import', old, program]).catch((error: unknown) => error)
  expect(failure).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/needs Node 24 or newer, .* v20\.1\.0 .*first in PATH/s),
  })
})
