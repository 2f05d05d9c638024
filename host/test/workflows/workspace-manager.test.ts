import { execFileSync } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { pathToFileURL } from 'node:url'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../cli/main.ts'
import { digestOf } from '../../workflows/workflow-file.ts'
import { WorkflowError, WorkspaceManager } from '../../workflows/workspace-manager.ts'

const good = {
  'A@1#details': { steps: [{ id: 'a' }], description: 'Greets' },
  'A@1@step-a#details': { chat: [{ role: 'user', content: 'Hello {{ input.name }}' }] },
}
const bad = {
  ...good,
  'A@1@step-a#details': { chat: [{ role: 'user', content: 'x' }], nextStep: '\u001b[31mz' },
}

/** A folder with a good workflow, a bad one, and what is no workflow. */
async function folder(): Promise<string> {
  const home = await temporaryFolder('workflows')
  await writeFile(path.join(home, 'good.workflow.json'), JSON.stringify(good))
  await writeFile(path.join(home, 'bad.workflow.yaml'), JSON.stringify(bad))
  await writeFile(path.join(home, 'package.json'), '{}')
  await writeFile(path.join(home, 'bytes.json'), Buffer.from([0xff, 0xfe, 0]))
  await writeFile(path.join(home, 'long.json'), Buffer.alloc(3 * 1024 * 1024, 0x20))
  await mkdir(path.join(home, 'folder.json'))
  execFileSync('mkfifo', [path.join(home, 'pipe.json')])
  return home
}

const cli = async (...argv: string[]) => await cliAt(await temporaryFolder('workflow-home'), ...argv)

async function cliAt(home: string, ...argv: string[]) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), PATH: process.env.PATH }
  const code = await runCli(argv, { stdin: new PassThrough(), stdout, stderr, env, version: '0' })
  stdout.end()
  stderr.end()
  return { code, stdout: await text(stdout), stderr: await text(stderr) }
}

describe('WorkspaceManager', () => {
  it('loads a file by its path or URL [S3.01]', async () => {
    const file = path.join(await folder(), 'good.workflow.json')
    const manager = new WorkspaceManager()
    for (const place of [file, pathToFileURL(file)])
      expect(await manager.load(place)).toMatchObject({ agent: 'A', version: '1', steps: [{ id: 'a' }] })
  })

  it('throws an error with every problem', async () => {
    const file = path.join(await folder(), 'bad.workflow.yaml')
    const error: unknown = await new WorkspaceManager().load(file).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(WorkflowError)
    expect(error).toMatchObject({
      code: 'invalid_workflow',
      problems: [{ key: 'A@1@step-a#details', path: 'nextStep', line: 1 }],
    })
  })

  it.each([
    ['missing.json', 'cannot read the workflow'],
    ['bytes.json', 'is not UTF-8 text'],
    ['long.json', 'is longer than'],
    ['folder.json', 'is not a file'],
    ['pipe.json', 'is not a file'],
    ['package.json', 'is no workflow'],
  ])('refuses %s with the reason', async (name, reason) => {
    await expect(new WorkspaceManager().load(path.join(await folder(), name))).rejects.toThrow(reason)
  })

  it.each([undefined, null, 5, '', 'a\0b', new URL('https://example.com/x'), {}])(
    'refuses %s in place of a path',
    async (value) => {
      const manager = new WorkspaceManager()
      await expect(manager.load(value as string)).rejects.toBeInstanceOf(WorkflowError)
      await expect(manager.list(value as string)).rejects.toBeInstanceOf(WorkflowError)
    },
  )
})

describe('caisson workflow', () => {
  it('checks files, and prints each problem with its place', async () => {
    const home = await folder()
    const both = await cli(
      'workflow',
      'check',
      path.join(home, 'good.workflow.json'),
      path.join(home, 'bad.workflow.yaml'),
    )
    expect(both.code).toBe(2)
    expect(both.stdout).toContain('good.workflow.json: A@1: 1 step, 0 functions, no problem')
    expect(both.stdout).toMatch(
      /bad\.workflow\.yaml:1:\d+: "A@1@step-a#details" nextStep: no step has the id/,
    )
    expect(both.stdout).not.toContain('\u001b[31m')
    const json = await cli('workflow', 'check', '--json', path.join(home, 'bad.workflow.yaml'))
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: false, path: 'nextStep', line: 1 })
    expect(await cli('workflow', 'check', path.join(home, 'missing.json'))).toMatchObject({
      code: 2,
      stdout: '',
    })
  })

  it('names the file that has the problem, also where another one names it', async () => {
    const home = await folder()
    const [outer, inner] = ['outer.workflow.json', 'bad.workflow.yaml'].map((name) => path.join(home, name))
    const step = { workflow: { from: 'bad.workflow.yaml' } }
    await writeFile(outer ?? '', JSON.stringify({ ...good, 'A@1@step-a#details': step }))
    const { code, stdout } = await cli('workflow', 'check', outer ?? '')
    expect(code).toBe(2)
    expect(stdout).toMatch(/^\S+bad\.workflow\.yaml:1:\d+: "A@1@step-a#details" nextStep: no step has the id/)
    const json = await cli('workflow', 'check', '--json', outer ?? '')
    expect(JSON.parse(json.stdout)).toMatchObject({ file: inner, ok: false, path: 'nextStep' })
  })

  it('draws a file, and writes only a new one', async () => {
    const home = await folder()
    const file = path.join(home, 'good.workflow.json')
    expect((await cli('workflow', 'draw', file)).stdout).toContain('flowchart TD')
    const image = path.join(home, 'good.svg')
    expect(await cli('workflow', 'draw', '--svg', '-o', image, file)).toMatchObject({ code: 0, stdout: '' })
    expect(await cli('workflow', 'draw', '--svg', '-o', image, file)).toMatchObject({ code: 2 })
  })

  it('lists the files of a folder, those with problems too', async () => {
    const home = await folder()
    const { code, stdout } = await cli('workflow', 'list', home)
    expect(code).toBe(0)
    expect(stdout.split('\n')).toHaveLength(3)
    expect(stdout).toMatch(/good\.workflow\.json {2}A@1 {2}1 step {2}Greets/)
    expect(stdout).toMatch(/bad\.workflow\.yaml {2}1:\d+: /)
    expect((await cli('workflow', 'list', await temporaryFolder('none'))).stdout).toContain(
      'No workflow here',
    )
  })

  it('publishes files, and lists, checks, draws and shows them by name and version [S3.07]', async () => {
    const [home, place] = [await temporaryFolder('workflow-home'), await folder()]
    const file = path.join(place, 'good.workflow.json')
    const published = await cliAt(home, 'workflow', 'publish', file)
    expect(published).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^A@1 {2}published, SHA-256 [0-9a-f]{64}\n$/),
    })
    expect((await cliAt(home, 'workflow', 'list')).stdout).toContain(published.stdout)
    expect((await cliAt(home, 'workflow', 'list', place)).stdout).not.toContain('published')
    const { stdout } = await cliAt(home, 'workflow', 'list', '--json')
    expect(JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '')).toEqual({
      file: null,
      agent: 'A',
      version: '1',
      sha256: digestOf(JSON.stringify(good)),
    })
    expect((await cliAt(home, 'workflow', 'show', 'A@1')).stdout).toBe(JSON.stringify(good))
    expect((await cliAt(home, 'workflow', 'check', 'A@1')).stdout).toContain('A@1: A@1: 1 step')
    expect((await cliAt(home, 'workflow', 'draw', 'A@1')).stdout).toContain('flowchart TD')
    await writeFile(file, JSON.stringify({ ...good, 'A@1#details': { steps: [{ id: 'a' }] } }))
    for (const [argv, why] of [
      [['publish', file], /published with other content/],
      [['publish', path.join(place, 'bad.workflow.yaml')], /no step has the id/],
      [['show', 'A@2'], /no workflow "A@2"/],
      [['show', '../x'], /must be AGENT@VERSION/],
      [['check', 'B@1'], /no workflow "B@1"/],
      [['run', 'B@1'], /no workflow "B@1"/],
    ] as const)
      expect(await cliAt(home, 'workflow', ...argv)).toMatchObject({
        code: 2,
        stdout: '',
        stderr: expect.stringMatching(why),
      })
  })

  it('prints the JSON schema', async () => {
    expect(JSON.parse((await cli('workflow', 'schema')).stdout)).toMatchObject({ type: 'object' })
  })
})
