import { createHash } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { compileWorkflow } from '../../workflows/compile.ts'
import { loadWhole } from '../../workflows/load-parts.ts'
import { WorkspaceManager } from '../../workflows/workspace-manager.ts'

const manager = new WorkspaceManager()
const chat = [{ role: 'user', content: 'go' }]

/** Text of a workflow whose steps are these. */
function file(
  name: string,
  steps: Readonly<Record<string, object>>,
  more: object = {},
  list: object = {},
): string {
  return JSON.stringify({
    [`${name}@1#details`]: { steps: Object.keys(steps).map((id) => ({ id })), ...list },
    ...Object.fromEntries(Object.entries(steps).map(([id, step]) => [`${name}@1@step-${id}#details`, step])),
    ...Object.fromEntries(Object.entries(more).map(([key, value]) => [`${name}@1@${key}#details`, value])),
  })
}

async function folderOf(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporaryFolder('workflow-parts')
  for (const [name, text] of Object.entries(files)) await writeFile(path.join(folder, name), text)
  return folder
}

const compile = async (text: string, folder: string | null, provided: string[] = []) => {
  const { data, parts, uses } = await loadWhole(manager.parse(text), { folder })
  return await compileWorkflow(data, null, { provided: new Set(provided), parts, uses })
}

describe('a workflow in a step', () => {
  it('is a file beside the first one, with its own steps, functions and input [S3.09]', async () => {
    const add = { description: 'adds', parameters: [], code: 'function add() {}' }
    const input = { type: 'object', required: ['n'] }
    const inner = file(
      'B',
      { x: { call: { function: 'add', arguments: {} } } },
      { 'func-add': add },
      { input },
    )
    const folder = await folderOf({ 'b.json': inner })
    const sha256 = createHash('sha256').update(inner).digest('hex')
    const { plan, workflow } = await compile(
      file('A', {
        one: { workflow: { from: 'b.json', sha256, input: { n: 1 } } },
        two: { workflow: { from: 'b.json' }, writes: ['a.txt'] },
      }),
      folder,
    )
    expect(workflow.steps.one?.workflow).toEqual({ part: 'b.json', input: { n: 1 } })
    expect(workflow.parts).toMatchObject({
      'b.json': { name: 'B', version: '1', inputSchema: input, steps: { x: { call: { function: 'add' } } } },
    })
    expect(workflow.functions?.map(({ name }) => name)).toEqual(['add'])
    expect(workflow.uses).toEqual([{ from: 'b.json', sha256 }])
    expect(plan.steps.map(({ writes }) => writes)).toEqual([['*'], ['a.txt']])
  })

  it('writes nothing where its steps write nothing [S0.07]', async () => {
    const folder = await folderOf({ 'b.json': file('B', { x: { chat } }) })
    const { plan } = await compile(file('A', { one: { workflow: { from: 'b.json' } } }), folder)
    expect(plan.steps[0]?.writes).toEqual([])
  })

  it('is found by its agent and version in the folder, if only one has them [S3.07]', async () => {
    const inner = file('B', { x: { chat } })
    const folder = await folderOf({
      'b.workflow.json': inner,
      'other.workflow.yaml': file('C', { x: { chat } }),
    })
    const outer = (from: string) => file('A', { one: { workflow: { from } } })
    const { workflow } = await compile(outer('B@1'), folder)
    expect(workflow.parts).toMatchObject({ 'B@1': { name: 'B', version: '1' } })
    await expect(compile(outer('B@2'), folder)).rejects.toThrow(
      /no workflow "B@2": the folder has neither a file nor/,
    )
    await writeFile(path.join(folder, 'second.workflow.json'), inner)
    await expect(compile(outer('B@1'), folder)).rejects.toThrow(/"B@1" is in b\.workflow\.json and in second/)
  })

  it.each([
    ['../b.json', /expected the name of a file beside this one/],
    ['/etc/passwd', /expected the name of a file beside this one/],
    ['..', /expected the name of a file beside this one/],
    ['none.json', /cannot read the workflow .*none\.json/],
    ['broken.json', /broken\.json .*must be an object|broken\.json cannot run|no workflow/],
    ['self.json', /"self\.json" leads back to itself/],
    ['circle.json', /leads back to itself/],
  ])('is refused as %s [S3.01]', async (from, why) => {
    const folder = await folderOf({
      'broken.json': '[]',
      'self.json': file('S', { x: { workflow: { from: 'self.json' } } }),
      'circle.json': file('C', { x: { workflow: { from: 'other.json' } } }),
      'other.json': file('D', { x: { workflow: { from: 'circle.json' } } }),
    })
    await expect(compile(file('A', { one: { workflow: { from } } }), folder)).rejects.toThrow(why)
  })

  it('is refused with another digest, where there is no file, too deep, and with a function of two meanings [S3.01]', async () => {
    const code = (text: string) => ({ 'func-add': { description: 'adds', code: text } })
    const folder = await folderOf({
      'b.json': file(
        'B',
        { x: { call: { function: 'add', arguments: {} } } },
        code('function add() { return 1 }'),
      ),
      ...Object.fromEntries(
        [1, 2, 3, 4, 5].map((n) => [
          `d${n}.json`,
          file(`D${n}`, { x: { workflow: { from: `d${n + 1}.json` } } }),
        ]),
      ),
      'd6.json': file('D6', { x: { chat } }),
    })
    const one = (workflow: object, more: object = {}) => file('A', { one: { workflow }, two: { chat } }, more)
    await expect(compile(one({ from: 'b.json', sha256: '0'.repeat(64) }), folder)).rejects.toThrow(
      /"b\.json" has the SHA-256 [0-9a-f]{64}, expected 0{64}/,
    )
    await expect(compile(one({ from: 'b.json' }), null)).rejects.toThrow(/is not of a folder/)
    await expect(compile(one({ from: 'd1.json' }), folder)).rejects.toThrow(
      /more than 4 workflows are inside/,
    )
    const both = file(
      'A',
      { one: { workflow: { from: 'b.json' } }, two: { call: { function: 'add', arguments: {} } } },
      code('function add() { return 2 }'),
    )
    await expect(compile(both, folder)).rejects.toThrow(/a function "add" that differs/)
    await expect(compile(both, folder, ['add'])).resolves.toBeDefined()
  })
})
