// The programs of examples/sandbox-tools, installed by their lock: a real VM, each framework's own client, a scripted model.
import { cp, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { getTestImage, makeTestFolders } from '../../host/test/support/vm.ts'
import { InstalledExample } from '../support/installed-example.ts'

let example: InstalledExample

beforeAll(async () => {
  await getTestImage()
  example = await InstalledExample.install('sandbox-tools')
})

afterAll(async () => await example[Symbol.asyncDispose]())

async function makeWorkspace(): Promise<string> {
  const workspace = path.join(await temporaryFolder('sandbox-tools'), 'work')
  await mkdir(workspace)
  await writeFile(path.join(workspace, 'given.txt'), 'one two three\n')
  return workspace
}

const calls = [
  { name: 'read_file', arguments: '{"path":"missing.txt"}' },
  { name: 'execute', arguments: '{"command":"wc -w < given.txt; id -un; exit 3"}' },
  { name: 'write_file', arguments: '{"path":"out/count.txt","content":"3 words\\n"}' },
]

/** Says what the second call returned, so that the answer proves that the command ran. */
function answer({ messages }: Asked): ServerReply {
  const results = messages.filter(({ role }) => role === 'tool').map(({ content }) => content)
  const next = calls[results.length]
  const made =
    next === undefined
      ? reply({ text: `Seen: ${results.join(' | ')}` })
      : reply({ calls: [{ ...next, id: `call-${results.length}` }] })
  // LangGraph takes two answers of one id for one.
  const ownId = (text = '') => text.replaceAll('chatcmpl-1', `chatcmpl-${results.length}`)
  return { ...made, body: ownId(`${made.body}`), whole: ownId(made.whole) }
}

async function runExample(program: string, input: string): Promise<{ printed: string; files: string[] }> {
  using home = makeTestFolders()
  await using model = await startModelServer(answer)
  const workspace = await makeWorkspace()
  const env = {
    CAISSON_HOME: home.folders.home,
    OPENAI_BASE_URL: model.baseUrl,
    OPENAI_API_KEY: 'sk-of-the-test',
    OPENAI_MODEL: 'scripted',
  }
  const printed = await example.run(program, [workspace, 'Count the words'], { env, input })
  const asked = model.asked[0]
  expect(asked?.tools.map(({ function: { name } }) => name)).toEqual(['execute', 'read_file', 'write_file'])
  expect(await readdir(path.join(home.folders.home, 'vms')).catch(() => [])).toEqual([])
  return { printed, files: await readdir(workspace) }
}

it('compiles against the SDKs, and notices a tool that does not fit [V.12]', async () => {
  expect(await example.compile()).toBe('')
  const other = path.join(example.folder, 'wrong.ts')
  await cp(path.join(example.folder, 'ai-sdk.ts'), other)
  const text = await readFile(other, 'utf8')
  await writeFile(other, text.replace('execute.run(sandbox, input)', 'execute.run(sandbox, { command: 1 })'))
  expect(await example.compile()).toContain("not assignable to type 'string'")
})

describe.each(['ai-sdk.ts', 'langgraph.ts', 'openai-agents.ts'])('%s', (program) => {
  it('gives the model the tools of a VM, and applies its changes once a person says yes [V.12]', async () => {
    const { printed, files } = await runExample(program, 'y\n')
    expect(printed).toContain('Seen: error: ')
    expect(printed).toContain('{"exitCode":3,"stdout":"3\\nwork\\n","stderr":""} | wrote out/count.txt')
    expect(printed).toContain('added "out/count.txt"')
    expect(printed).toContain('Applied')
    expect(files).toEqual(['given.txt', 'out'])
  })
})

it('applies nothing where nobody says yes [V.12]', async () => {
  const { printed, files } = await runExample('ai-sdk.ts', '\n')
  expect(printed).toContain('[y/N]')
  expect(printed).not.toContain('Applied')
  expect(files).toEqual(['given.txt'])
})

it('says in one line what is wrong, without what the model was sent [V.12]', async () => {
  using home = makeTestFolders()
  const env = {
    CAISSON_HOME: home.folders.home,
    OPENAI_BASE_URL: 'http://127.0.0.1:1/v1',
    OPENAI_MODEL: 'none',
  }
  const failed = async (given: readonly string[]) =>
    await example.run('openai-agents.ts', given, { env, input: '' }).then(
      () => '',
      (error: { readonly stderr: string }) => error.stderr,
    )
  expect(await failed([])).toBe('Pass a directory and a prompt, and set OPENAI_BASE_URL and OPENAI_MODEL.\n')
  expect(await failed([await makeWorkspace(), 'Count the words'])).toBe('Connection error.\n')
})

it('offers the AI SDK harness a sandbox with commands, files and ports [V.12]', async () => {
  using home = makeTestFolders()
  const program = path.join(example.folder, 'sandbox-provider.mjs')
  await cp(path.join(import.meta.dirname, '../support/sandbox-provider.mjs'), program)
  const provider = path.join(example.folder, 'ai-sdk-sandbox.ts')
  const env = { CAISSON_HOME: home.folders.home }
  const printed = await example.run(program, [provider, await makeWorkspace()], { env, input: '' })
  expect(JSON.parse(printed)).toEqual({
    given: 'one two three\n',
    bytes: [0, 255, 10, 128],
    lines: 'two\nthree\n',
    streamed: 'streamed',
    missing: [null, null],
    refused: expect.stringContaining('/etc/passwd cannot be written'),
    ran: { exitCode: 7, stdout: 'out\n', stderr: 'err\n' },
    spawned: ['x /mnt/workspace/deep\n', { exitCode: 3 }],
    killed: ['begun\n', { exitCode: 137 }, '0\n'],
    port: 'from the VM',
    otherPort: expect.stringContaining("not one of the sandbox's: 4000"),
    aborted: 'cancelled',
    bootstrapped: [false],
    changes: ['added deep', 'added deep/a.bin', 'added streamed'],
  })
})
