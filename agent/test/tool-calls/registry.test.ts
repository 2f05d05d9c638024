// The registry with small tools: every way in which a model or a tool can be wrong becomes a value.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { parseToolValidationFailureArtifact } from '#specs/protocol/validation-failure.ts'
import type { ApprovalQuestion } from '../../tool-calls/call.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, type Tool, toolSuccess } from '../../tool-calls/tool.ts'
import { noteTools, silentLogger } from '../support/run.ts'
import { callAsModel } from '../support/tools.ts'

const echo = defineTool({
  name: 'echo_it',
  description: 'Gives back its input.',
  inputSchema: z.strictObject({
    path: z.string(),
    count: z.int().min(1).max(9).optional(),
    deep: z.boolean().optional(),
    names: z.array(z.string()).optional(),
    oldText: z.string().optional(),
  }),
  outputSchema: z.unknown(),
  requiresApproval: false,
  readOnly: true,
  execute: (input) => Promise.resolve(toolSuccess(input)),
})

const options = { logger: silentLogger, cancelGraceMs: 20 }
const open = (tools: readonly Tool[] = [echo]) => createRegistry(tools, options)
const invokeEcho = (args: unknown) => callAsModel(open(), 'echo_it', args)

describe('names', () => {
  it('refuses a name used twice and a name of another form [S0.04]', () => {
    expect(() => createRegistry([echo, echo], options)).toThrow('two tools are named echo_it')
    expect(() => createRegistry([{ ...echo, name: 'Echo It' }], options)).toThrow('verb_noun')
  })

  it('takes any value of the right shape as a tool [S4.05] [S1.05]', async () => {
    const plain: Tool = { ...echo, name: 'plain_one' }
    expect((await callAsModel(open([plain]), 'plain_one', { path: 'x' })).error).toBeUndefined()
  })

  it('answers an unknown tool with the names that there are [S0.04]', async () => {
    const done = await callAsModel(open(), 'fly_away', {})
    expect(done.error?.code).toBe('unknown_tool')
    expect(done.output).toContain('echo_it')
  })

  it('finds a tool by another case or a prefix, and records it [S2.17]', async () => {
    for (const name of ['Echo_It', 'functions.echo_it', 'echo-it', ' echo_it ']) {
      const done = await callAsModel(open(), name, { path: 'x' })
      expect([done.tool, done.error, done.corrections.length]).toEqual(['echo_it', undefined, 1])
    }
  })

  it('narrows to named tools and refuses unknown ones [S0.04]', () => {
    const registry = createRegistry(noteTools(), options)
    const narrow = registry.select(['write_note', 'read_note'])
    expect(narrow.ok && narrow.value.names).toEqual(['read_note', 'write_note'])
    expect(registry.select(['read_note', 'nope'])).toMatchObject({
      ok: false,
      error: { code: 'unknown_tool' },
    })
  })

  it('describes tools sorted and with few keywords, whatever order they came in [A.05]', () => {
    const specs = createRegistry([...noteTools(), echo], options).specs
    expect(JSON.stringify(createRegistry([echo, ...noteTools().toReversed()], options).specs)).toBe(
      JSON.stringify(specs),
    )
    expect(specs[1]).toEqual({
      name: 'echo_it',
      description: 'Gives back its input.',
      parameters: {
        type: 'object',
        required: ['path'],
        properties: {
          path: { type: 'string' },
          count: { type: 'integer', minimum: 1, maximum: 9 },
          deep: { type: 'boolean' },
          names: { type: 'array', items: { type: 'string' } },
          oldText: { type: 'string' },
        },
      },
    })
  })
})

describe('arguments', () => {
  it.each([
    [{ file_path: 'x' }, { path: 'x' }],
    [
      { filePath: 'x', old_text: 'y' },
      { path: 'x', oldText: 'y' },
    ],
    [
      { path: 'x', count: '3' },
      { path: 'x', count: 3 },
    ],
    [{ path: 5 }, { path: '5' }],
    [
      { path: 'x', deep: 'True' },
      { path: 'x', deep: true },
    ],
    [
      { path: 'x', names: 'one' },
      { path: 'x', names: ['one'] },
    ],
    [
      { path: 'x', names: '["a","b"]' },
      { path: 'x', names: ['a', 'b'] },
    ],
    [{ path: 'x', count: null }, { path: 'x' }],
    ["{'path': 'x',}", { path: 'x' }],
    ['"{\\"path\\":\\"x\\"}"', { path: 'x' }],
  ])('puts %j right and records it [S2.17]', async (args, input) => {
    const done = await invokeEcho(args)
    expect(done.error).toBeUndefined()
    const [output, note] = done.output.split('\n\n[Caisson] The call was corrected ')
    expect(JSON.parse(output ?? '')).toEqual(input)
    expect(done.corrections.length).toBeGreaterThan(0)
    expect(note).toBe(`(${done.corrections.join('; ')}).`)
  })

  it('leaves arguments that fit as they are [S2.17]', async () => {
    const done = await invokeEcho({ path: 'x', count: 2 })
    expect(done.corrections).toEqual([])
    expect(done.output).toBe('{"path":"x","count":2}')
  })

  it.each([
    ['an unknown parameter', { path: 'x', force: true }],
    ['a value of another kind', { path: { a: 1 } }],
    ['a value out of range', { path: 'x', count: 99 }],
    ['a missing parameter', {}],
    ['a list in place of an object', '[1]'],
    ['arguments cut off', '{"path":"x'],
    ['arguments cut off in a list', '{"path":"x","names":["a","b"'],
    ['two objects', '{"path":"a"}{"path":"b"}'],
    ['a parameter given twice', '{"path":"a","path":"b"}'],
    ['a parameter given under two names', { path: 'a', file_path: 'b' }],
    ['text that is no JSON', 'path is x'],
    ['deep JSON', `{"path":${'['.repeat(5_000)}${']'.repeat(5_000)}}`],
    ['prototype keys', '{"path":"x","__proto__":{"polluted":1}}'],
    ['a constructor key', '{"path":"x","constructor":{"prototype":{}}}'],
  ])('refuses %s with an artifact that names the problem [S2.18 S0.04]', async (_name, args) => {
    const done = await invokeEcho(args)
    expect(done.error).toMatchObject({ code: 'invalid_input', retryable: false })
    const artifact = parseToolValidationFailureArtifact(done.output)
    expect(artifact).toMatchObject({ ok: false, status: 'error', toolName: 'echo_it' })
    expect(artifact?.issues.length).toBeGreaterThan(0)
    expect(Object.keys(Object.prototype)).toEqual([])
  })

  it('names path, expected and received type of each issue [S2.18]', async () => {
    const artifact = JSON.parse((await invokeEcho({ path: { a: 1 }, deep: 7 })).output)
    expect(artifact.issues).toMatchObject([
      { path: 'path', code: 'invalid_type', expectedType: 'string', receivedType: 'object' },
      { path: 'deep', code: 'invalid_type', expectedType: 'boolean', receivedType: 'number' },
    ])
  })

  it('refuses huge arguments without reading them [T.02]', async () => {
    expect((await invokeEcho(`{"path":"${'x'.repeat(2_000_000)}"}`)).error?.code).toBe('too_large')
  })

  it('ends with a value for any text [S1.09]', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(fc.string(), fc.json(), fc.constantFrom('{', '[[', 'null', '""')),
        async (text) => {
          const done = await invokeEcho(text)
          expect(done.output.length).toBeGreaterThan(0)
        },
      ),
      { seed: 3, numRuns: 200 },
    )
  })

  it('writes equal values as equal text [A.05]', () => {
    expect(toCanonicalJson({ b: [{ d: 1, c: 2 }], a: 0 })).toBe(
      toCanonicalJson({ a: 0, b: [{ c: 2, d: 1 }] }),
    )
  })
})

describe('results', () => {
  const broken = (fields: Partial<Tool>) => {
    const [readNote] = noteTools()
    if (readNote === undefined) throw new Error('there is no such tool')
    const tool: Tool = { ...readNote, ...fields }
    return callAsModel(open([tool]), 'read_note', { path: 'x' })
  }

  it('makes a value that breaks the output schema an error [S1.06]', async () => {
    const done = await broken({ execute: () => Promise.resolve(toolSuccess({ text: 7 })) })
    expect(done.error?.code).toBe('invalid_output')
  })

  it.each<[string, Partial<Tool>]>([
    ['a rejection', { execute: () => Promise.reject(new Error('secret detail')) }],
    [
      'a throw',
      {
        execute: () => {
          throw new Error('secret detail')
        },
      },
    ],
    [
      'a throw while rendering',
      {
        render: () => {
          throw new TypeError('secret detail')
        },
      },
    ],
  ])('makes %s an internal error without its words [S1.09]', async (_name, fields) => {
    const done = await broken(fields)
    expect(done.error?.code).toBe('internal')
    expect(done.output).not.toContain('secret detail')
  })

  it('cuts long output in its middle with a note, and never gives an empty one [T.02]', async () => {
    const long = await broken({ render: () => `head${'x'.repeat(50_000_000)}tail` })
    expect(long.output.length).toBeLessThanOrEqual(64 * 1024)
    expect(long.output).toMatch(/^head[\s\S]*characters and more cut[\s\S]*tail$/)
    expect((await broken({ render: () => ' ' })).output).toBe('(no output)')
  })

  it('gives up a tool that does not end after its cancel [S4.07]', async () => {
    const controller = new AbortController()
    setTimeout(() => controller.abort(), 5)
    const { signal } = controller
    const done = await callAsModel(open(noteTools()), 'wait_long', { stubborn: true }, { signal })
    expect(done.error?.code).toBe('cancelled')
  })

  it('tells the person which arguments the model did not give [S1.11]', async () => {
    const registry = createRegistry(noteTools(), options)
    const asked: unknown[] = []
    const ask = { askTools: new Set(['wait_long', 'write_note']) }
    const requestApproval = async (question: { arguments: string; defaults?: string[] }) => {
      asked.push([question.arguments, question.defaults])
      return { decision: 'deny' } as const
    }
    await callAsModel(registry, 'wait_long', {}, { ...ask, requestApproval })
    await callAsModel(registry, 'wait_long', { stubborn: false }, { ...ask, requestApproval })
    expect(asked).toEqual([
      ['{"stubborn":false}', ['stubborn']],
      ['{"stubborn":false}', undefined],
    ])
  })

  it('logs each call with its outcome [S1.12]', async () => {
    const lines: string[] = []
    const { pino } = await import('pino')
    const logger = pino({}, { write: (line: string) => void lines.push(line) })
    await callAsModel(createRegistry([echo], { ...options, logger }), 'echo_it', { path: 'x' })
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      tool: 'echo_it',
      callId: 'c1',
      arguments: '{"path":"x"}',
    })
  })
})

describe('approvals', () => {
  const drop = (decision: ApprovalDecision, askTools: string[] = [], name = 'drop_note') => {
    const asked: ApprovalQuestion[] = []
    const diary = { calls: [] as string[], running: 0, mostRunning: 0 }
    const requestApproval = (question: ApprovalQuestion) => {
      asked.push(question)
      return Promise.resolve(decision)
    }
    const fields = { requestApproval, askTools: new Set(askTools) }
    const done = callAsModel(open(noteTools(diary)), name, { path: 'b' }, fields)
    return done.then((invocation) => ({ invocation, asked, calls: diary.calls }))
  }

  it('asks with canonical arguments and a preview before it acts [S1.11 S1.05]', async () => {
    const { asked, calls } = await drop({ decision: 'allow' })
    expect(asked).toEqual([
      { callId: 'c1', tool: 'drop_note', arguments: '{"path":"b"}', preview: 'deletes b' },
    ])
    expect(calls).toEqual(['drop b'])
  })

  it('does nothing when it is denied, and tells the model the hint [S1.11]', async () => {
    const { invocation, calls } = await drop({ decision: 'deny', hint: 'archive it' })
    expect(calls).toEqual([])
    expect(invocation.error?.code).toBe('denied')
    expect(invocation.output).toContain('archive it')
  })

  it('asks for other tools that the task names, and for no others [S1.11]', async () => {
    expect((await drop({ decision: 'allow' }, ['read_note'], 'read_note')).asked).toHaveLength(1)
    expect((await drop({ decision: 'allow' }, [], 'read_note')).asked).toHaveLength(0)
  })
})
