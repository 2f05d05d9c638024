// Which of the library's own tools a call offers, and the question that a person is to answer.
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { resolveTools } from '../../environment/tool-set.ts'
import {
  type BuiltInSelection,
  createLLMEnvironment,
  executeTool,
  generate,
  parsePendingHumanRequest,
  reservedToolNames,
} from '../../index.ts'
import { calls, createScriptedModel, text } from '../../testing/index.ts'
import { caller } from './support.ts'

const everywhere = ['ask_user_input', 'human_intervention_request', 'web_fetch']
const reading = ['grep', 'list_files', 'read_file']
const inFolder = [
  'ask_user_input',
  'grep',
  'human_intervention_request',
  'list_files',
  'read_file',
  'shell_cmd',
  'web_fetch',
  'write_file',
]

async function offered(
  own: BuiltInSelection | undefined,
  call: BuiltInSelection | undefined,
  more: object = {},
) {
  const environment = createLLMEnvironment(own === undefined ? {} : { builtIns: own })
  const set = await resolveTools(environment, {
    toolPermission: 'auto',
    workingDirectory: '/w',
    ...(call === undefined ? {} : { builtIns: call }),
    ...more,
  })
  return set.definitions.map(({ name }) => name)
}

describe('the built-in tools', () => {
  it('are all there, but for those that need a working directory or a skill that is not there [S2.09]', async () => {
    expect(await offered(undefined, true)).toEqual(inFolder)
    expect(await offered(undefined, true, { workingDirectory: undefined })).toEqual(everywhere)
    expect(
      await offered({ grep: true, web_fetch: true }, undefined, { workingDirectory: undefined }),
    ).toEqual(['web_fetch'])
    const skills = await temporaryFolder('skills')
    mkdirSync(path.join(skills, 'x'))
    writeFileSync(path.join(skills, 'x/SKILL.md'), '---\nname: x\ndescription: d\n---\nDo x.')
    const environment = createLLMEnvironment({ skillRoots: [skills] })
    const selection = { toolPermission: 'auto', workingDirectory: '/w' } as const
    const { definitions } = await resolveTools(environment, { ...selection, builtIns: true })
    expect(definitions.map(({ name }) => name)).toEqual(reservedToolNames.toSorted())
    const byDefault = await resolveTools(environment, selection)
    expect(byDefault.definitions.map(({ name }) => name)).toEqual([...reading, 'load_skill'].toSorted())
  })

  it.each<[BuiltInSelection | undefined, BuiltInSelection | undefined, readonly string[]]>([
    [true, true, inFolder],
    [false, true, []],
    [true, false, []],
    [false, { grep: true }, []],
    [{ grep: true, read_file: true }, undefined, ['grep', 'read_file']],
    [undefined, { read_file: true }, ['read_file']],
    [{ grep: true, read_file: true }, { read_file: true, shell_cmd: true }, ['read_file']],
    [{ grep: true, read_file: true }, { read_file: false }, ['grep']],
    [{ shell_cmd: false }, true, inFolder.filter((name) => name !== 'shell_cmd')],
    [
      undefined,
      { shell_cmd: false, grep: false },
      inFolder.filter((name) => !['shell_cmd', 'grep'].includes(name)),
    ],
    [undefined, { shell_cmd: false, grep: true }, ['grep']],
    [undefined, {}, []],
    [{ grep: true }, true, ['grep']],
  ])('are those that both %j and %j select [S2.10]', async (own, call, names) => {
    expect(await offered(own, call)).toEqual(names)
  })

  it('that only read are left where the permission is to read, and a call of another is refused [S2.09] [S2.10]', async () => {
    expect(await offered(true, true, { toolPermission: 'read' })).toEqual(
      inFolder.filter((name) => name !== 'shell_cmd' && name !== 'write_file'),
    )
    const folder = await temporaryFolder('narrow')
    const shell = caller('shell_cmd', folder)
    expect((await shell({ command: 'true' }, { toolPermission: 'read' })).ok).toBe(false)
    expect((await shell({ command: 'true' }, { builtIns: { grep: true } })).content).toContain(
      'there is no tool',
    )
  })

  it('only read where neither the environment nor the call selects them [S2.09] [S2.10]', async () => {
    expect(await offered(undefined, undefined)).toEqual(reading)
  })

  it('are not offered to a model that is only asked for text [S2.09] [S2.10]', async () => {
    expect(await offered(undefined, undefined, { workingDirectory: undefined })).toEqual([])
  })

  it('are known by name: another is misuse, wherever it stands [S2.10]', async () => {
    await expect(offered({ telepathy: true } as object, true)).rejects.toThrow(/no built-in tool "telepathy"/)
    await expect(offered(false, { telepathy: false } as object)).rejects.toMatchObject({
      code: 'invalid_options',
    })
    expect(await offered(true, true, { workingDirectory: '' })).toEqual(everywhere)
  })

  it('that a call names with true work in the current directory where the call names none [S2.04 S2.10]', async () => {
    const homeless = { workingDirectory: undefined }
    expect(await offered(undefined, { read_file: true }, homeless)).toEqual(['read_file'])
    expect(await offered({ read_file: true }, true, homeless)).toEqual([])
    expect(await offered({ web_fetch: true }, { read_file: true }, homeless)).toEqual([])
    expect(await offered({ web_fetch: false }, { web_fetch: false }, homeless)).toEqual([])
    const call = {
      id: 'c1',
      type: 'function',
      function: { name: 'read_file', arguments: '{"filePath":"package.json"}' },
    } as const
    const read = await executeTool(createLLMEnvironment(), call, { builtIns: { read_file: true } })
    expect(JSON.parse(read.content)).toMatchObject({ content: expect.stringContaining('"caisson"') })
    const outside = { ...call, function: { name: 'read_file', arguments: '{"filePath":"../x"}' } }
    const refused = await executeTool(createLLMEnvironment(), outside, { builtIns: { read_file: true } })
    expect(refused).toMatchObject({ ok: false, content: expect.stringContaining('outside') })
  })

  it('reach a model and come back through one loop of calls [S2.09]', async () => {
    const folder = await temporaryFolder('whole')
    writeFileSync(path.join(folder, 'note.txt'), 'blue\n')
    await using model = createScriptedModel({
      replies: [calls({ name: 'read_file', arguments: { path: 'note.txt' } }), text('blue')],
    })
    const environment = createLLMEnvironment({ providers: { scripted: model.provider } })
    const request = {
      provider: 'scripted',
      model: 'm',
      messages: [{ role: 'user', content: 'Which color?' }],
      workingDirectory: folder,
      builtIns: { read_file: true },
    } as const
    const answer = await generate({ environment, ...request })
    const [call] = answer.tool_calls ?? []
    if (call === undefined) throw new Error('no call')
    const result = await executeTool(environment, call, request)
    expect(JSON.parse(result.content)).toMatchObject({ content: 'blue', totalLines: 1 })
    expect(model.requests[0]?.tools.map(({ name }) => name)).toEqual(['read_file'])
  })
})

it('the built-in tools answer any arguments with a result, and leave nothing outside [S2.09] [S2.18]', async () => {
  const outer = await temporaryFolder('any')
  const folder = path.join(outer, 'inside')
  mkdirSync(folder)
  const odd = fc.oneof(
    fc.constantFrom(
      '.',
      '..',
      '../x',
      '/',
      '/etc/passwd',
      'a/b',
      '',
      '\0',
      '*',
      '(',
      '\ud800',
      -1,
      0,
      1e9,
      null,
      true,
      [],
    ),
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.jsonValue({ maxDepth: 2 }),
  )
  const names = [
    'filePath',
    'path',
    'content',
    'mode',
    'offset',
    'limit',
    'query',
    'isRegexp',
    'directoryPath',
    'question',
    'questions',
    'options',
    'maxEntries',
  ]
  const given = fc.dictionary(fc.constantFrom(...names), odd, { maxKeys: 4 })
  const tool = fc.constantFrom(
    'read_file',
    'write_file',
    'list_files',
    'grep',
    'human_intervention_request',
    'ask_user_input',
  )
  await fc.assert(
    fc.asyncProperty(tool, fc.oneof(given, fc.string()), async (name, args) => {
      const result = await caller(name, folder)(args)
      expect(result.message).toMatchObject({ role: 'tool', content: result.content })
      expect(result.content.isWellFormed()).toBe(true)
    }),
    { seed: 29, numRuns: 300 },
  )
  expect(readdirSync(outer)).toEqual(['inside'])
})

describe('human_intervention_request', () => {
  const ask = caller('human_intervention_request')

  it('takes the question by its other name, prompt, too [S2.16 S2.17]', async () => {
    const result = await ask({ prompt: 'Deploy?', options: ['yes', 'no'] })
    expect(JSON.parse(result.content)).toMatchObject({
      pending: true,
      question: 'Deploy?',
      options: ['yes', 'no'],
    })
  })

  it('gives a pending artifact under the id of the call, and waits for nobody [S2.16]', async () => {
    const result = await ask({
      question: 'Deploy?',
      options: ['yes', 'no'],
      defaultOption: 'no',
      timeoutMs: 5_000,
    })
    const artifact = {
      ok: false,
      pending: true,
      status: 'pending',
      requestId: 'c1',
      question: 'Deploy?',
      options: ['yes', 'no'],
      defaultOption: 'no',
      timeoutMs: 5_000,
    }
    expect(result.ok).toBe(false)
    expect(JSON.parse(result.content)).toEqual(artifact)
    expect(parsePendingHumanRequest(result.content)).toEqual(artifact)
    expect(parsePendingHumanRequest(artifact)).toEqual(artifact)
    const short = await ask({ question: 'Which?', options: ['a'] })
    expect(parsePendingHumanRequest(short.content)).toEqual({
      ok: false,
      pending: true,
      status: 'pending',
      requestId: 'c1',
      question: 'Which?',
      options: ['a'],
    })
  })

  it('refuses questions that nobody can answer [S2.16] [S2.18]', async () => {
    for (const wrong of [
      { question: 'Q', options: [] },
      { question: '', options: ['a'] },
      { question: 'Q', options: ['a', 'a'] },
      { question: 'Q', options: ['a'], defaultOption: 'b' },
      { question: 'Q', options: ['a'], timeoutMs: -1 },
    ])
      expect((await ask(wrong)).content, JSON.stringify(wrong)).toContain('tool_parameter_validation_failed')
    for (const value of [null, 1, 'x', '{}', { pending: true }, []])
      expect(parsePendingHumanRequest(value)).toBeNull()
  })
})
