import { describe, expect, it } from 'vitest'
import type { WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import { compileWorkflow } from '../../workflows/compile.ts'
import { WorkspaceManager } from '../../workflows/workspace-manager.ts'

const manager = new WorkspaceManager()

/** Each step by its id; further keys as in the file, with `A@1` before them. */
function read(steps: Readonly<Record<string, object>>, more: object = {}, list: object = {}): WorkspaceData {
  return manager.parse(
    JSON.stringify({
      'A@1#details': { steps: Object.keys(steps).map((id) => ({ id })), ...list },
      ...Object.fromEntries(Object.entries(steps).map(([id, step]) => [`A@1@step-${id}#details`, step])),
      ...Object.fromEntries(Object.entries(more).map(([key, value]) => [`A@1@${key}#details`, value])),
    }),
  )
}

const chat = [{ role: 'user', content: 'go' }]
const compile = (data: WorkspaceData, input: unknown = null, provided: string[] = []) =>
  compileWorkflow(data, input, { provided: new Set(provided) })

describe('a compiled workflow', () => {
  it('has its steps in a plan, under short ids, with their names [S3.01 S3.02]', async () => {
    const { plan, workflow } = await compile(
      read({ '1. Architect': { chat }, '1 Architect!': { chat }, Überblick: { chat, nextStep: '-' } }),
    )
    expect(plan.steps.map(({ id, title, needs }) => [id, title, needs])).toEqual([
      ['1-architect', '1. Architect', []],
      ['1-architect-2', '1 Architect!', ['1-architect']],
      ['berblick', 'Überblick', ['1-architect-2']],
    ])
    expect(workflow.steps['1-architect']).toEqual({
      name: '1. Architect',
      after: [],
      chat: [{ role: 'user', text: 'go' }],
    })
    expect(workflow).toMatchObject({
      name: 'A',
      version: '1',
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
  })

  it('says what a step may add; one that runs within another may add nothing [S3.11]', async () => {
    const adding = read({ a: { chat, mayAdd: { steps: 3 } }, b: { chat, mayAdd: {} } })
    const { workflow } = await compile(adding)
    expect(workflow.steps.a?.mayAdd).toEqual({ steps: 3, functions: 0 })
    expect(workflow.steps.b).not.toHaveProperty('mayAdd')
    const outer = read({ a: { workflow: { from: 'inner.json' } } })
    await expect(
      compileWorkflow(outer, null, { provided: new Set(), parts: new Map([['inner.json', adding]]) }),
    ).rejects.toThrow(/step "a" mayAdd: only the workflow itself gets further steps/)
  })

  it('says how steps are reached: cases, joins, failures and conversations [S3.09]', async () => {
    const { plan, workflow } = await compile(
      read({
        a: {
          chat,
          passConversationToNextStep: true,
          nextStep: [{ when: 'input.x', step: 'b' }, { step: 'c' }],
          onFailure: { step: 'd' },
          retries: 2,
        },
        b: { chat, nextStep: 'd' },
        c: { chat, nextStep: 'd', when: 'steps.a.state == "completed"' },
        d: { chat, nextStep: '-', onFailure: 'continue' },
      }),
    )
    expect(workflow.steps).toMatchObject({
      a: { after: [], cases: ['input.x', null] },
      b: { after: [{ step: 'a', on: 'completed', case: 0 }], continues: ['a'] },
      c: { after: [{ step: 'a', on: 'completed', case: 1 }], continues: ['a'] },
      d: {
        after: [
          { step: 'a', on: 'failed' },
          { step: 'b', on: 'completed' },
          { step: 'c', on: 'completed' },
        ],
      },
    })
    expect(plan.steps.map(({ onFailure, retries = 0 }) => `${onFailure} ${retries}`)).toEqual([
      'continue 2',
      'abort 0',
      'abort 0',
      'continue 0',
    ])
  })

  it('has code for the functions that the application does not provide [S3.03]', async () => {
    const data = read(
      { a: { chat, function: ['mine', { name: 'coded' }, 'offered_by_mcp'] } },
      {
        'func-mine': {
          description: 'x',
          parameters: [{ type: 'string', name: 's' }],
          code: 'function mine() {}',
        },
        'func-coded': {
          description: 'y',
          parameters: [
            { type: 'array', name: 'list', items: { type: 'string' } },
            { type: 'string', name: 'how', enum: ['up'], required: false },
          ],
          code: 'def coded(): pass',
          language: 'python',
        },
        'func-unused': { description: 'z' },
      },
    )
    const { workflow } = await compile(data, null, ['mine'])
    expect(workflow.functions).toEqual([
      {
        name: 'coded',
        description: 'y',
        parameters: {
          type: 'object',
          properties: {
            list: { type: 'array', items: { type: 'string' } },
            how: { type: 'string', enum: ['up'] },
          },
          required: ['list'],
          additionalProperties: false,
        },
        language: 'python',
        code: 'def coded(): pass',
        timeoutMs: 30_000,
        memoryMiB: 256,
      },
    ])
  })

  it('refuses an input that does not fit its schema, and functions that nobody carries out [S3.01 S3.03]', async () => {
    const input = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
    const data = read({ a: { chat } }, {}, { input })
    await expect(compile(data, { n: 1 })).resolves.toBeDefined()
    await expect(compile(data, { n: 'x' })).rejects.toThrow(/workflow A@1 cannot run: the input .*n: /)
    await expect(compile(data, 1n)).rejects.toThrow(/the input of the workflow A@1 must be JSON/)
    const missing = read({ a: { chat, function: ['mine'] } }, { 'func-mine': { description: 'x' } })
    await expect(compile(missing)).rejects.toThrow(/"mine" has no code, and the application provides none/)
    const reserved = read(
      { a: { call: { function: 'run_bash', arguments: {} } } },
      { 'func-run_bash': { description: 'x', code: 'x' } },
    )
    await expect(compile(reserved)).rejects.toThrow(/"run_bash" has the name of a tool of Caisson/)
  })

  it.each([
    ['javascript', 'delete'],
    ['javascript', 'await'],
    ['python', 'lambda'],
    ['python', 'None'],
  ])('refuses code whose name %s reserves: %s [S3.03]', async (language, name) => {
    const details = { description: 'x', code: 'x', language }
    const data = read({ a: { chat, function: [name] } }, { [`func-${name}`]: details })
    await expect(compile(data)).rejects.toThrow(
      `the function "${name}" has a name that ${language} reserves; give it another`,
    )
  })

  it('refuses input that no message can carry, and a parameter __proto__ [S3.01 S3.03]', async () => {
    const data = read({ a: { chat } })
    await expect(compile(data, JSON.parse('{"a":{"__proto__":1}}'))).rejects.toThrow(
      'has the key "__proto__"',
    )
    const deep = JSON.parse(`${'['.repeat(40)}${']'.repeat(40)}`)
    await expect(compile(data, deep)).rejects.toThrow('nests deeper than 32 levels')
    const parameters = [{ type: 'string', name: '__proto__' }]
    expect(() => read({ a: { chat } }, { 'func-mine': { description: 'x', parameters } })).toThrow(
      /name of a parameter/,
    )
  })

  it('has the same digest for the same content, whatever the order of its keys [S3.01]', async () => {
    const a = read({ a: { chat, maxTurns: 3 } })
    const b = read({ a: { maxTurns: 3, chat } })
    const other = read({ a: { chat, maxTurns: 4 } })
    const [first, second, third] = await Promise.all(
      [a, b, other].map(async (data) => (await compile(data)).workflow),
    )
    expect(first?.sha256).toBe(second?.sha256)
    expect(first?.sha256).not.toBe(third?.sha256)
  })
})

describe('a workflow of the application', () => {
  it('is checked as a file is [S3.01]', () => {
    const data = read({ a: { chat } })
    expect(manager.check(data)).toEqual(data)
    const broken = { ...data, steps: data.steps.map((step) => ({ ...step, details: { chat: [] } })) }
    expect(() => manager.check(broken as never)).toThrow(/cannot run/)
    for (const value of [null, 3, {}, { steps: [], functions: [] }])
      expect(() => manager.check(value as never)).toThrow(/workflow/)
  })
})
