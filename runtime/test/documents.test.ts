// The program that the documents give a new user, run as it stands there.
import { execFile } from 'node:child_process'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { calls, createScriptedModel, text } from '../testing/index.ts'

const root = path.join(import.meta.dirname, '../..')

it('the whole program of the documents asks a model, carries its call out and prints the answer [S2.01 S2.19]', async () => {
  const document = await readFile(path.join(root, 'specs/runtime-library.md'), 'utf8')
  const program = /## A whole program .*?```ts\n(.*?)```/s.exec(document)?.[1] ?? ''
  const folder = await temporaryFolder('program')
  await mkdir(path.join(folder, 'node_modules'))
  await symlink(root, path.join(folder, 'node_modules/caisson'))
  await symlink(path.join(root, 'node_modules/zod'), path.join(folder, 'node_modules/zod'))
  await writeFile(path.join(folder, 'package.json'), '{"type":"module"}')
  await writeFile(path.join(folder, 'program.ts'), program)
  await using model = createScriptedModel({
    replies: [calls({ name: 'weather', arguments: { city: 'Oslo' } }), text('Take one.')],
  })
  const env = { ...process.env, MODEL_URL: await model.listen(), MODEL: 'scripted' }
  const given = ['--conditions=caisson-source', 'program.ts']
  const { stdout } = await promisify(execFile)(process.execPath, given, { cwd: folder, env })
  expect(stdout).toBe('text_response Take one.\n')
  expect(model.requests[1]?.lastResult).toBe('Oslo: rain, 7 degrees')
  model.assertDone()
})
