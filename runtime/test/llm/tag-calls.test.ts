// Calls in tags: no parameter is taken into another one, and no type is guessed.
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { readArguments } from '../../arguments/read.ts'
import type { ToolSpec } from '../../llm/messages.ts'
import { readText } from '../../llm/text-calls.ts'

const tool: ToolSpec = {
  name: 'write_file',
  description: 'Writes.',
  parameters: {
    type: 'object',
    $defs: { place: { type: 'object', properties: { line: { type: 'integer' } } } },
    properties: {
      path: { type: 'string' },
      content: { type: 'string' },
      note: { type: ['string', 'null'] },
      label: { anyOf: [{ type: 'string' }, { type: 'null' }] },
      count: { type: 'integer' },
      ratio: { anyOf: [{ type: 'number' }, { type: 'null' }] },
      flag: { type: 'boolean' },
      mode: { enum: ['append', 'overwrite'] },
      level: { enum: [1, 2, '3'] },
      names: { type: 'array', items: { type: 'string' } },
      place: { $ref: '#/$defs/place' },
      any: {},
      either: { type: ['string', 'integer'] },
    },
  },
}
const forms = {
  qwen: (inner: string) => `<tool_call>\n<function=write_file>\n${inner}\n</function>\n</tool_call>`,
  minimax: (inner: string) =>
    `<minimax:tool_call><invoke name="write_file">${inner.replaceAll(/<parameter=(\w+)>/g, '<parameter name="$1">')}</invoke></minimax:tool_call>`,
  deepseek: (inner: string) =>
    `<｜DSML｜tool_calls><｜DSML｜invoke name="write_file">${inner
      .replaceAll(/<parameter=(\w+)>/g, '<｜DSML｜parameter name="$1">')
      .replaceAll('</parameter>', '</｜DSML｜parameter>')}</｜DSML｜invoke></｜DSML｜tool_calls>`,
}

/** The arguments that would be carried out; a text where none would. */
function argumentsOf(text: string): unknown {
  const { calls } = readText(text, [tool])
  if (calls.length !== 1) return `${calls.length} calls`
  try {
    return JSON.parse(calls[0]?.argumentsText ?? '')
  } catch {
    return 'refused'
  }
}
const parameter = (name: string, value: string) => `<parameter=${name}>${value}</parameter>`

describe.each(Object.entries(forms))('parameters in the tags of %s', (_name, form) => {
  it.each([
    ['the first', '<parameter=path>a\n<parameter=content>b</parameter>'],
    ['the last', '<parameter=path>a</parameter><parameter=content>b'],
    ['all', '<parameter=path>a<parameter=content>b'],
    ['the first, where a value holds one', '<parameter=path>a<parameter=content>b</parameter> c</parameter>'],
    ['another one', '<parameter=path>a</path>\n<parameter=content>b</parameter>'],
    ['one that no tool has', '<parameter=path>a<parameter=other>b</parameter>'],
    ['one in the middle', `${parameter('path', 'a')}<parameter=content>b${parameter('note', 'c')}`],
  ])('are refused where an end is missing: %s [G.07]', (_which, inner) => {
    expect(argumentsOf(form(inner))).toBe('refused')
    // The next call's end is not this one's either.
    const next = form(parameter('path', 'x') + parameter('content', 'y'))
    const all = readText(`${form(inner)}\n${next}`, [tool]).calls
    for (const { argumentsText } of all)
      expect([JSON.stringify({ path: 'x', content: 'y' }), 'refused']).toContain(
        isJson(argumentsText) ? argumentsText : 'refused',
      )
  })

  it('are refused where an end stands twice, or text between them [G.07]', () => {
    const content = parameter('content', 'b')
    expect(argumentsOf(form(`${parameter('path', 'a')}</parameter>${content}`))).toBe('refused')
    expect(argumentsOf(form(`${content}${parameter('path', 'a')}\n</parameter>`))).toBe('refused')
    expect(argumentsOf(form(`${parameter('path', 'a')} and ${content}`))).toBe('refused')
  })

  it('hold tags that are theirs: whole ones, of no parameter that is missing [G.07]', () => {
    for (const value of [
      `x ${parameter('other', 'y')} z`,
      `x ${parameter('path', 'y')} z`,
      '<parameter>',
      '</function> <function=f>',
    ]) {
      const inner = parameter('path', 'a') + parameter('content', value)
      const read = argumentsOf(form(inner)) as { path: string; content: string }
      expect(read.path, value).toBe('a')
      expect(read.content.replaceAll(/｜DSML｜| name="\w+"|=\w+/g, '')).toBe(value.replaceAll(/=\w+/g, ''))
    }
  })

  it('are never mixed, whichever tag is left out or misspelled [G.07]', () => {
    const given: Record<string, string> = { path: 'src/a.ts', content: 'if (a < b)\n  c()', note: 'n' }
    const text = form(
      Object.entries(given)
        .map(([name, value]) => `<parameter=${name}>\n${value}\n</parameter>\n`)
        .join(''),
    )
    for (const { index, 0: tag } of text.matchAll(/<\/?[^<>\n]+>/g)) {
      for (const put of ['', '<', '</parameter', '\n', '</path>', `${tag}${tag}`]) {
        const broken = text.slice(0, index) + put + text.slice(index + tag.length)
        for (const { argumentsText } of readText(broken, [tool]).calls) {
          if (!isJson(argumentsText)) continue
          const read = JSON.parse(argumentsText) as Record<string, string>
          for (const [name, value] of Object.entries(read)) expect(value.trim(), broken).toBe(given[name])
        }
      }
    }
  })
})

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

describe('values in tags', () => {
  it.each([
    ['content', '{"a": 1}', '{"a": 1}'],
    ['content', '12', '12'],
    ['content', 'null', 'null'],
    ['note', '12', '12'],
    ['note', '{"a": 1}', '{"a": 1}'],
    ['note', 'true', 'true'],
    ['label', '["a"]', '["a"]'],
    ['label', 'nothing', 'nothing'],
    ['count', '12', 12],
    ['ratio', '0.5', 0.5],
    ['ratio', 'null', null],
    ['ratio', 'None', null],
    ['flag', 'true', true],
    ['flag', 'False', false],
    ['mode', 'append', 'append'],
    ['level', '1', 1],
    ['level', '3', '3'],
    ['names', '["a"]', ['a']],
    ['names', "['a', \"it's\"]", ['a', "it's"]],
    ['place', "{'line': 5, 'open': True, 'end': None}", { line: 5, open: true, end: null }],
    ['place', '{"line": 5,}', { line: 5 }],
    ['any', 'some text', 'some text'],
    ['either', 'five', 'five'],
  ])('have the one type that the schema admits: %s %s [G.07]', (name, text, value) => {
    expect(argumentsOf(forms.qwen(parameter(name, text)))).toEqual({ [name]: value })
    expect(argumentsOf(forms.minimax(parameter(name, text)))).toEqual({ [name]: value })
  })

  it.each([
    ['note', 'null'],
    ['label', 'None'],
    ['any', '5'],
    ['any', '{"a":1}'],
    ['either', '5'],
  ])('are refused where both a text and a value may be meant: %s %s [G.07]', (name, text) => {
    expect(argumentsOf(forms.qwen(parameter(name, text)))).toBe('refused')
  })

  it('have the type that the call itself says [G.07]', () => {
    const of = (name: string, isText: boolean, value: string) =>
      argumentsOf(
        `<｜DSML｜tool_calls><｜DSML｜invoke name="write_file"><｜DSML｜parameter name="${name}" string="${isText}">${value}</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>`,
      )
    expect(of('any', true, '5')).toEqual({ any: '5' })
    expect(of('note', true, 'null')).toEqual({ note: 'null' })
    expect(of('count', true, '5')).toEqual({ count: '5' })
    expect(of('content', true, '\n{"a":1}\n')).toEqual({ content: '\n{"a":1}\n' })
    expect(of('any', false, '5')).toEqual({ any: 5 })
    expect(of('note', false, 'null')).toEqual({ note: null })
    expect(of('place', false, '{"line": 5}')).toEqual({ place: { line: 5 } })
    expect(of('content', false, 'no JSON')).toBe('refused')
  })

  it('are not rounded [G.07]', () => {
    expect(argumentsOf(forms.qwen(parameter('count', '9007199254740993')))).toEqual({
      count: '9007199254740993',
    })
    expect(argumentsOf(forms.qwen(parameter('any', '1e999')))).toEqual({ any: '1e999' })
    expect(argumentsOf(forms.qwen(parameter('place', '{"line":9007199254740993}')))).toEqual({
      place: '{"line":9007199254740993}',
    })
  })
})

describe('calls as JSON whose brackets close too early', () => {
  const write = {
    name: 'write_file',
    readOnly: false,
    parameters: z.strictObject({ path: z.string(), content: z.string() }),
    schema: {},
  }
  // The quotation marks within `say "}}" now` are not escaped.
  const spoiled = '{"path":"a","content":"say "}}" now"}'
  it.each([
    ['hermes', `<tool_call>{"name":"write_file","arguments":${spoiled}}</tool_call>`],
    ['hermes', `<tool_call>{"name":"write_file","arguments":${spoiled}}`],
    ['nemotron', `<TOOLCALL>[{"name":"write_file","arguments":${spoiled.replace('}}', '}}]')}}]</TOOLCALL>`],
    ['llama', `<|python_tag|>{"name":"write_file","parameters":${spoiled}}`],
    [
      'kimi',
      `<|tool_call_begin|>write_file<|tool_call_argument_begin|>${spoiled.replace('}}', '}')}<|tool_call_end|>`,
    ],
    [
      'deepseek',
      `<｜tool▁call▁begin｜>write_file<｜tool▁sep｜>${spoiled.replace('}}', '}')}<｜tool▁call▁end｜>`,
    ],
    ['mistral', `[TOOL_CALLS]write_file[ARGS]${spoiled.replace('}}', '}')}`],
    ['qwen', `<function=write_file>${spoiled.replace('}}', '}')}</function>`],
  ])('are refused in the form of %s: %s [G.07]', async (_form, text) => {
    const { calls } = readText(text, [tool])
    expect(calls).toHaveLength(1)
    const read = await readArguments(write, calls[0]?.argumentsText ?? '')
    expect(read.ok).toBe(false)
  })
})

describe('hostile text', () => {
  // Each took minutes or hours while one call was read again for each call before it.
  it.each([
    ['calls whose parameters end far behind them', '<function=write_file><parameter=path>x</function>'],
    ['calls of unknown tools', '<|tool_call_begin|>other<|tool_call_argument_begin|>{"a":"x"} '],
  ])('is read in time linear in its length: %s [G.07]', { timeout: 60_000 }, (_, one) => {
    const end = '</parameter></function><|tool_call_end|>'
    const { calls } = readText(one.repeat(1_000_000 / one.length) + end, [tool])
    for (const { argumentsText } of calls) expect(() => JSON.parse(argumentsText)).toThrow()
  })
})
