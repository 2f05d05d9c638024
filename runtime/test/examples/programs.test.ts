// Programs of applications, run as they stand in programs.md, against a local model server.
import { execFile } from 'node:child_process'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { calls, createScriptedModel, type ScriptedReply, text } from '../../testing/index.ts'

const root = path.join(import.meta.dirname, '../../..')
const mcpServer = path.join(root, 'test/support/mcp-server.ts')

/** What the programs leave to their application; connections to any server reach the local one. */
const surroundings = `
import net from 'node:net'
import { Agent, setGlobalDispatcher } from 'undici'
setGlobalDispatcher(new Agent({
  connect: (_, callback) => {
    const socket = net.connect(Number(process.env.MODEL_PORT), '127.0.0.1', () => callback(null, socket))
    socket.once('error', (error) => callback(error, null))
  },
}))
globalThis.executeTool = async ({ function: { name, arguments: given } }) =>
  JSON.parse(given).filePath === undefined && name === 'read_file'
    ? { ok: false, status: 'error', errorType: 'tool_parameter_validation_failed', toolName: name, message: 'not run', issues: [], corrections: [] }
    : { token: 'blue' }
globalThis.initialState = {
  messages: [{ role: 'user', content: 'Find the token.' }], finalText: '', rejected: [], awaitingVerifiedAction: true,
}
globalThis.modelRequest = { provider: 'openai', model: 'gpt-5', builtIns: { read_file: true } }
`

/** The code of a heading. */
async function programOf(heading: string): Promise<string> {
  const document = await readFile(path.join(import.meta.dirname, 'programs.md'), 'utf8')
  const [, code = ''] = document.split(`## ${heading}\n\`\`\`ts\n`)
  return code.split('\n```')[0] ?? ''
}

async function run(program: string, replies: readonly ScriptedReply[]) {
  const folder = await temporaryFolder('programs')
  await mkdir(path.join(folder, 'node_modules'))
  await symlink(root, path.join(folder, 'node_modules/caisson'))
  await symlink(path.join(root, 'node_modules/undici'), path.join(folder, 'node_modules/undici'))
  await writeFile(path.join(folder, 'package.json'), '{"type":"module"}')
  await writeFile(path.join(folder, 'docs-server.js'), `await import(${JSON.stringify(mcpServer)})`)
  await writeFile(path.join(folder, 'surroundings.js'), surroundings)
  await writeFile(path.join(folder, 'program.ts'), program)
  const model = createScriptedModel(
    replies.length === 0 ? { rules: [{ reply: text(''), optional: true }] } : { replies },
  )
  await using _ = model
  const env = {
    PATH: `${path.dirname(process.execPath)}:/usr/bin:/bin`,
    OPENAI_API_KEY: 'key-of-a-test-0123456789',
    MODEL_PORT: new URL(await model.listen()).port,
  }
  const given = ['--conditions=caisson-source', '--import=./surroundings.js', 'program.ts']
  const { stdout } = await promisify(execFile)(process.execPath, given, { cwd: folder, env, timeout: 60_000 })
  model.assertDone()
  return { stdout, requests: model.requests }
}

const read = calls({ name: 'read_file', arguments: { filePath: 'note.txt' } })

it('a loop with tools of the application runs as it stands [S2.01 S2.19]', async () => {
  const { stdout, requests } = await run(await programOf('A loop'), [read, text('The token is blue.')])
  expect(stdout).toBe('The token is blue.\n')
  expect(requests[0]?.tools.map(({ name }) => name)).toEqual(['read_file'])
  expect(requests[1]?.lastResult).toBe('{"token":"blue"}')
}, 70_000)

it('a loop that requires actions rejects promises in any language, and corrects arguments [S2.27 S2.28]', async () => {
  const program = (await programOf('A loop that requires actions')).replace(
    'runTurnLoop({',
    'runTurnLoop({ modelRequest,',
  )
  const { stdout, requests } = await run(
    `${program}\nconsole.log(result.reason, result.state.rejected, result.state.finalText)`,
    [
      text('Ich sehe gleich nach.'),
      calls({ name: 'read_file', arguments: {} }),
      read,
      text('The token is blue.'),
    ],
  )
  expect(stdout).toContain('text_response')
  expect(stdout).toContain("classification: 'non_progressing'")
  expect(stdout).toContain('The token is blue.')
  expect(requests.map(({ messages }) => messages.at(-1)?.content.slice(0, 22))).toEqual([
    'Find the token.',
    'You said what you will',
    'Your last tool call wa',
    '{"token":"blue"}',
  ])
}, 70_000)

it('an environment with skills and an MCP server answers as it stands, and its process ends [S2.01 S2.03]', async () => {
  const { stdout, requests } = await run(await programOf('An environment'), [text('Two files.')])
  expect(stdout).toBe('Two files.\n')
  const names = requests[0]?.tools.map(({ name }) => name)
  expect(names).toEqual(expect.arrayContaining(['docs_pid', 'list_files', 'read_file']))
  expect(names).not.toContain('shell_cmd')
}, 70_000)

it('registries of an environment are listed as it stands [S2.12 S2.13]', async () => {
  const { stdout } = await run(await programOf('Registries'), [])
  expect(stdout).toContain('(index)')
}, 70_000)
