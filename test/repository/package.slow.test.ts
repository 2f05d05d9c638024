import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const run = promisify(execFile)
const root = path.join(import.meta.dirname, '../..')
/** Without the variables of this test process: the installed package must not need it. */
const { NODE_OPTIONS: _, ...inherited } = process.env

const program = `import { Host, type Run, type RunOptions } from 'caisson'
import { Agent } from 'caisson/agent'
import { type LLMChatMessage, runTurnLoop } from 'caisson/runtime'
import { createScriptedModel, text } from 'caisson/testing'
const options: RunOptions = { prompt: 'x' }
const host = new Host()
const start: (options: RunOptions) => Promise<Run> = (given) => host.run(given)
console.log(typeof start, options.prompt, (await host.provider({ model: 'caisson/offline' })).name)
const model = createScriptedModel({ replies: [text('said')] })
const { response } = await runTurnLoop<LLMChatMessage[]>({
  initialState: [{ role: 'user', content: 'Say it' }],
  callModel: model.callModel,
  buildMessages: ({ state }) => state,
  onTextResponse: ({ state }) => ({ state }),
  onToolCallsResponse: ({ state }) => ({ state }),
})
model.assertDone()
console.log(response?.content)
const env = { ...process.env, CAISSON_MODEL: 'caisson/offline' }
console.log((await Agent.run('Calculate 6 * 7', { vm: false, tools: ['math'], env })).output)
`

it('installed from its archive in an empty project gives a library that imports and a command that runs a task [H.01]', async () => {
  const folder = await temporaryFolder('package')
  const env = {
    ...inherited,
    NODE_USE_SYSTEM_CA: '1',
    PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
  }
  await run('npm', ['pack', '--pack-destination', folder], { cwd: root, env })
  const [archive = ''] = (await readdir(folder)).filter((name) => name.endsWith('.tgz'))
  const project = path.join(folder, 'project')
  await mkdir(project)
  await writeFile(path.join(project, 'package.json'), '{"name":"user","private":true,"type":"module"}')
  await run('npm', ['install', '--no-audit', '--no-fund', path.join(folder, archive)], { cwd: project, env })
  expect(await readdir(path.join(project, 'node_modules/.bin'))).not.toContain('node')

  await writeFile(path.join(project, 'use.ts'), program)
  expect((await run(process.execPath, ['use.ts'], { cwd: project, env })).stdout).toBe(
    'function x offline\nsaid\n[offline model] Calculation result: 42 (from 6 * 7)\n',
  )
  // The documents come with it, and what they show fits the types.
  const document = await readFile(path.join(project, 'node_modules/caisson/specs/runtime-library.md'), 'utf8')
  await writeFile(
    path.join(project, 'whole.ts'),
    /## A whole program .*?```ts\n(.*?)```/s.exec(document)?.[1] ?? '',
  )
  const compiler = path.join(root, 'node_modules/typescript/bin/tsc')
  const types = ['--types', 'node', '--typeRoots', path.join(root, 'node_modules/@types')]
  const strict = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2024']
  await run(process.execPath, [compiler, ...strict, ...types, 'use.ts', 'whole.ts'], {
    cwd: project,
    env,
  }).catch((cause: { stdout?: string }) => {
    throw new Error(`the types of the package do not fit: ${cause.stdout}`)
  })

  const work = path.join(folder, 'work')
  await mkdir(work)
  const command = path.join(project, 'node_modules/.bin/caisson')
  const task = ['run', '-w', work, '--apply', 'Create hello.txt with the content "hello"']
  const state = { CAISSON_HOME: path.join(folder, 'home'), CAISSON_MODEL: 'caisson/offline' }
  const ran = await run(command, task, { env: { ...env, ...state } })
  expect(ran.stdout).toContain('Run completed')
  expect(await readdir(work)).toEqual(['hello.txt'])
})
