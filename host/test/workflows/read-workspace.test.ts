import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { readWorkspace } from '../../workflows/read-workspace.ts'

/** The samples of the documentation, in their order. */
function samples(): string[] {
  const page = readFileSync(new URL('../../../docs/sample-workspace-json.md', import.meta.url), 'utf8')
  return [...page.matchAll(/^```json5?\n([\s\S]*?)^```/gm)].map(([, text = '']) => text)
}

const example = readFileSync(
  new URL('../../../examples/workflows/review.workflow.json', import.meta.url),
  'utf8',
)

const message = (content: string) => ({ chat: [{ role: 'user', content }] })

const described = {
  description: 'x',
  parameters: [
    { type: 'integer', name: 'n' },
    { type: 'integer', name: 'o', required: false },
  ],
  code: 'function f(n, o) {}',
}

/** A file with these steps, in this order, and what else is given. */
function file(steps: Record<string, unknown>, more: Record<string, unknown> = {}): string {
  return JSON.stringify(
    {
      'A@1#details': { steps: Object.keys(steps).map((id) => ({ id })) },
      ...Object.fromEntries(
        Object.entries(steps).map(([id, details]) => [`A@1@step-${id}#details`, details]),
      ),
      ...more,
    },
    null,
    1,
  )
}

/** A call with as many arguments as a file can have; its function takes none of them. */
function manyArguments(value: unknown): string {
  const names = Array.from({ length: 20_000 }, (_, index) => `k${index}`)
  const given = Object.fromEntries(names.map((name) => [name, value]))
  return file({ a: { call: { function: 'f', arguments: given } } }, { 'A@1@func-f#details': described })
}

/** The problems as text: `LINE KEY PATH: MESSAGE`. */
function problems(text: string): string[] {
  const read = readWorkspace(text)
  return read.ok
    ? []
    : read.error.map(({ line, key, path, message: said }) => `${line} ${key} ${path}: ${said}`)
}

describe('a workflow file', () => {
  it('is read as it stands in the samples, with one separator or two [S3.01] [S3.02] [S3.03]', () => {
    const [first = '', ...others] = samples()
    for (const text of [first, first.replaceAll('V1@develop', 'V1@@develop')]) {
      const read = readWorkspace(text)
      expect(read).toMatchObject({
        ok: true,
        value: {
          agent: 'Agent - V1',
          version: 'develop',
          steps: [
            {
              id: '1. Architect',
              work: 'chat',
              next: [],
              details: {
                model: 'gpt-4o',
                runFunctionsInParallel: false,
                passConversationToNextStep: false,
                function: [{ name: 'send_plan_to_pm' }, { name: 'read_data_from_sheet' }],
              },
            },
          ],
          functions: [
            {
              name: 'read_data_from_sheet',
              parameters: [
                { type: 'string', name: 'sheet_url', description: 'Sheet url' },
                { type: 'string', name: 'tab_name', description: 'Tab name' },
              ],
            },
          ],
        },
      })
    }
    expect(others.length).toBeGreaterThan(0)
    for (const text of [...others, example]) expect(problems(text)).toEqual([])
  })

  it('leads from each step to the next of its list, unless the step says where to [S3.04]', () => {
    const read = readWorkspace(
      file({
        a: message('x'),
        b: { ...message('x'), nextStep: ['c', 'd'] },
        c: { ...message('x'), nextStep: 'e', onFailure: { step: 'd' } },
        d: { ...message('x'), nextStep: '-' },
        e: message('x'),
      }),
    )
    if (!read.ok) throw new Error(JSON.stringify(read.error))
    expect(read.value.steps.map(({ next }) => next.map(({ to, on }) => `${to} ${on}`))).toEqual([
      ['b completed'],
      ['c completed', 'd completed'],
      ['e completed', 'd failed'],
      [],
      [],
    ])
  })

  it.each<[string, string, string]>([
    ['no JSON', '{', '1  : cannot be read as JSON: Flow map must end with a }'],
    ['no object', '[]', '1  : must be an object with the keys AGENT@VERSION#details'],
    ['no list', '{"A@1@func-f#details":{"description":"x"}}', 'expected the key "A@1#details"'],
    [
      'an unknown key',
      file({ a: message('x') }, { 'A@1@stp-b#details': {} }),
      'A@1@stp-b#details : is no key',
    ],
    [
      'a comment of JavaScript',
      file({ a: message('x') }, { 'func-f#details': {} }).replace('"func-f', '// of f\n"A@1@func-f'),
      'begins with a comment of another form; comments begin with #',
    ],
    [
      'an argument that the function does not take, without the one that it takes',
      file({ a: { call: { function: 'f', arguments: { m: 1 } } } }, { 'A@1@func-f#details': described }),
      'call.arguments.m: is no argument of the function "f", whose parameters are "n", "o"',
    ],
    [
      'a call without an argument',
      file({ a: { call: { function: 'f' } } }, { 'A@1@func-f#details': described }),
      'call.arguments: lacks "n", which the function "f" requires',
    ],
    [
      'another agent',
      file({ a: message('x') }, { 'B@1@func-f#details': { description: 'x' } }),
      'belongs to B@1',
    ],
    [
      'two lists',
      file({ a: message('x') }, { 'A@2#details': { steps: [{ id: 'a' }] } }),
      'second list of steps',
    ],
    [
      'a step without details',
      '{"A@1#details":{"steps":[{"id":"a"}]}}',
      'expected the key "A@1@step-a#details"',
    ],
    [
      'a step that is not listed',
      file({ a: message('x') }, { 'A@1@step-b#details': message('x') }),
      'is not in the list',
    ],
    ['an unknown field', file({ a: { ...message('x'), chats: [] } }), 'unknown field "chats"'],
    [
      'a misspelled field',
      file({ a: { ...message('x'), fuction: [] } }),
      'unknown field "fuction"; did you mean "function"?',
    ],
    [
      'misspelled fields within others',
      file({ a: { ...message('x'), each: { in: 'input', paralel: 2, maxx: 3 } } }),
      'each: unknown fields "paralel", "maxx"; did you mean "parallel", "max"?',
    ],
    [
      'two times to wait',
      file({ a: { wait: { for: '1m', until: 'input' } } }),
      'wait: has both `for` and `until`; give one of them',
    ],
    [
      'a wrong role',
      file({ a: { chat: [{ role: 'sys', content: 'x' }] } }),
      'chat.0.role: must be one of "system"',
    ],
    ['no work', file({ a: {} }), 'must have one of chat, call, ask, wait, workflow, from; has none of them'],
    ['two kinds of work', file({ a: { ...message('x'), ask: { question: 'x' } } }), 'has chat and ask'],
    ['another id', file({ a: { ...message('x'), id: 'b' } }), 'id: must be "a" as in the list, got "b"'],
    [
      'a function without a name',
      file({ a: message('x') }, { 'A@1@func-1x#details': { description: 'x' } }),
      '"1x" is no name of a function',
    ],
    [
      'a name twice',
      '{"A@1#details":1,"A@1#details":2}',
      '1  : cannot be read as JSON: this name is in the object twice',
    ],
    ['an alias', '{"A@1#details": &a [*a]}', 'has aliases (*NAME)'],
    [
      'a prototype',
      '{"__proto__":{},"A@1#details":{"steps":[{"id":"a"}]},"A@1@step-a#details":{"wait":{"for":"1h"}}}',
      '__proto__ : is no key',
    ],
  ])('with %s is refused by key, path and line', (_, text, expected) => {
    const found = problems(text)
    expect(found.length).toBeLessThanOrEqual(2)
    expect(found.join('\n')).toContain(expected)
  })

  it('with references of a JSON schema that lead nowhere is refused by the place of each [S3.01]', () => {
    const schema = {
      $defs: { 'a/b': { type: 'string' }, list: { type: 'array', items: { $ref: '#/$defs/a~1b' } } },
      properties: {
        whole: { $ref: '#' },
        first: { $ref: '#/$defs/list' },
        index: { $ref: '#/allOf/0' },
        other: { $ref: '#/$defs/List' },
        deep: { anyOf: [{ $ref: '#/properties/first/x' }] },
      },
      allOf: [{ minProperties: 1 }],
    }
    const found = problems(file({ a: { ...message('x'), output: schema } }))
    expect(found.map((one) => one.replace(/^\d+ /, ''))).toEqual([
      'A@1@step-a#details output.properties.other.$ref: leads nowhere: the schema has no "#/$defs/List"',
      'A@1@step-a#details output.properties.deep.anyOf.0.$ref: leads nowhere: the schema has no "#/properties/first/x"',
    ])
    // A pointer may start at another schema than the whole one.
    const withBase = { ...schema, $id: 'https://example.com/a' }
    expect(problems(file({ a: { ...message('x'), output: withBase } }))).toEqual([])
  })

  it('with types of JSON schema that do not exist is refused by the place of each [S3.01]', () => {
    const wrong = {
      properties: { type: { type: 'objekt' }, n: { type: ['null', 'int'] } },
      enum: [{ type: 'x' }],
    }
    const text = file(
      { a: { ...message('x'), output: { anyOf: [{ items: wrong }] } } },
      {
        'A@1#details': { steps: [{ id: 'a' }], input: { type: 5 } },
        'A@1@func-f#details': {
          description: 'x',
          parameters: [{ name: 'n', type: 'array', items: { type: 'any' } }],
          returns: { type: 'text' },
        },
      },
    )
    const types = 'expected one of string, number, integer, boolean, object, array, null'
    expect(problems(text).map((one) => one.replace(/^\d+ /, ''))).toEqual([
      `A@1#details input.type: is no type of JSON schema, got no text; ${types}`,
      `A@1@step-a#details output.anyOf.0.items.properties.type.type: is no type of JSON schema, got "objekt"; ${types}`,
      `A@1@step-a#details output.anyOf.0.items.properties.n.type.1: is no type of JSON schema, got "int"; ${types}`,
      `A@1@func-f#details parameters.0.items.type: is no type of JSON schema, got "any"; ${types}`,
      `A@1@func-f#details returns.type: is no type of JSON schema, got "text"; ${types}`,
    ])
  })

  it.each<[string, Record<string, unknown>, string]>([
    [
      'a step that is not there',
      { a: { ...message('x'), nextStep: 'z' } },
      'nextStep: no step has the id "z"; the steps are "a"',
    ],
    [
      'a circle',
      { a: message('x'), b: { ...message('x'), nextStep: 'a' } },
      'nextStep: leads back to "a"; to repeat a step',
    ],
    [
      'a failure that leads back',
      { a: message('x'), b: { ...message('x'), onFailure: { step: 'a' } } },
      'onFailure.step: leads back',
    ],
    [
      'a step that nothing leads to',
      { a: { ...message('x'), nextStep: '-' }, b: message('x') },
      'is never reached',
    ],
    [
      'a case behind one that always holds',
      { a: { ...message('x'), nextStep: [{ step: 'b' }, { when: 'true', step: '-' }] }, b: message('x') },
      'nextStep.0: always holds',
    ],
    [
      'two conversations',
      {
        a: { ...message('x'), nextStep: ['b', 'c'] },
        b: { ...message('x'), nextStep: 'd', passConversationToNextStep: true },
        c: { ...message('x'), nextStep: 'd', passConversationToNextStep: true },
        d: message('x'),
      },
      'conversations of "b", "c" at once',
    ],
    [
      'a conversation of a wait',
      { a: { wait: { for: 5 }, passConversationToNextStep: true }, b: message('x') },
      'only a step with `chat` has a conversation',
    ],
    [
      'a later step in an expression',
      { a: message('{{ steps.b.output }}'), b: message('x') },
      'chat.0.content: reads step "b", which has not ended by then',
    ],
    [
      'an unknown step in an expression',
      { a: { ...message('x'), when: 'steps.z.output' } },
      'when: reads step "z", but no step has this id',
    ],
    [
      'added steps of a call',
      { a: { call: { function: 'f' }, mayAdd: { steps: 1 } } },
      'mayAdd: only a step with `chat` adds steps',
    ],
    [
      'added steps of each entry',
      { a: { ...message('x'), each: { in: 'input' }, mayAdd: { steps: 1 } } },
      'a step with `each` has several conversations, and adds no steps',
    ],
    ['an item without a list', { a: message('{{ item }}') }, '`item` and `index` exist only'],
    ['a broken expression', { a: { ...message('x'), when: 'input. ==' } }, '(expression: CEL)'],
    ['braces that are no expression', { a: message('{{ not one }}') }, 'for two braces as text write'],
  ])('with %s is refused [S3.09]', (_, steps, expected) => {
    const found = problems(file(steps))
    expect(found).toHaveLength(1)
    expect(found.join('\n')).toContain(expected)
  })

  it('names the line of each problem', () => {
    const text = file({ a: { ...message('x'), nextStep: 'z' }, b: { ...message('x'), nextStep: 'y' } })
    const lines = text.split('\n')
    const read = readWorkspace(text)
    expect(read.ok).toBe(false)
    for (const { line, column, path: below } of read.ok ? [] : read.error) {
      expect(below).toBe('nextStep')
      expect(lines[line - 1]?.slice(column - 1)).toMatch(/^"[zy]"/)
    }
  })

  it.each([
    ['nesting', '['.repeat(50_000)],
    ['nesting of 400,000 levels', '['.repeat(400_000)],
    ['closed nesting', `${'['.repeat(1_000)}${']'.repeat(1_000)}`],
    ['keys that are objects', '? '.repeat(1_000)],
    ['keys that are lists', '? - '.repeat(1_000)],
    ['nesting of objects', '{"a":'.repeat(20_000)],
    ['keys', `{${Array.from({ length: 10_000 }, (_, index) => `"k${index}":1`).join(',')}}`],
    ['length', `"${'x'.repeat(600_000)}"`],
    ['tags', '!!x '.repeat(100_000)],
    ['marks', '!'.repeat(500_000)],
    ['lines', '#\n'.repeat(50_000)],
    ['arguments', manyArguments(1)],
    ['templates', manyArguments('{{x}}')],
  ])('of hostile %s is refused with few problems', (_, text) => {
    const found = problems(text)
    expect(found.length).toBeGreaterThan(0)
    expect(found.length).toBeLessThanOrEqual(100)
    expect(found.every((one) => one.length < 1_000)).toBe(true)
  })

  it('never makes the reader throw', () => {
    fc.assert(
      fc.property(fc.nat(example.length), fc.nat(40), fc.string(), (at, cut, put) => {
        const read = readWorkspace(example.slice(0, at) + put + example.slice(at + cut))
        expect(read.ok || read.error.length > 0).toBe(true)
      }),
      { numRuns: 100 },
    )
  })
})
