// A call's arguments after a mistake of the model: read as they were meant, or refused. Real source lines are the content.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { readArguments } from '../../arguments/read.ts'
import { readArgumentsJson } from '../../llm/repair.ts'
import { readText } from '../../llm/text-calls.ts'

const root = join(import.meta.dirname, '../../..')
const folders = [
  'runtime/llm',
  'vm-image/guest',
  'scripts',
  'specs',
  'node_modules/zod/src/v4/core',
  'node_modules/jsonrepair',
  'node_modules/undici/lib/core',
]
const sourceFile = /\.(ts|js|mjs|py|md|json|sh|html|toml)$/

/**
 * Lines of TypeScript, Python, shell, Markdown and JSON of this project and its dependencies, with quotes or
 * comments in them.
 */
const lines = folders.flatMap((folder) =>
  readdirSync(join(root, folder), { withFileTypes: true })
    .filter((entry) => entry.isFile() && sourceFile.test(entry.name))
    .flatMap(({ name }) => readFileSync(join(root, folder, name), 'utf8').split('\n'))
    .filter((line) => line.length < 400 && /["'#]|\/[/*]/.test(line)),
)
/** Those in which a comment could begin right behind a quotation mark. */
const marked = lines.filter((line) => /^[^"]*"\s*(?:\/[/*]|#)|^[^']*'\s*(?:\/[/*]|#)/.test(line))
const content = fc.oneof(
  fc.array(fc.constantFrom(...lines), { minLength: 1, maxLength: 4 }).map((some) => some.join('\n')),
  fc.constantFrom(...marked),
  fc.constantFrom(...marked).map((line) => `${line.trim().replaceAll("'", '"')}\n`),
)

const tool = {
  name: 'write_file',
  readOnly: false,
  parameters: z.strictObject({ path: z.string(), content: z.string(), mode: z.string().optional() }),
  schema: {},
}
const spec = {
  name: 'write_file',
  description: 'Writes.',
  parameters: {
    type: 'object',
    properties: { path: { type: 'string' }, content: { type: 'string' }, mode: { type: 'string' } },
  },
}

type Given = Readonly<Record<string, string>>

/** How models spoil arguments that were whole. */
const mistakes: Readonly<Record<string, (given: Given) => string>> = {
  'inner quotes not escaped': (given) => JSON.stringify(given, null, 1).replaceAll('\\"', '"'),
  'inner quotes not escaped, on one line': (given) => JSON.stringify(given).replaceAll('\\"', '"'),
  'inner quotes and line breaks not escaped': (given) =>
    JSON.stringify(given).replaceAll('\\"', '"').replaceAll('\\n', '\n'),
  'only the last inner quote escaped': (given) => {
    const text = JSON.stringify(given, null, 1)
    const last = text.lastIndexOf('\\"')
    return last < 0 ? text : text.slice(0, last).replaceAll('\\"', '"') + text.slice(last)
  },
  'line breaks not escaped': (given) => JSON.stringify(given).replaceAll('\\n', '\n'),
  'single quotes in place of double ones': (given) =>
    `{\n${Object.entries(given)
      .map(([name, value]) => ` '${name}': '${value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}'`)
      .join(',\n')}\n}`,
  'only backslashes escaped': (given) =>
    `{\n${Object.entries(given)
      .map(([name, value]) => ` "${name}": "${value.replaceAll('\\', '\\\\')}"`)
      .join(',\n')}\n}`,
  'a comma too many': (given) => JSON.stringify(given).replace(/\}$/, ',}'),
  'keys without quotes': (given) =>
    `{${Object.entries(given)
      .map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
      .join(', ')}}`,
  'apostrophes escaped': (given) => JSON.stringify(given).replaceAll("'", "\\'"),
}

const given = fc.oneof(
  fc.record({ path: fc.constant('a.txt'), content }),
  fc.record({ content, path: fc.constant('src/b.ts') }),
  fc.record({ path: fc.constant('a'), content, mode: fc.constant('append') }),
)

describe('arguments that a mistake spoiled', () => {
  it.each(Object.entries(mistakes))('are read as meant or refused: %s [G.07]', async (_name, spoil) => {
    await fc.assert(
      fc.asyncProperty(given, async (value) => {
        const read = await readArguments(tool, spoil(value))
        if (read.ok) expect(read.value.input).toEqual(value)
      }),
      { seed: 1_301, numRuns: 400 },
    )
  })

  it.each(Object.entries(mistakes))('are so in a call written as text: %s [G.07]', async (_name, spoil) => {
    const forms = [
      (json: string) => `<tool_call>{"name":"write_file","arguments":${json}}</tool_call>`,
      (json: string) => `<TOOLCALL>[{"name":"write_file","arguments":${json}}]</TOOLCALL>`,
      (json: string) => `[TOOL_CALLS]write_file[ARGS]${json}`,
      (json: string) => `<|python_tag|>{"name":"write_file","parameters":${json}}`,
      (json: string) => `{"name":"write_file","parameters":${json}}`,
      (json: string) =>
        `<|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>${json}<|tool_call_end|>`,
      (json: string) => `<｜tool▁call▁begin｜>write_file<｜tool▁sep｜>${json}<｜tool▁call▁end｜>`,
      (json: string) => `<function=write_file>${json}</function>`,
    ]
    await fc.assert(
      fc.asyncProperty(given, fc.constantFrom(...forms), async (value, form) => {
        for (const call of readText(form(spoil(value)), [spec]).calls) {
          const read = await readArguments(tool, call.argumentsText)
          if (read.ok) expect(read.value.input).toEqual(value)
        }
      }),
      { seed: 1_302, numRuns: 400 },
    )
  })

  it('lose no character, whatever one edit makes of them [G.07]', () => {
    const edit = fc.record({
      at: fc.double({ min: 0, max: 1, noNaN: true }),
      cut: fc.integer({ min: 0, max: 2 }),
      insert: fc.constantFrom('', '"', "'", '\\', '//', '/*', '*/', '#', ',', '}', '{', ':', '\n', '`', '…'),
    })
    fc.assert(
      fc.property(given, fc.array(edit, { minLength: 1, maxLength: 3 }), (value, edits) => {
        let text = JSON.stringify(value, null, 1)
        for (const { at, cut, insert } of edits) {
          const place = Math.floor(at * text.length)
          text = text.slice(0, place) + insert + text.slice(place + cut)
        }
        const corrections: string[] = []
        const read = readArgumentsJson(text, false, corrections)
        if (read.ok && corrections.length > 0) expect(letters(JSON.stringify(read.value))).toBe(letters(text))
      }),
      { seed: 1_303, numRuns: 3_000 },
    )
  })

  it.each([
    ['a mark of a comment', '{"path":"a.html","content":"<script src="//cdn/x.js"></script>"\n}'],
    ['a mark of a comment that ends', '{"path":"a","content":"x"/* y"*/}'],
    ['a comment between parameters', '{"path":"a", // the file\n"content":"b"}'],
    ['a comment in front', '// write it\n{"path":"a","content":"b"}'],
    ['an escape that JSON has not', '{"path":"a","content":"it\\\'s"}'],
    ['an escape that Python reads in another way', "{'path':'a','content':'\\/'}"],
  ])('are refused with %s [G.07]', async (_name, text) => {
    expect((await readArguments(tool, text)).ok).toBe(false)
    expect((await readArguments({ ...tool, readOnly: true }, text)).ok).toBe(false)
  })
})

/** What of a text of arguments has to come through a repair: all but blanks, quotes, escapes and commas. */
function letters(text: string): string {
  return text
    .replaceAll(/\\u[0-9a-f]{4}|\\[bfnrt]/gi, '')
    .replaceAll(/[\s"'\\,]/g, '')
    .replaceAll(/^```(?:json)?|```$/g, '')
}

describe('numbers', () => {
  it.each([
    ['an integer that would be rounded', '9007199254740993'],
    ['a long integer', '-12345678901234567890'],
    ['more than there is', '1e400'],
    ['less than nothing', '-1E999'],
    ['so little that it would be zero', '1e-400'],
  ])('are refused where they cannot be kept: %s [G.07]', (_name, number) => {
    for (const text of [
      `{"n":${number}}`,
      `{"n":[${number}]}`,
      `{'n':${number},}`,
      `"{\\"n\\":${number}}"`,
    ]) {
      const read = readArgumentsJson(text, true, [])
      expect(read.ok && typeof read.value === 'object', text).toBe(false)
    }
  })

  it('are taken where they are exact, or as near as any [G.07]', () => {
    for (const number of [
      '9007199254740992',
      '-9007199254740991',
      '0.1',
      '1e300',
      '0e999',
      '1.5e-10',
      '-0.0',
    ])
      expect(readArgumentsJson(`{"n":${number}}`, false, [])).toEqual({
        ok: true,
        value: { n: Number(number) },
      })
  })
})
