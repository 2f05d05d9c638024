// Answers of a given form, out of a model's server that speaks as it likes.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { type JsonSchema, openSchema } from '#specs/node/json-schema.ts'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { openZodSchema } from '../../arguments/json-schema.ts'
import { createModel, type Model } from '../../llm/model.ts'
import { requestStructured } from '../../structured/request.ts'

const person: JsonSchema = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer', minimum: 0 } },
  required: ['name', 'age'],
  additionalProperties: false,
}
const ada = { name: 'Ada', age: 36 }

async function askWith(model: Model, schema: JsonSchema = person) {
  const opened = await openSchema(schema)
  if (!opened.ok) throw new Error(opened.error)
  return requestStructured({
    model,
    messages: [
      { role: 'system', content: 'You know people.' },
      { role: 'user', content: 'Who wrote the first program?' },
    ],
    name: 'answer',
    description: 'Hands the answer in.',
    schema,
    read: (value) => {
      const checked = opened.value.check(value)
      return checked.ok ? { ok: true, value: { value: checked.value, corrections: [] } } : checked
    },
    hooks: { signal: new AbortController().signal },
  })
}

async function ask(script: Script | readonly ServerReply[], schema: JsonSchema = person) {
  await using server = await startModelServer(script)
  const model = createModel({ model: 'm', baseUrl: server.baseUrl, firstDelayMs: 1, maxDelayMs: 2 })
  return { answer: await askWith(model, schema), asked: server.asked }
}

const said = (value: unknown) => reply({ text: typeof value === 'string' ? value : JSON.stringify(value) })
const called = (value: unknown) => reply({ calls: [{ name: 'answer', arguments: value }] })
const formOf = (body: Readonly<Record<string, unknown>>): string =>
  body.response_format !== undefined ? 'response_format' : body.tool_choice !== undefined ? 'tool' : 'prompt'

describe('requestStructured', () => {
  it('asks for the schema as the form of the answer, and says it in words too [S0.02]', async () => {
    const { answer, asked } = await ask([said(ada)])
    expect(answer).toMatchObject({ ok: true, value: { value: ada, corrections: [], requests: 1 } })
    expect(asked[0]?.body.response_format).toEqual({
      type: 'json_schema',
      json_schema: { name: 'answer', schema: person },
    })
    expect(asked[0]?.messages[1]?.content).toContain(JSON.stringify(person))
    expect(asked[0]?.messages[1]?.content).toMatch(/^Who wrote the first program\?\n\n/)
  })

  it('continues to a call that must be made, and to words alone, where a server refuses [S0.02]', async () => {
    const { answer, asked } = await ask(({ body }) => {
      if (body.response_format !== undefined) return failure(400, 'response_format is not supported')
      if (body.tool_choice !== undefined) return failure(422, 'tool_choice: extra inputs are not permitted')
      return said(ada)
    })
    expect(answer).toMatchObject({ ok: true, value: { value: ada, requests: 1 } })
    expect(asked.map(({ body }) => formOf(body))).toEqual(['response_format', 'tool', 'prompt'])
    expect(asked[1]?.body.tool_choice).toEqual({ type: 'function', function: { name: 'answer' } })
    expect(asked[1]?.tools.map((tool) => tool.function.name)).toEqual(['answer'])
    expect(asked[2]?.tools).toEqual([])
  })

  it('remembers for a model what its server refused [S0.02]', async () => {
    await using server = await startModelServer(({ body }) =>
      body.response_format === undefined ? called(ada) : failure(400, 'no such field'),
    )
    const open = () => createModel({ model: 'm', baseUrl: server.baseUrl, firstDelayMs: 1 })
    const model = open()
    await askWith(model)
    await askWith(model)
    await askWith(open())
    expect(server.asked.map(({ body }) => formOf(body))).toEqual([
      'response_format',
      'tool',
      'tool',
      'response_format',
      'tool',
    ])
  })

  it('does not take a server that refuses everything for one that refuses a form [S0.02]', async () => {
    let isBroken = true
    await using server = await startModelServer(() => (isBroken ? failure(400, 'no') : said(ada)))
    const model = createModel({ model: 'm', baseUrl: server.baseUrl, firstDelayMs: 1 })
    expect(await askWith(model)).toMatchObject({
      ok: false,
      error: { kind: 'model', message: expect.anything() },
    })
    isBroken = false
    await askWith(model)
    expect(server.asked.map(({ body }) => formOf(body))).toEqual([
      'response_format',
      'tool',
      'prompt',
      'response_format',
    ])
  })

  it('asks again with what is wrong, at most twice, and counts what all requests used [S0.02]', async () => {
    const { answer, asked } = await ask([said({ name: 'Ada' }), said({ name: 'Ada', age: -1 }), said(ada)])
    expect(answer).toMatchObject({
      ok: true,
      value: { requests: 3, usage: { requests: 3, inputTokens: 30, outputTokens: 15 } },
    })
    expect(asked[1]?.messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user'])
    expect(asked[1]?.messages[3]?.content).toContain('required property "age"')
    expect(asked[2]?.messages[5]?.content).toMatch(/age: .*0/)
    expect(asked[2]?.messages.slice(0, 4)).toEqual(asked[1]?.messages)

    const never = await ask([said('I would rather not')])
    expect(never.answer).toMatchObject({ ok: false, error: { kind: 'invalid', usage: { requests: 3 } } })
    expect(never.asked).toHaveLength(3)
  })

  it('answers every call of an invalid answer before it asks again [S0.02]', async () => {
    const twice = reply({
      calls: [
        { name: 'answer', arguments: {} },
        { name: 'other', arguments: {} },
      ],
    })
    const { answer, asked } = await ask([failure(400, 'no'), twice, called(ada)])
    expect(answer.ok).toBe(true)
    const [, , assistant, ...results] = asked[2]?.messages ?? []
    expect(results.map((message) => message.tool_call_id)).toEqual(assistant?.tool_calls?.map(({ id }) => id))
  })

  it.each([
    ['a fence', '```json\n{"name":"Ada","age":36}\n```'],
    ['words around it', 'Gladly: {"name":"Ada","age":36} is the one.'],
    ['single quotes', "{'name':'Ada','age':36}"],
  ])('corrects what is certain, as %s, and says so [S0.02]', async (_name, text) => {
    const { answer, asked } = await ask([said(text)])
    expect(answer).toMatchObject({ ok: true, value: { value: ada } })
    expect(answer.ok && answer.value.corrections).not.toEqual([])
    expect(asked).toHaveLength(1)
  })

  it('asks for what is no object within one, and takes it out again [S0.02]', async () => {
    const list: JsonSchema = { type: 'array', items: { $ref: '#/$defs/N' }, $defs: { N: { type: 'number' } } }
    for (const text of ['{"value":[1,2]}', '[1,2]']) {
      const { answer, asked } = await ask([said(text)], list)
      expect(answer).toMatchObject({ ok: true, value: { value: [1, 2] } })
      expect(asked[0]?.body.response_format).toMatchObject({
        json_schema: { schema: { type: 'object', required: ['value'], $defs: list.$defs } },
      })
    }
  })

  it('ends with the reason of a model that fails, withholds or is interrupted [S0.02]', async () => {
    const refused = await ask([failure(401, 'who are you?')])
    expect(refused.answer).toMatchObject({
      ok: false,
      error: { kind: 'model', error: { code: 'unauthorized' } },
    })
    expect(refused.asked).toHaveLength(1)
    const withheld = await ask([reply({ text: '', finishReason: 'content_filter' })])
    expect(withheld.answer).toMatchObject({ ok: false, error: { kind: 'refused' } })
  })
})

describe('openSchema', () => {
  it.each([
    ['a reference to nowhere', { $ref: '#/$defs/none' }],
    ['a reference to another place', { $ref: 'https://example.org/schema' }],
    ['a schema that is made of itself', { $ref: '#' }],
    ['a pattern that is none', { type: 'string', pattern: '(' }],
    ['names that are no list', { type: 'object', required: 3 }],
  ])('refuses %s [S0.02]', async (_name, schema) => {
    expect(await openSchema(schema as JsonSchema)).toMatchObject({
      ok: false,
      error: expect.stringContaining('not a usable JSON schema'),
    })
  })

  it('says where something is wrong and what [S0.02]', async () => {
    const schema = { type: 'object', properties: { files: { type: 'array', items: person } } }
    const opened = await openSchema(schema)
    const checked = opened.ok && opened.value.check({ files: [ada, { name: 1, age: 1, more: 2 }] })
    expect(checked).toMatchObject({ ok: false })
    const words = checked !== false && !checked.ok ? checked.error : ''
    expect(words).toContain('files.1.name: Instance type "number" is invalid')
    expect(words).toContain('files.1.more: not allowed here')
  })

  it('takes the names that every object has for names like others [S0.02]', async () => {
    const opened = await openSchema({ type: 'object', required: ['constructor', 'toString'] })
    expect(opened.ok && opened.value.check({}).ok).toBe(false)
    expect(opened.ok && opened.value.check({ constructor: 1, toString: 2 }).ok).toBe(true)
  })

  it('never throws, whatever the schema and the value are [S0.02]', async () => {
    const keyword = fc.constantFrom(
      'type',
      'required',
      'properties',
      'items',
      '$ref',
      'anyOf',
      'enum',
      'if',
      'not',
    )
    const schema = fc.dictionary(keyword, fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 })
    await fc.assert(
      fc.asyncProperty(schema, fc.jsonValue(), async (candidate, value) => {
        const opened = await openSchema(candidate)
        if (opened.ok) expect(typeof opened.value.check(value).ok).toBe('boolean')
        else expect(opened.error.length).toBeLessThanOrEqual(300)
      }),
      { seed: 11, numRuns: 300 },
    )
  })

  it('opens zod schemas as well, with what they make of a value [S0.02]', () => {
    const schema = openZodSchema(z.strictObject({ n: z.number(), tag: z.string().default('none') }))
    expect(schema.json).toMatchObject({ type: 'object', required: ['n'] })
    expect(schema.check({ n: 1 })).toEqual({ ok: true, value: { n: 1, tag: 'none' } })
    expect(schema.check({ n: 'x' })).toMatchObject({ ok: false, error: expect.stringMatching(/^n: /) })
  })
})
