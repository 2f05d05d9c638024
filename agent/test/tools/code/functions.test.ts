// Code of workflows, in real programs of Node and Python.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CodeFunction } from '#specs/protocol/workflow.ts'
import { toTool } from '../../../tools/code/functions.ts'
import { TestPrograms } from '../../support/programs.ts'

let programs: TestPrograms
beforeAll(async () => {
  programs = await TestPrograms.open()
})
afterAll(() => programs[Symbol.asyncDispose]())

const made = (
  language: 'javascript' | 'python',
  code: string,
  more: Partial<CodeFunction> = {},
): CodeFunction =>
  CodeFunction.parse({
    name: 'work',
    description: 'Works.',
    parameters: {
      type: 'object',
      properties: { a: { type: 'integer' }, b: { type: 'string' } },
      required: ['a'],
    },
    language,
    code,
    timeoutMs: 5_000,
    memoryMiB: 64,
    ...more,
  })

async function call(one: CodeFunction, input: object): Promise<unknown> {
  const tool = toTool(one, programs)
  const result = await tool.execute(input, {
    signal: AbortSignal.timeout(20_000),
    emitOutput: () => undefined,
  })
  return result.ok ? result.value : `${result.error.code}: ${result.error.message}`
}

describe('a function with code', () => {
  it.each([
    [
      'javascript',
      'async function work(a: number, b?: string) { console.log("noise"); return { sum: a + 1, b } }',
    ],
    ['python', 'async def work(a, b=None):\n  print("noise")\n  return {"sum": a + 1, "b": b}'],
  ] as const)(
    'takes its arguments in order and returns JSON, whatever it prints [S3.03 S3.10] (%s)',
    async (language, code) => {
      expect(await call(made(language, code), { a: 1, b: '\u2028"\\`{x}' })).toEqual({
        sum: 2,
        b: '\u2028"\\`{x}',
      })
      expect(programs.requests.at(-1)?.limits).toMatchObject({ wallMs: 5_000, memoryBytes: 64 * 1024 ** 2 })
    },
  )

  it.each([
    ['throws', 'function work() { throw new Error("no sheet") }', /^internal: [\s\S]*Error: no sheet/],
    ['is not there', 'const other = 1', /^internal: [\s\S]*the code defines no function work/],
    ['is no code', 'function work( {', /^internal: [\s\S]*SyntaxError/],
    ['ends its process', 'function work() { process.exit(0) }', /ended before the function returned/],
    ['returns itself', 'function work() { const a = {}; a.a = a; return a }', /^internal: [\s\S]*circular/],
    ['returns a function', 'function work() { return work }', /what JSON does not have/],
    [
      'changes prototypes',
      'Object.prototype.toJSON = () => "changed"; function work() { return {} }',
      /^changed$/,
    ],
  ])('that %s fails alone, with the reason [S3.10]', async (_, code, expected) => {
    expect(await call(made('javascript', code), { a: 1 })).toMatch(expected)
  })

  it('that floods is ended [S3.10]', async () => {
    const code = 'def work(a):\n  while True: print("x" * 65536)'
    expect(await call(made('python', code), { a: 1 })).toMatch(/^too_large: /)
  })

  it('is not called with arguments that do not fit, and its result is checked [S3.03]', async () => {
    const code = 'function work(a) { return a }'
    expect(await call(made('javascript', code), { a: 'x' })).toMatch(
      /^invalid_input: the arguments of work: a: /,
    )
    expect(await call(made('javascript', code, { returns: { type: 'string' } }), { a: 1 })).toMatch(
      /^invalid_output: what work returned: /,
    )
  })
})
