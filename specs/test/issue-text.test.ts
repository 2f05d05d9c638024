import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { describeIssues, plainMessages, plainMessagesWithoutValues } from '../protocol/issue-text.ts'

function told(schema: z.ZodType, value: unknown, how = plainMessages): string {
  const parsed = schema.safeParse(value, how)
  return parsed.success ? 'fits' : describeIssues(parsed.error)
}

const kind = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('a'), n: z.int() }),
  z.object({ kind: z.literal('b') }),
])
const tools = z.union([z.boolean(), z.array(z.string()), z.record(z.string(), z.boolean())])

describe('what is wrong with a value', () => {
  it.each<[string, z.ZodType, unknown, string]>([
    [
      'a number below its least',
      z.object({ limits: z.object({ maxTurns: z.int().min(1) }) }),
      { limits: { maxTurns: -1 } },
      'limits.maxTurns: must be 1 or more, got -1',
    ],
    ['a number above its most', z.number().max(2), 3, 'the value: must be 2 or less, got 3'],
    ['a number at an open bound', z.number().positive(), 0, 'the value: must be more than 0, got 0'],
    ['a number at an open upper bound', z.number().lt(1), 1, 'the value: must be less than 1, got 1'],
    ['a fraction', z.int(), 1.5, 'the value: must be a whole number, got 1.5'],
    ['no number', z.number(), Number.NaN, 'the value: must be a number, got NaN'],
    ['not a multiple', z.number().multipleOf(4), 6, 'the value: must be a multiple of 4, got 6'],
    [
      'an early date',
      z.date().min(new Date(0)),
      new Date(-1),
      'the value: must be 1970-01-01T00:00:00.000Z or more, got 1969-12-31T23:59:59.999Z',
    ],
    ['an empty text', z.object({ name: z.string().min(1) }), { name: '' }, 'name: must not be empty'],
    ['a short text', z.string().min(3), 'ab', 'the value: must have at least 3 characters, has 2'],
    ['a long text', z.string().max(1), 'ab', 'the value: must have at most 1 character, has 2'],
    [
      'a text of another length',
      z.string().length(4),
      'ab',
      'the value: must have exactly 4 characters, has 2',
    ],
    ['an empty list', z.array(z.int()).min(1), [], 'the value: must not be empty'],
    ['a long list', z.array(z.int()).max(1), [1, 2], 'the value: must have at most 1 entry, has 2'],
    ['a missing field', z.object({ a: z.string() }), {}, 'a: is missing; must be text'],
    ['a missing choice', z.object({ a: z.enum(['x', 'y']) }), {}, 'a: is missing; must be one of "x", "y"'],
    ['another type', z.object({ a: z.boolean() }), { a: 'yes' }, 'a: must be true or false, got "yes"'],
    [
      'a long text for a number',
      z.number(),
      'x'.repeat(41),
      'the value: must be a number, got text of 41 characters',
    ],
    ['a list for an object', z.object({}), [], 'the value: must be an object, got a list'],
    [
      'nothing of the choices',
      z.enum(['ask', 'all']),
      'no',
      'the value: must be one of "ask", "all", got "no"',
    ],
    ['another literal', z.literal(1), null, 'the value: must be 1, got null'],
    ['unknown fields', z.strictObject({}), { a: 1, b: 2 }, 'the value: unknown fields "a", "b"'],
    ['a pattern', z.string().regex(/^[a-z]+$/), 'A', 'the value: must match the pattern ^[a-z]+$, got "A"'],
    ['a beginning', z.string().startsWith('run-'), 'x', 'the value: must begin with "run-", got "x"'],
    ['an address', z.url(), 'x', 'the value: must be a URL, got "x"'],
    [
      'a name of a map',
      z.record(z.string().min(2), z.int()),
      { a: 1 },
      'a: its name must have at least 2 characters, has 1',
    ],
    ['an entry of a set', z.set(z.int()), new Set(['x']), 'the value: must be a number, got "x"'],
    ['no kind', kind, { kind: 'c' }, 'kind: must be one of "a", "b", got "c"'],
    ['a missing kind', kind, {}, 'kind: is missing; must be one of "a", "b"'],
    ['none of several types', tools, 7, 'the value: must be true or false or a list or an object, got 7'],
    [
      'what one of several types says',
      z.object({ tools }),
      { tools: ['a', 1] },
      'tools: 1 must be text, got 1',
    ],
    [
      'words of the schema',
      z.string().refine(() => false, 'expected a host'),
      'x',
      'the value: expected a host',
    ],
    ['a check without words', z.custom(() => false), 'x', 'the value: is not valid, got "x"'],
  ])('is said plainly: %s [H.01]', (_, schema, value, expected) => {
    expect(told(schema, value)).toBe(expected)
  })

  it('names the places of several problems and counts the rest [H.01]', () => {
    const schema = z.object({ a: z.string(), b: z.object({ c: z.int() }), d: z.string(), e: z.string() })
    expect(told(schema, { b: { c: 'x' } })).toBe(
      'a: is missing; must be text; b.c: must be a number, got "x"; d: is missing; must be text; and 1 more',
    )
  })

  it('never repeats a text, or a value of a wrong type, where it may be a secret [H.01]', () => {
    const secret = 'nvapi-secret'
    const schemas = [
      ...[z.int(), z.boolean(), z.literal('x'), z.enum(['x', 'y']), z.url(), z.email(), z.string().length(3)],
      ...[
        z.string().regex(/^x$/),
        z.string().startsWith('x'),
        z.object({}),
        kind,
        tools,
        z.custom(() => false),
      ],
      ...[z.union([z.int(), z.literal('x')]), z.date(), z.array(z.string()), z.never()],
    ]
    for (const schema of schemas) {
      const words = told(z.object({ key: schema }), { key: secret }, plainMessagesWithoutValues)
      expect(words).toMatch(/^key: /)
      expect(words).not.toContain(secret)
    }
    expect(told(kind, { kind: secret }, plainMessagesWithoutValues)).not.toContain(secret)
    expect(told(z.string(), 1234, plainMessagesWithoutValues)).toBe('the value: must be text, got a number')
    expect(told(z.int().min(1), -1, plainMessagesWithoutValues)).toBe('the value: must be 1 or more, got -1')
  })

  it('has the words of this one place wherever people read it [H.01]', () => {
    const root = path.join(import.meta.dirname, '../..')
    // Their words are for models, or name the place alone.
    const others = [
      'agent/tools/ask-user.ts',
      'agent/tool-calls/call.ts',
      'agent/tool-calls/gateway-client.ts',
      'host/providers/embedder.ts',
      'runtime/arguments/failure.ts',
      'runtime/arguments/json-schema.ts',
    ]
    const found = ['specs', 'host', 'runtime', 'agent'].flatMap((room) =>
      readdirSync(path.join(root, room), { recursive: true, encoding: 'utf8' })
        .map((name) => `${room}/${name}`)
        .filter((name) => name.endsWith('.ts') && !/\/(test|testing|node_modules)\//.test(name))
        .filter((name) => {
          const source = readFileSync(path.join(root, name), 'utf8')
          return /prettifyError|error\??\.issues/.test(source) && !source.includes('/issue-text.ts')
        }),
    )
    const nameOf = (file: string) => path.basename(file)
    expect(found.map(nameOf).sort()).toEqual(others.map(nameOf).sort())
  })
})
