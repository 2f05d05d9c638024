// The scripts of examples/agent as they are, each a process of its own, on the offline model.
import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const start = promisify(execFile)
const folder = path.join(import.meta.dirname, '../../examples/agent')

/** What each prints. */
const expected: Readonly<Record<string, readonly (string | RegExp)[]>> = {
  'math.ts': [
    'Calculation result: 300 (from (100 + 50) * 2)',
    '1. math {"expression":"(100 + 50) * 2"} gave {"result":300,"expression":"(100 + 50) * 2"}',
    'Calculation result: 1267650600228229401496703205376',
    'Calculation result: 12',
  ],
  'web-search.ts': [/^success: .*Python FastAPI best practices/, 'no search was made', 'searches: 1'],
  'governance.ts': [
    '{"proposal_id":"PROP-2025-001","notes":["Legal review completed","Budget approved","Ready for vote"]}',
  ],
}

it('carries out the scripts with the goals of a math, a search and a governance task [S4.01 S4.08]', async () => {
  expect(readdirSync(folder).filter((name) => name.endsWith('.ts'))).toEqual(Object.keys(expected).toSorted())
  const run = async (script: string) => {
    const home = await temporaryFolder('example-home')
    const env = {
      PATH: process.env.PATH,
      HOME: home,
      CAISSON_HOME: home,
      NOTES: path.join(home, 'notes.sqlite'),
    }
    return await start(process.execPath, ['--conditions=caisson-source', path.join(folder, script)], { env })
  }
  const ran = await Promise.all(Object.keys(expected).map(run))
  for (const [index, outputs] of Object.values(expected).entries()) {
    expect(ran[index]?.stderr).toContain('the offline model answers')
    for (const output of outputs)
      expect(ran[index]?.stdout).toEqual(
        typeof output === 'string' ? expect.stringContaining(output) : expect.stringMatching(output),
      )
  }
})
