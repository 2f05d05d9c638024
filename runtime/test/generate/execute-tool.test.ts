import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { resolveTools } from '../../environment/tool-set.ts'
import {
  type ApplicationTools,
  createLLMEnvironment,
  type ExecuteToolOptions,
  executeTool,
  parseToolFailureArtifact,
  parseToolValidationFailureArtifact,
} from '../../index.ts'
import { McpRegistry } from '../../mcp/registry.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'caisson-execute-'))
  mkdirSync(path.join(folder, 'x'))
  writeFileSync(path.join(folder, 'x/SKILL.md'), '---\nname: x\ndescription: d\n---\nDo x.')
})
afterAll(() => rmSync(folder, { recursive: true }))

const object = { type: 'object', properties: {} }
const tools: ApplicationTools = {
  add: {
    description: 'Adds',
    readOnly: true,
    parameters: z.strictObject({ a: z.number(), b: z.number().default(1) }),
    execute: (input) => {
      const { a, b } = input as { a: number; b: number }
      return { sum: a + b }
    },
  },
  find: {
    description: 'Finds',
    readOnly: true,
    parameters: {
      type: 'object',
      properties: {
        filter: { type: 'object', properties: { tag: { enum: ['a', 'b'] } }, required: ['tag'] },
      },
      required: ['filter'],
    },
    execute: (input) => JSON.stringify(input),
  },
  change: { description: 'Changes', parameters: object, execute: () => 'changed' },
  where: {
    description: 'Where',
    parameters: object,
    readOnly: true,
    execute: (_input, { workingDirectory }) => workingDirectory,
  },
  fails: {
    description: 'Fails',
    parameters: object,
    readOnly: true,
    execute: () => {
      throw new Error('disk full')
    },
  },
  hangs: {
    description: 'Hangs',
    parameters: object,
    readOnly: true,
    execute: () => new Promise(() => undefined),
  },
  circle: {
    description: 'Circle',
    parameters: object,
    readOnly: true,
    execute: () => {
      const value: Record<string, unknown> = {}
      value.self = value
      return value
    },
  },
  nothing: { description: 'Nothing', parameters: object, readOnly: true, execute: () => undefined },
  own: { description: 'Carried out by the application', parameters: object, readOnly: true },
}

const environment = createLLMEnvironment()
const call = (name: string, args = '{}') =>
  ({ id: 'c1', type: 'function', function: { name, arguments: args } }) as const

describe('executeTool', () => {
  it('gives what a tool says as a message for the transcript', async () => {
    expect(await executeTool(environment, call('add', '{"a":2}'), { tools })).toEqual({
      ok: true,
      content: '{"sum":3}',
      message: { role: 'tool', tool_call_id: 'c1', content: '{"sum":3}' },
      evidence: 'read',
    })
    expect((await executeTool(environment, call('where'), { tools, workingDirectory: '/w' })).content).toBe(
      '/w',
    )
    expect((await executeTool(environment, call('nothing'), { tools })).content).toBe('(no output)')
  })

  it('makes a durable artifact of arguments that do not fit, and does nothing [S2.18]', async () => {
    for (const [name, args] of [
      ['add', '{"a":"x"}'],
      ['add', '{"a":1,"c":2}'],
      ['add', '{"a":'],
      ['find', '{"filter":{"tag":"c"}}'],
      ['find', '{}'],
    ] as const) {
      const result = await executeTool(environment, call(name, args), { tools })
      expect(result.ok).toBe(false)
      expect(parseToolValidationFailureArtifact(result.content), args).toMatchObject({ toolName: name })
    }
    expect((await executeTool(environment, call('find', '{"filter":{"tag":"b"}}'), { tools })).ok).toBe(true)
  })

  it('corrects mistakes with one meaning, of tools that destroy nothing, and says so [S2.17]', async () => {
    const told = async (name: string, args: string) =>
      await executeTool(environment, call(name, args), { tools })
    expect(await told('add', '{"A":"2","b":null}')).toMatchObject({
      content: '{"sum":3}',
      corrections: ['b: null was left out', 'A: taken as a', 'a: string taken as number'],
    })
    expect(await told('find', '{"filter":"{\\"tag\\":\\"a\\"}"}')).toMatchObject({
      content: '{"filter":{"tag":"a"}}',
      corrections: ['filter: JSON in a string taken as object'],
    })
    expect(await told('find', '{"filter":{"tag":"a"}')).toMatchObject({ ok: true })
    expect((await told('add', '{"a":2}')).corrections).toBeUndefined()
    const write = { description: 'Writes', parameters: object, execute: () => 'written' }
    const both = {
      exact: { ...write, parameters: z.strictObject({ filePath: z.string() }) },
      lenient: { ...write, parameters: z.strictObject({ filePath: z.string() }), destructive: false },
    }
    const lenient = await executeTool(environment, call('lenient', '{"path":"a"}'), { tools: both })
    expect(lenient).toMatchObject({ content: 'written', corrections: ['path: taken as filePath'] })
    const exact = await executeTool(environment, call('exact', '{"path":"a"}'), { tools: both })
    expect(parseToolValidationFailureArtifact(exact.content)?.issues).toContainEqual({
      path: 'path',
      code: 'unrecognized_keys',
      message: 'there is no parameter "path"; if you mean "filePath", give it under that name',
    })
  })

  it('names each argument that does not fit, with what was expected and what came [S2.18]', async () => {
    const parameters = {
      type: 'object',
      properties: {
        filePath: { type: 'string' },
        count: { type: 'integer' },
        tags: { type: ['array', 'null'] },
      },
      required: ['filePath'],
      additionalProperties: false,
    }
    const strict = { strict: { description: 'Strict', parameters, readOnly: true, execute: () => 'done' } }
    const result = await executeTool(environment, call('strict', '{"count":1.5,"tags":{},"deep":[]}'), {
      tools: strict,
    })
    expect(result.ok).toBe(false)
    const { issues } = parseToolValidationFailureArtifact(result.content) ?? { issues: [] }
    expect(issues).toHaveLength(4)
    expect(issues).toEqual(
      expect.arrayContaining([
        { path: 'filePath', code: 'required', message: 'is required and missing' },
        {
          path: 'count',
          code: 'invalid_type',
          message: 'expected integer, got number',
          expectedType: 'integer',
          receivedType: 'number',
        },
        {
          path: 'tags',
          code: 'invalid_type',
          message: 'expected array or null, got object',
          expectedType: 'array or null',
          receivedType: 'object',
        },
        { path: 'deep', code: 'unrecognized_keys', message: 'there is no parameter "deep"' },
      ]),
    )
  })

  it('makes words of every failure of a tool, and of calls of tools that are not there [S1.09]', async () => {
    const contents = []
    for (const name of ['fails', 'circle', 'nobody', '__proto__'])
      contents.push((await executeTool(environment, call(name), { tools })).content.split('\n')[0])
    expect(contents).toEqual([
      'Error: fails failed: disk full',
      expect.stringContaining('Error: circle failed'),
      expect.stringContaining('Error: there is no tool "nobody"; there are: add, change'),
      expect.stringContaining('Error: there is no tool "__proto__"'),
    ])
  })

  it('says what a call proves: as the tool declares, and nothing when it failed [S2.27]', async () => {
    const write = { description: 'Writes', parameters: object, execute: () => 'written' }
    const declared = {
      ...tools,
      write: { ...write, evidence: 'write' },
      think: { ...write, evidence: 'none' },
    } as const
    const proof = async (name: string) =>
      (await executeTool(environment, call(name), { tools: declared })).evidence
    expect(await Promise.all(['change', 'write', 'think', 'fails', 'nobody'].map(proof))).toEqual([
      'external_action',
      'write',
      undefined,
      undefined,
      undefined,
    ])
  })

  it('makes an artifact of a failure, or throws it, as the application chooses [S2.31]', async () => {
    const run = async (name: string, options: ExecuteToolOptions) =>
      await executeTool(environment, call(name), { tools, ...options })
    const artifactOf = async (name: string, options: ExecuteToolOptions = {}) =>
      parseToolFailureArtifact((await run(name, { ...options, errorMode: 'return-artifact' })).content)
    expect(await artifactOf('fails')).toEqual({
      ok: false,
      status: 'error',
      errorType: 'tool_execution_failed',
      toolCallId: 'c1',
      toolName: 'fails',
      code: 'failed',
      message: 'fails failed: disk full',
    })
    expect(await artifactOf('nobody')).toMatchObject({ code: 'unknown_tool' })
    expect(await artifactOf('change', { toolPermission: 'read' })).toMatchObject({ code: 'not_allowed' })
    const unfit = await run('add', { errorMode: 'return-artifact' })
    expect(parseToolValidationFailureArtifact(unfit.content)).not.toBeNull()
    for (const [name, code] of [
      ['fails', 'failed'],
      ['add', 'invalid_arguments'],
    ])
      await expect(run(name ?? '', { errorMode: 'throw' })).rejects.toMatchObject({
        name: 'LLMToolError',
        code: 'tool_failed',
        failure: { code },
      })
    await expect(run('change', { errorMode: 'throw', toolPermission: 'read' })).rejects.toMatchObject({
      code: 'denied',
    })
    await expect(run('add', { errorMode: 'quiet' as 'throw' })).rejects.toMatchObject({
      code: 'invalid_options',
    })
  })

  it('lets go of a tool that does not end when the call is aborted [S2.04]', async () => {
    const controller = new AbortController()
    const running = executeTool(environment, call('hangs'), { tools, abortSignal: controller.signal })
    controller.abort()
    expect(await running).toMatchObject({ ok: false, content: 'Error: the call of hangs was cancelled' })
  })

  it('keeps the tool permission, whatever the model calls [S2.04]', async () => {
    const run = async (options: object) =>
      (await executeTool(environment, call('change'), { tools, ...options })).content
    expect(await run({})).toBe('changed')
    expect(await run({ toolPermission: 'read' })).toBe(
      'Error: change is not allowed: only tools that read may be used',
    )
    expect(await run({ toolPermission: 'ask' })).toBe('Error: change was not allowed: nobody could be asked')
    expect(await run({ toolPermission: 'ask', askPermission: () => false })).toContain('by the person asked')
    expect(await run({ toolPermission: 'ask', askPermission: async () => true })).toBe('changed')
    const readers = createLLMEnvironment({ defaults: { toolPermission: 'read' } })
    expect((await executeTool(readers, call('change'), { tools })).ok).toBe(false)
    expect((await executeTool(readers, call('nothing'), { tools })).ok).toBe(true)
  })

  it('throws for a tool that the application carries out itself', async () => {
    await expect(executeTool(environment, call('own'), { tools })).rejects.toMatchObject({
      code: 'invalid_options',
    })
  })

  it('loads skills, which the environment or the call may switch off [S2.14 S2.10]', async () => {
    const skilled = createLLMEnvironment({ skillRoots: [folder] })
    const loading = call('load_skill', '{"skill_id":"x"}')
    expect((await executeTool(skilled, loading)).content).toContain('Do x.')
    expect((await executeTool(skilled, call('load_skill', '{"skill_id":"y"}'))).content).toContain('<error>')
    expect((await executeTool(skilled, call('load_skill', '{}'))).content).toContain(
      'tool_parameter_validation_failed',
    )
    for (const builtIns of [false, { load_skill: false }]) {
      expect((await executeTool(skilled, loading, { builtIns })).content).toContain('there is no tool')
      const without = createLLMEnvironment({ skillRoots: [folder], builtIns })
      expect((await executeTool(without, loading, { builtIns: true })).content).toContain('there is no tool')
    }
  })
})

describe('tools of several sources', () => {
  it("never stand in one another's place: a server's tool gets another name [S2.11] [S2.12]", async () => {
    const server = path.join(import.meta.dirname, '../../../test/support/mcp-server.ts')
    const small = { command: process.execPath, args: [server] }
    await using mcpRegistry = new McpRegistry({ servers: { app: small } })
    const both = createLLMEnvironment({ mcpRegistry, skillRoots: [folder] })
    const application = {
      app_pid: { description: "The application's", parameters: object, execute: () => 'mine' },
    }
    const set = await resolveTools(both, { tools: application, toolPermission: 'auto' })
    const names = set.definitions.map(({ name }) => name)
    expect(names).toEqual(names.toSorted())
    const renamed = names.find((name) => /^app_pid_[0-9a-f]{8}$/.test(name)) ?? 'none'
    expect((await executeTool(both, call('app_pid'), { tools: application })).content).toBe('mine')
    expect((await executeTool(both, call(renamed), { tools: application })).content).toMatch(/^\d+$/)
    const reading = await resolveTools(both, { tools: application, toolPermission: 'read' })
    expect(reading.definitions.map(({ name }) => name)).toEqual(['load_skill'])
    await using trusting = new McpRegistry({ servers: { app: { ...small, trustHints: true } } })
    const trusted = await resolveTools(createLLMEnvironment({ mcpRegistry: trusting }), {
      toolPermission: 'read',
    })
    expect(trusted.definitions.map(({ name }) => name)).toEqual(['app_pid'])
  })
})
