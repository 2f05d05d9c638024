import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { compileWorkflow } from '../../workflows/compile.ts'
import { loadWhole } from '../../workflows/load-parts.ts'
import { digestOf } from '../../workflows/workflow-file.ts'
import type { WorkflowStore } from '../../workflows/workflow-store.ts'
import { WorkspaceManager } from '../../workflows/workspace-manager.ts'

/** Text of a workflow of these keys, behind the name. */
function file(name: string, ids: readonly string[], keys: Readonly<Record<string, object>>): string {
  return JSON.stringify({
    [`${name}#details`]: { steps: ids.map((id) => ({ id })) },
    ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${name}@${key}#details`, value])),
  })
}

const chat = [{ role: 'user', content: 'go' }]
const add = {
  description: 'adds',
  parameters: [
    { type: 'number', name: 'a' },
    { type: 'number', name: 'b', required: false },
  ],
  code: 'function add(a, b = 0) { return a + b }',
}
const greet = { chat: [{ role: 'user', content: 'greet {{input}}' }], function: ['add'], retries: 2 }
const library = file('Lib@1', ['greet', 'end'], {
  'step-greet': { ...greet, nextStep: 'end', onFailure: { step: 'end' } },
  'step-end': { chat },
  'func-add': add,
})

interface Counted {
  readonly store: WorkflowStore
  readonly asked: string[]
}

/** A store of texts by `AGENT@VERSION`. */
function storeOf(texts: Readonly<Record<string, string>>): Counted {
  const asked: string[] = []
  const get = (name: string, version: string) => {
    asked.push(`${name}@${version}`)
    return Promise.resolve(texts[`${name}@${version}`] ?? null)
  }
  return { asked, store: { get, list: async () => [], put: async () => undefined } }
}

async function compile(text: string, texts: Readonly<Record<string, string>>, folder: string | null = null) {
  const { store } = storeOf(texts)
  const { data, parts, uses } = await loadWhole(new WorkspaceManager().parse(text), { folder, store })
  return await compileWorkflow(data, 'x', { provided: new Set(), parts, uses })
}

const refusal = async (text: string, texts: Readonly<Record<string, string>>): Promise<string> =>
  await compile(text, texts).then(
    () => 'accepted',
    (error: unknown) => String(error),
  )

describe('a step and a function of another workflow', () => {
  it('run as if they were written here, with what the step names, and where it leads is said here [S3.07]', async () => {
    const { plan, workflow } = await compile(
      file('A@1', ['hi', 'sum'], {
        'step-hi': { from: 'Lib@1@step-greet', effort: 'low' },
        'step-sum': { call: { function: 'add', arguments: { a: 1 } } },
        'func-add': { from: 'Lib@@1@func-add' },
      }),
      { 'Lib@1': library },
    )
    const here = await compile(
      file('A@1', ['hi', 'sum'], {
        'step-hi': { ...greet, effort: 'low' },
        'step-sum': { call: { function: 'add', arguments: { a: 1 } } },
        'func-add': add,
      }),
      {},
    )
    expect(plan).toEqual(here.plan)
    expect(plan.steps[0]).toMatchObject({ retries: 2, effort: 'low' })
    const { uses, ...rest } = workflow
    expect(rest).toEqual(here.workflow)
    expect(uses).toEqual([{ from: 'Lib@1', sha256: digestOf(library) }])
  })

  it('are found beside the file before the store, and through other workflows [S3.07]', async () => {
    const folder = await temporaryFolder('taken')
    await writeFile(
      path.join(folder, 'mid.workflow.json'),
      file('Mid@1', ['x'], { 'step-x': { from: 'Lib@1@step-greet' } }),
    )
    const text = file('A@1', ['a'], { 'step-a': { from: 'Mid@1@step-x' } })
    const { workflow } = await compile(text, { 'Lib@1': library, 'Mid@1': 'never read' }, folder)
    expect(workflow.steps.a?.chat).toEqual([{ role: 'user', text: 'greet {{input}}' }])
    expect(workflow.functions?.map(({ name }) => name)).toEqual(['add'])
    expect(workflow.uses?.map(({ from }) => from)).toEqual(['Lib@1', 'Mid@1'])
  })

  it('cannot be files beside the workflow that runs, for a workflow of the store [S3.07]', async () => {
    const folder = await temporaryFolder('taken')
    await writeFile(path.join(folder, 'b.json'), file('B@1', ['x'], { 'step-x': { chat } }))
    const text = file('A@1', ['a', 'b'], {
      'step-a': { workflow: { from: 'b.json' } },
      'step-b': { workflow: { from: 'Lib@1' } },
    })
    const library = file('Lib@1', ['x'], { 'step-x': { workflow: { from: 'b.json' } } })
    await expect(compile(text, { 'Lib@1': library }, folder)).rejects.toThrow(
      /Lib@1 cannot run: step "x" workflow.from: "b\.json" is not AGENT@VERSION/,
    )
  })

  it('are read once for each run, so that a store cannot change them meanwhile [S3.07]', async () => {
    let count = 0
    const get = () => Promise.resolve(count++ === 0 ? library : library.replaceAll('greet {{', 'other {{'))
    const store: WorkflowStore = { get, list: async () => [], put: async () => undefined }
    const text = file('A@1', ['a', 'b'], {
      'step-a': { from: 'Lib@1@step-greet' },
      'step-b': { from: 'Lib@1@step-greet' },
      'func-add': { from: 'Lib@1@func-add', sha256: digestOf(library) },
    })
    const manager = new WorkspaceManager({ store })
    const { data } = await loadWhole(manager.parse(text), { folder: null, store })
    expect(count).toBe(1)
    expect(data.steps.map(({ details }) => details.chat)).toEqual([greet.chat, greet.chat])
    // Pinned, the next reading refuses what the store has now.
    await expect(loadWhole(manager.parse(text), { folder: null, store })).rejects.toThrow(
      /function "add" from: "Lib@1" has the SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}/,
    )
  })

  it.each([
    ['a step that is not there', { 'step-a': { from: 'Lib@1@step-nope' } }, /"Lib@1" has no step "nope"/],
    [
      'a function that is not there',
      { 'step-a': { chat }, 'func-nope': { from: 'Lib@1@func-nope' } },
      /function "nope": "Lib@1" has no function "nope"/,
    ],
    [
      'a workflow that is not there',
      { 'step-a': { from: 'Lib@2@step-greet' } },
      /no workflow "Lib@2": the store has none/,
    ],
    [
      'another digest',
      { 'step-a': { from: 'Lib@1@step-greet', sha256: '0'.repeat(64) } },
      /step "a" from: "Lib@1" has the SHA-256 [0-9a-f]{64}, expected 0{64}/,
    ],
    [
      'a function that differs from the one here',
      { 'step-a': { from: 'Lib@1@step-greet' }, 'func-add': { ...add, code: 'function add() {}' } },
      /step "a": the function "add" that comes with it differs from the one here/,
    ],
    [
      'a step that reads what this workflow does not have',
      { 'step-a': { from: 'Reads@1@step-b' } },
      /step "a" chat 0 content: reads step "first", but no step has this id/,
    ],
    [
      'a call of a function that takes other arguments',
      {
        'step-a': { call: { function: 'add', arguments: { c: 1 } } },
        'func-add': { from: 'Lib@1@func-add' },
      },
      /step "a" call arguments c: is no argument of the function "add", whose parameters are "a", "b"/,
    ],
    [
      'a file that leads back to itself',
      { 'step-a': { from: 'Self@1@step-a' } },
      /"Self@1" leads back to itself/,
    ],
    ['a circle', { 'step-a': { from: 'C1@1@step-a' } }, /leads back to itself/],
    ['a long chain', { 'step-a': { from: 'D0@1@step-a' } }, /more than 4 workflows are inside one another/],
    [
      'too many',
      Object.fromEntries(
        Array.from({ length: 17 }, (_, n) => [`func-f${n}`, { from: `F${n}@1@func-f${n}` }]),
      ),
      /more than 16 workflows in all/,
    ],
    [
      'a file of the store that names a file',
      { 'step-a': { from: 'Path@1@step-a' } },
      /"\.\.\/b\.json" is not AGENT@VERSION/,
    ],
  ])('are refused with %s [S3.07]', async (_, keys, why) => {
    const chain = Array.from({ length: 6 }, (__, n) => [
      `D${n}@1`,
      file(`D${n}@1`, ['a'], { 'step-a': n === 5 ? { chat } : { from: `D${n + 1}@1@step-a` } }),
    ])
    const many = Array.from({ length: 17 }, (__, n) => [
      `F${n}@1`,
      file(`F${n}@1`, ['a'], { 'step-a': { chat }, [`func-f${n}`]: { ...add, code: `function f${n}() {}` } }),
    ])
    const reads = { chat: [{ role: 'user', content: '{{steps.first.output}}' }] }
    const texts = {
      'Lib@1': library,
      'Reads@1': file('Reads@1', ['first', 'b'], { 'step-first': { chat }, 'step-b': reads }),
      'Self@1': file('Self@1', ['a'], { 'step-a': { from: 'Self@1@step-a' } }),
      'C1@1': file('C1@1', ['a'], { 'step-a': { from: 'C2@1@step-a' } }),
      'C2@1': file('C2@1', ['a'], { 'step-a': { workflow: { from: 'C1@1' } } }),
      'Path@1': file('Path@1', ['a'], { 'step-a': { workflow: { from: '../b.json' } } }),
      ...Object.fromEntries([...chain, ...many]),
    }
    const whole = 'step-a' in keys ? keys : { ...keys, 'step-a': { chat } }
    expect(await refusal(file('A@1', ['a'], whole), texts)).toMatch(why)
  })

  it.each([
    ['step-a', { from: 'Lib@1' }, /from: expected AGENT@VERSION@step-NAME/],
    ['step-a', { from: 'Lib@1@func-add' }, /from: expected AGENT@VERSION@step-NAME/],
    ['step-a', { from: '../Lib@1@step-a' }, /from: names an agent or version with \/ or \\/],
    ['step-a', { from: '..@1@step-a' }, /from: names an agent or version/],
    ['step-a', { from: 'Lib@1@step-a', chat }, /has chat and from/],
    ['step-a', { chat, sha256: '0'.repeat(64) }, /sha256: belongs to `from`/],
    ['step-a', { from: 'Lib@1@step-a', sha256: 'x' }, /sha256: expected 64 hex digits/],
    ['func-add', { from: 'Lib@1@func-plus' }, /from: must end in "func-add"/],
    ['func-add', { from: 'Lib@1@func-add', code: 'x' }, /code/],
    ['func-add', { from: 'a/b@1@func-add' }, /from: names an agent or version/],
    ['func-add', { from: 5 }, /from/],
  ])('are refused in a file as %s %j [S3.01]', (key, value, why) => {
    const text = file('A@1', ['a'], { 'step-a': { chat }, [key]: value })
    expect(() => new WorkspaceManager().parse(text)).toThrow(why)
  })

  it('survive a copy of the application, and are loaded by a manager with a store [S3.07]', async () => {
    const text = file('A@1', ['a'], {
      'step-a': { from: 'Lib@1@step-greet' },
      'func-add': { from: 'Lib@1@func-add' },
    })
    const manager = new WorkspaceManager({ store: storeOf({ 'Lib@1': library }).store })
    const data = manager.parse(text)
    expect(manager.check(data)).toEqual(data)
    const folder = await temporaryFolder('taken')
    await writeFile(path.join(folder, 'a.json'), text)
    const loaded = await manager.load(path.join(folder, 'a.json'))
    expect(loaded).toMatchObject({ steps: [{ work: 'chat' }], functions: [{ name: 'add' }] })
    expect(loaded.taken).toBeUndefined()
    await expect(new WorkspaceManager().load(path.join(folder, 'a.json'))).rejects.toThrow(
      /no workflow "Lib@1"/,
    )
  })
})
