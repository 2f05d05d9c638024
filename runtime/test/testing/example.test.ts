// The example of the documents, run as its readers run it.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const root = path.join(import.meta.dirname, '../../..')
/** A test process tells its children that they are test processes too. */
const { NODE_OPTIONS: _options, NODE_TEST_CONTEXT: _context, ...env } = process.env

it('tests a tool and a workflow of an application without a model, as the example shows [T.01]', async () => {
  const args = [
    '--conditions=caisson-source',
    '--test',
    '--test-reporter=tap',
    'examples/scripted-model/*.test.ts',
  ]
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env, timeout: 60_000 })
  expect(stdout).toMatch(/^# pass 5$/m)
  expect(stdout).toMatch(/^# fail 0$/m)
}, 70_000)
