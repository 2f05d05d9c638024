// What is corrected in a call's arguments, and what never is: a tool that may destroy something takes exact arguments alone.
import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { validationFailure } from '#runtime/arguments/failure.ts'
import { limits } from '#specs/protocol/limits.ts'
import { parseToolValidationFailureArtifact } from '#specs/protocol/validation-failure.ts'
import { type ArgumentsOf, parseArguments } from '../../tool-calls/arguments.ts'
import { createDeleteFile, createMoveFile } from '../../tools/files/file-manage.ts'
import { createReadFile } from '../../tools/files/file-read.ts'
import { createEditFile, createWriteFile } from '../../tools/files/file-write.ts'

const find: ArgumentsOf = {
  name: 'find_it',
  readOnly: true,
  inputSchema: z.strictObject({
    path: z.string(),
    limit: z.int().max(9).optional(),
    deep: z.boolean().optional(),
    names: z.array(z.string()).optional(),
    where: z.strictObject({ kind: z.string() }).optional(),
  }),
}
const wipe: ArgumentsOf = {
  name: 'wipe_it',
  readOnly: false,
  inputSchema: z.strictObject({ path: z.string(), recursive: z.boolean().default(false) }),
}

const artifactOf = (tool: ArgumentsOf, text: string) => {
  const parsed = parseArguments(tool, text)
  return parsed.ok ? null : parseToolValidationFailureArtifact(parsed.error.output)
}
const inputOf = (tool: ArgumentsOf, text: string) => {
  const parsed = parseArguments(tool, text)
  return parsed.ok ? parsed.value.input : parsed.error.error.code
}

const $defs = { To: { type: 'object', properties: { city: { type: 'string' } } } }
/** A tool of a server that may do anything. */
const send: ArgumentsOf = {
  name: 'send_it',
  readOnly: false,
  inputSchema: z.record(z.string(), z.json()),
  parameters: {
    type: 'object',
    $defs,
    properties: {
      to: { $ref: '#/$defs/To' },
      copies: { anyOf: [{ type: 'array', items: { $ref: '#/$defs/To' } }, { type: 'null' }] },
      note: { anyOf: [{ type: 'string' }, { $ref: '#/$defs/To' }] },
      free: {},
    },
  },
}

describe('JSON in a string', () => {
  const inString = (name: string, value: unknown) => JSON.stringify({ [name]: JSON.stringify(value) })

  it.each([
    ['an object', 'to', { city: 'Bonn' }],
    ['a list', 'copies', [{ city: 'Bonn' }]],
  ])(
    'is %s where the schema accepts no string, also for a tool that may destroy [G.07]',
    (_, name, value) => {
      const parsed = parseArguments(send, inString(name, value))
      expect(parsed.ok && parsed.value.input).toEqual({ [name]: value })
      expect(parsed.ok && parsed.value.corrections).toEqual([
        `${name}: JSON in a string taken as ${Array.isArray(value) ? 'array' : 'object'}`,
      ])
    },
  )

  it('is read within what was in a string', () => {
    const copies = JSON.stringify([JSON.stringify({ city: 'Bonn' })])
    expect(inputOf(send, JSON.stringify({ copies }))).toEqual({ copies: [{ city: 'Bonn' }] })
  })

  it.each([
    ['the schema accepts a string too', { note: '{"city":"Bonn"}' }],
    ['the schema accepts anything', { free: '{"city":"Bonn"}' }],
    ['the text is of another type', { to: '[1]' }],
    ['the text is no JSON', { to: '{city: Bonn}' }],
    ['the text names a prototype', { to: '{"__proto__":{"city":"Bonn"}}' }],
    ['a number would lose digits', { to: '{"city":12345678901234567890}' }],
  ])('stays a string where %s', (_, value) => {
    expect(inputOf(send, JSON.stringify(value))).toEqual(value)
  })
})

describe('mistakes with one meaning', () => {
  it.each([
    ['{"filePath":"x"}', { path: 'x' }],
    ['{"path":"x","max_lines":"3"}', { path: 'x', limit: 3 }],
    ['{"path":"x","deep":"TRUE"}', { path: 'x', deep: true }],
    ['{"path":"x","names":"[\\"a\\"]"}', { path: 'x', names: ['a'] }],
    ['{"path":"x","where":"{\\"kind\\":\\"f\\"}"}', { path: 'x', where: { kind: 'f' } }],
    ['{"path":"x","limit":null}', { path: 'x' }],
    ['```json\n{"path":"x"}\n```', { path: 'x' }],
    ["{path: 'x', deep: True,}", { path: 'x', deep: true }],
    ['{"path":"one\ntwo"}', { path: 'one\ntwo' }],
    ['{"path":"x"', { path: 'x' }],
    ['{"path":"x","where":{"kind":"f"', { path: 'x', where: { kind: 'f' } }],
  ])('puts %j right for a tool that only reads [S2.17] [G.07]', (text, input) => {
    const parsed = parseArguments(find, text)
    expect(parsed.ok && parsed.value.input).toEqual(input)
    expect(parsed.ok && parsed.value.corrections.length).toBeGreaterThan(0)
  })

  it.each([
    ['a number that is none', '{"path":"x","limit":"0x3"}'],
    ['a number out of range', '{"path":"x","limit":"10"}'],
    ['a word for a truth value', '{"path":"x","deep":"yes"}'],
    [
      'a parameter that is null under its name, and a value under another',
      '{"path":"x","limit":null,"count":3}',
    ],
    ['two words for one parameter', '{"file":"x","filePath":"y"}'],
    ['a cut number', '{"path":"x","limit":1'],
    ['a cut list', '{"path":"x","names":["a"'],
    ['a cut key', '{"path":"x","limit"'],
    ['a comma at the end', '{"path":"x",'],
    ['a cut string', '{"path":"x'],
    ['quotes that were not escaped', '{"path":"say "x" now"}'],
    ['an escape that JSON has not', '{"path":"\\d+"}'],
    ['a value without quotes', '{"path":x}'],
    ['an ellipsis', '{"path":"x", ...}'],
    ['strings side by side', '{"path":"x" "y"}'],
    ['a missing comma', '{"path":"x" "deep":true}'],
    ['prose around it', 'Here: {"path":"x"}'],
    ['a comment', '{"path":"x" /* all */}'],
    ['a number that would be rounded', '{"path":"x","limit":9007199254740993}'],
    ['a number beyond all numbers', '{"path":"x","limit":1e999}'],
  ])('refuses %s: it may mean something else [S2.17] [S2.18] [G.07]', (_name, text) => {
    expect(artifactOf(find, text)?.toolName).toBe('find_it')
  })

  it('keeps each string, number and constant of a repaired text as it was written [G.07]', () => {
    const plainText = fc.string({
      unit: fc.constantFrom('a', ' ', "'", '\n', '\\\\', '{', ']', ',', ':', '//', 'é'),
    })
    const record = fc.record({ path: plainText, limit: fc.integer({ min: -9, max: 9 }), deep: fc.boolean() })
    fc.assert(
      fc.property(record, (value) => {
        const text = JSON.stringify(value).replace(/\}$/, ',}').replaceAll('\\n', '\n')
        expect(inputOf(find, text)).toEqual(value)
      }),
      { seed: 11, numRuns: 300 },
    )
  })
})

const Leaf = z.strictObject({
  path: z.string(),
  limit: z.int().max(99).optional(),
  note: z.string().nullable().optional(),
  timeoutMs: z.number().optional(),
})
const nested: ArgumentsOf = {
  name: 'look_deep',
  readOnly: true,
  inputSchema: z.strictObject({
    one: Leaf.optional(),
    many: z.array(Leaf).optional(),
    chosen: z
      .discriminatedUnion('kind', [
        z.strictObject({ kind: z.literal('file'), path: z.string() }),
        z.strictObject({ kind: z.literal('page'), url: z.string(), limit: z.int().optional() }),
      ])
      .optional(),
    either: z.union([z.string(), z.number()]).optional(),
    free: z.looseObject({ path: z.string().optional(), limit: z.int().optional() }).optional(),
    deeper: z.strictObject({ leaves: z.array(z.strictObject({ leaf: Leaf })) }).optional(),
  }),
}

describe('mistakes inside objects and lists', () => {
  it.each([
    ['{"one":{"filePath":"x","limit":"3"}}', { one: { path: 'x', limit: 3 } }],
    ['{"many":[{"path":"x"},{"file":"y","limit":null}]}', { many: [{ path: 'x' }, { path: 'y' }] }],
    ['{"many":{"path":"x"}}', { many: [{ path: 'x' }] }],
    ['{"one":"{\\"file\\":\\"x\\"}"}', { one: { path: 'x' } }],
    ['{"one":{"file":"x","note":null}}', { one: { path: 'x', note: null } }],
    ['{"chosen":{"kind":"page","uri":"u","limit":"4"}}', { chosen: { kind: 'page', url: 'u', limit: 4 } }],
    ['{"deeper":{"leaves":[{"leaf":{"Path":5}}]}}', { deeper: { leaves: [{ leaf: { path: '5' } }] } }],
  ])('puts %j right, and says where [S2.17]', (text, input) => {
    const parsed = parseArguments(nested, text)
    expect(parsed.ok && parsed.value.input).toEqual(input)
    expect(parsed.ok && parsed.value.corrections.length).toBeGreaterThan(0)
    expect(parsed.ok && parsed.value.corrections[0]).toMatch(/^(one|many|chosen|deeper)/)
  })

  it.each([
    ['two words for one parameter', '{"one":{"file":"x","filePath":"y"}}'],
    ['an unknown parameter', '{"one":{"path":"x","force":true}}'],
    ['null for what is needed', '{"one":{"path":null}}'],
    ['an option that is not certain', '{"chosen":{"kind":"other","uri":"u"}}'],
    ['a value that none of two types takes', '{"either":true}'],
    ['a parameter of another object', '{"one":{"path":"x"},"file":"y"}'],
  ])('refuses %s [S2.17] [S2.18]', (_name, text) => {
    expect(artifactOf(nested, text)?.toolName).toBe('look_deep')
  })

  it('leaves what fits as it was given, whatever mistake stands beside it [S2.17]', () => {
    const leaf = fc.record(
      {
        path: fc.string(),
        limit: fc.integer({ min: -9, max: 99 }),
        note: fc.option(fc.string()),
        timeoutMs: fc.integer({ min: 0, max: 9 }),
      },
      { requiredKeys: ['path'] },
    )
    const free = fc.dictionary(fc.constantFrom('file', 'count', 'other'), fc.jsonValue())
    const value = fc.record(
      {
        one: leaf,
        many: fc.array(leaf, { maxLength: 3 }),
        free,
        either: fc.oneof(fc.string(), fc.integer()),
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(value, leaf, (whole, { path, ...rest }) => {
        const mistake = { ...whole, deeper: { leaves: [{ leaf: { ...rest, file_path: path } }] } }
        const expected = { ...whole, deeper: { leaves: [{ leaf: { ...rest, path } }] } }
        expect(inputOf(nested, JSON.stringify(mistake))).toEqual(JSON.parse(JSON.stringify(expected)))
      }),
      { seed: 12, numRuns: 300 },
    )
  })
})

describe('tools that may destroy something', () => {
  it.each([
    ['another word for a parameter', '{"file_path":"x"}'],
    ['another case', '{"Path":"x"}'],
    ['a truth value as text', '{"path":"x","recursive":"true"}'],
    ['null for what may be left out', '{"path":"x","recursive":null}'],
    ['a number for a text', '{"path":5}'],
    ['an unknown parameter', '{"path":"x","force":true}'],
    ['missing braces', '{"path":"x"'],
    ['a parameter given twice', '{"path":"x","path":"y"}'],
  ])('refuses %s [S2.17] [S2.18]', (_name, text) => {
    expect(artifactOf(wipe, text)?.corrections).toEqual([])
  })

  it('names the right parameter in its refusal [S2.18]', () => {
    expect(artifactOf(wipe, '{"file_path":"x"}')?.issues).toEqual([
      {
        path: 'path',
        code: 'invalid_type',
        message: 'is required and missing',
        expectedType: 'string',
        receivedType: 'undefined',
      },
      {
        path: 'file_path',
        code: 'unrecognized_keys',
        message: 'there is no parameter "file_path"; if you mean "path", give it under that name',
      },
    ])
  })

  it('takes what is exact, also where only quotes and commas were wrong [S2.17]', () => {
    expect(inputOf(wipe, '{"path":"x","recursive":true}')).toEqual({ path: 'x', recursive: true })
    expect(inputOf(wipe, "{'path':'x',}")).toEqual({ path: 'x', recursive: false })
  })

  it('is every tool that does not only read, unless it says otherwise [S2.17]', () => {
    for (const tool of [createWriteFile(), createEditFile(), createMoveFile(), createDeleteFile()]) {
      expect(artifactOf(tool, '{"filePath":"x"}')?.corrections, tool.name).toEqual([])
    }
    expect(inputOf(createReadFile(), '{"filePath":"x"}')).toMatchObject({ path: 'x' })
    expect(inputOf({ ...wipe, destructive: false }, '{"filePath":"x"}')).toMatchObject({ path: 'x' })
  })
})

describe('the artifact of a failed validation', () => {
  it('is read back from its object and from its JSON, and from nothing else [S2.18]', () => {
    const { output } = validationFailure('find_it', 'no', [{ path: 'a', code: 'c', message: 'm' }], ['b'])
    const artifact = {
      ok: false,
      status: 'error',
      errorType: 'tool_parameter_validation_failed',
      toolName: 'find_it',
      message: 'no',
      issues: [{ path: 'a', code: 'c', message: 'm' }],
      corrections: ['b'],
    }
    expect(parseToolValidationFailureArtifact(output)).toEqual(artifact)
    expect(parseToolValidationFailureArtifact({ ...artifact, later: 1 })).toEqual(artifact)
    for (const other of ['', 'x', '{}', 'null', null, undefined, 7, [], { ...artifact, issues: 'none' }]) {
      expect(parseToolValidationFailureArtifact(other)).toBeNull()
    }
  })

  it('stays whole JSON within its bound, however much is wrong [S2.18]', () => {
    const bad = Object.fromEntries(
      Array.from({ length: 500 }, (_, n) => [`\u0001${n}${'\u0002'.repeat(300)}`, n]),
    )
    const parsed = parseArguments(find, JSON.stringify({ path: 'x', ...bad }))
    const { output = '', error } = parsed.ok ? {} : parsed.error
    expect(output.length).toBeLessThanOrEqual(limits.textMaxChars)
    expect(parseToolValidationFailureArtifact(output)?.issues.length).toBeGreaterThan(0)
    expect(error?.message.length).toBeLessThanOrEqual(limits.textMaxChars)
  })

  it('is null or an artifact for any value [S2.18]', () => {
    fc.assert(
      fc.property(fc.anything(), fc.string(), (value, text) => {
        for (const given of [value, text]) {
          const read = parseToolValidationFailureArtifact(given)
          expect(read === null || read.status === 'error').toBe(true)
        }
      }),
      { seed: 2, numRuns: 300 },
    )
  })
})

describe('hostile arguments', () => {
  it('ends with a value for any text, in time that grows with its length alone [S1.09] [G.07]', () => {
    const units = [
      '{"a":',
      '[',
      "'",
      '"\\u00',
      '{"path":"x",',
      '/*',
      '{"a":1 ',
      'x ',
      '\\',
      "{'",
      ',',
      '{a:"\n',
    ]
    const time = (size: number): number => {
      const started = process.threadCpuUsage()
      for (const unit of units) parseArguments(find, unit.repeat(Math.floor(size / unit.length)))
      return process.threadCpuUsage(started).user / 1_000
    }
    time(10_000)
    const small = Math.max(time(50_000), 1)
    expect(time(500_000) / small).toBeLessThan(60)
    expect(Buffer.byteLength(JSON.stringify(parseArguments(find, '{'.repeat(1_000_000))))).toBeLessThan(
      10_000,
    )
  })
})
