// Calls in a reply's text: the forms that models are known to fall back to, and everything that only looks like one.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ChatMessage, ToolSpec } from '../../llm/messages.ts'
import { readText } from '../../llm/text-calls.ts'

const tools: ToolSpec[] = [
  {
    name: 'read_file',
    description: 'Reads.',
    parameters: {
      type: 'object',
      properties: {
        path: { type: 'string' },
        limit: { type: 'integer' },
        raw: { type: 'boolean' },
        lines: { type: 'array', items: { type: 'integer' } },
      },
    },
  },
  { name: 'list_files', description: 'Lists.', parameters: { type: 'object', properties: {} } },
]
const read = (path: string) => `{"name":"read_file","arguments":{"path":"${path}"}}`
const find = (text: string, history: ChatMessage[] = []) => {
  const found = readText(text, tools, history)
  return {
    text: found.text,
    form: found.calls[0]?.form,
    calls: found.calls.map(({ name, argumentsText }) => [name, JSON.parse(argumentsText)]),
  }
}
const one = [['read_file', { path: 'a' }]]
const two = [
  ['read_file', { path: 'a' }],
  ['list_files', {}],
]

describe('forms of calls', () => {
  it.each([
    ['nemotron', `<TOOLCALL>[${read('a')}]</TOOLCALL>`, one],
    ['nemotron', `<TOOLCALL>[${read('a')}, {"name":"list_files","arguments":{}}]</TOOLCALL>`, two],
    ['nemotron', `<TOOLCALL>[${read('a')}]`, one],
    ['hermes', `<tool_call>\n${read('a')}\n</tool_call>`, one],
    ['hermes', `<tool_call>${read('a')}</tool_call>\n<tool_call>{"name": "list_files"}</tool_call>`, two],
    ['hermes', `<tool_call>\n${read('a')}\n`, one],
    ['hermes', '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>', one],
    ['hermes', `<tool_call>{'name': 'read_file', 'arguments': {'path': 'a',}}</tool_call>`, one],
    ['hermes', `<tool_call>{"name":"read_file","arguments":{"path":"a"}</tool_call>`, one],
    [
      'qwen',
      '<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>',
      one,
    ],
    ['qwen', '<function=read_file>\n<parameter=path>a</parameter>\n</function>', one],
    ['qwen', '<function=read_file>{"path": "a"}</function>', one],
    [
      'qwen',
      '<tool_call><function=read_file><parameter=path>a</parameter></function><function=list_files></function></tool_call>',
      two,
    ],
    ['llama', '<|python_tag|>{"name": "read_file", "parameters": {"path": "a"}}<|eom_id|>', one],
    ['llama', `<|python_tag|>${read('a')}; {"name":"list_files","parameters":{}}`, two],
    ['llama', '{"name": "read_file", "parameters": {"path": "a"}}', one],
    ['llama', `${read('a')}; {"type":"function","name":"list_files","parameters":{}}<|eot_id|>`, two],
    ['llama', `[{"type":"function","function":${read('a')}}]`, one],
    [
      'kimi',
      '<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{"path":"a"}<|tool_call_end|><|tool_call_begin|>functions.list_files:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>',
      two,
    ],
    [
      'deepseek',
      '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{"path":"a"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
      one,
    ],
    [
      'deepseek',
      '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{"path":"a"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>list_files\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
      two,
    ],
    [
      'deepseek',
      '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read_file">\n<｜DSML｜parameter name="path" string="true">a</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
      one,
    ],
    [
      'deepseek',
      '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="read_file">\n<｜DSML｜parameter name="path" string="true">a</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name="list_files">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
      two,
    ],
    [
      'deepseek',
      '<｜｜DSML｜｜ calls><｜｜DSML｜｜ invoke name="read_file"><｜｜DSML｜｜ parameter name="path" string="true">a</｜｜DSML｜｜ parameter></｜｜DSML｜｜ invoke></｜｜DSML｜｜ calls>',
      one,
    ],
    [
      'deepseek',
      '<|DSML|invoke name="read_file"><|DSML|parameter name="path">a</|DSML|parameter></|DSML|invoke>',
      one,
    ],
    [
      'seed-oss',
      '<seed:tool_call>\n<function=read_file>\n<parameter=path>a</parameter>\n</function>\n</seed:tool_call>',
      one,
    ],
    [
      'gpt-oss',
      '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path":"a"}<|call|>',
      one,
    ],
    [
      'minimax',
      '<minimax:tool_call>\n<invoke name="read_file">\n<parameter name="path">a</parameter>\n</invoke>\n<invoke name="list_files">\n</invoke>\n</minimax:tool_call>',
      two,
    ],
    ['minimax', `<tool_calls>\n${read('a')}\n{"name":"list_files","arguments":{}}\n</tool_calls>`, two],
    ['mistral', `[TOOL_CALLS] [${read('a')}]`, one],
    ['mistral', '[TOOL_CALLS]read_file[ARGS]{"path":"a"}[TOOL_CALLS]list_files[CALL_ID]aB3[ARGS]{}', two],
  ])('reads that of %s: %s [G.07]', (form, text, calls) => {
    expect(find(text)).toEqual({ text: '', form, calls })
    expect(find(`Let me look.\n\n${text}`)).toEqual(
      form === 'llama' && !text.startsWith('<')
        ? { text: `Let me look.\n\n${text}`, form: undefined, calls: [] }
        : { text: 'Let me look.', form, calls },
    )
  })

  it('keeps the text around calls [G.07]', () => {
    const text = `First this.\n<tool_call>${read('a')}</tool_call>\nThen that.\n<tool_call>${read('b')}</tool_call>`
    expect(find(text)).toMatchObject({
      text: 'First this.\n\nThen that.',
      calls: [...one, ['read_file', { path: 'b' }]],
    })
  })

  it('gives parameters in tags the types that the tool has for them [G.07]', () => {
    const text =
      '<function=read_file><parameter=path>1</parameter><parameter=limit>5</parameter><parameter=raw>True</parameter><parameter=lines>[1,2]</parameter><parameter=other>2</parameter></function>'
    expect(find(text).calls).toEqual([
      ['read_file', { path: '1', limit: 5, raw: true, lines: [1, 2], other: '2' }],
    ])
  })

  it('keeps values in tags as they are, tags and line breaks of theirs included [G.07]', () => {
    const value = '\n  if a < b:\n\n<parameter=x>y</parameter>, `</function>`\n'
    const text = `<function=read_file>\n<parameter=path>\n${value}\n</parameter>\n</function>`
    expect(find(text).calls).toEqual([['read_file', { path: value }]])
  })

  it('reads back any arguments that a form can carry [G.07]', () => {
    const argument = fc.dictionary(
      fc.stringMatching(/^[a-z]{1,8}$/),
      fc.jsonValue({ maxDepth: 2, noUnicodeString: false }),
      { maxKeys: 4 },
    )
    fc.assert(
      fc.property(
        argument,
        fc.constantFrom('hermes', 'nemotron', 'mistral', 'kimi', 'deepseek'),
        (args, form) => {
          const json = JSON.stringify({ name: 'read_file', arguments: args })
          const text = {
            hermes: `<tool_call>${json}</tool_call>`,
            nemotron: `<TOOLCALL>[${json}]</TOOLCALL>`,
            mistral: `[TOOL_CALLS]read_file[ARGS]${JSON.stringify(args)}`,
            kimi: `<|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>${JSON.stringify(args)}<|tool_call_end|>`,
            deepseek: `<｜tool▁call▁begin｜>read_file<｜tool▁sep｜>${JSON.stringify(args)}<｜tool▁call▁end｜>`,
          }[form]
          const found = find(`So: ${text ?? ''}`)
          expect(JSON.stringify(found)).toBe(
            JSON.stringify({ text: 'So:', form, calls: [['read_file', JSON.parse(JSON.stringify(args))]] }),
          )
        },
      ),
      { seed: 7, numRuns: 300 },
    )
  })
})

describe('what is no call', () => {
  const call = `<tool_call>${read('a')}</tool_call>`
  it.each([
    ['in a fenced block', `Write it so:\n\n\`\`\`xml\n${call}\n\`\`\`\nThat is all.`],
    ['in a fence that never closes', `~~~\n${call}`],
    ['in an inline code span', `Write \`see ${call}\` to read.`],
    ['behind a quotation mark', `The file says "${call}".`],
    ['in a quoted line', `> ${call}`],
    ['of a tool that was not offered', '<tool_call>{"name":"drop_all","arguments":{}}</tool_call>'],
    ['of a tool by another spelling', '<tool_call>{"name":"Read_File","arguments":{}}</tool_call>'],
    ['JSON within an answer', `The format is ${read('a')}, as said.`],
    ['JSON with other keys', '{"name":"read_file","size":7}'],
    ['JSON without arguments', '{"name":"read_file"}'],
    ['two lists, one of them none', `${read('a')} {"x":1}`],
    ['a lone mark', 'Models write <tool_call> before a call, or [TOOL_CALLS].'],
    ['a mark without a name', '<function=>x</function><tool_call>{}</tool_call>'],
  ])('leaves %s in the text [G.07]', (_name, text) => {
    expect(find(text)).toEqual({ text, form: undefined, calls: [] })
  })

  it.each(['tool', 'user'] as const)('leaves what stands in a message of the %s [G.07]', (role) => {
    const content = `# Notes\n<tool_call>\n  ${read('a')}\n</tool_call>\n`
    const message: ChatMessage = role === 'tool' ? { role, callId: 'c', content } : { role, content }
    expect(find(`The notes say:\n${call}`, [message]).calls).toEqual([])
    const bare: ChatMessage = { ...message, content: `Say this: ${read('a')}` }
    expect(find(read('a'), [bare]).calls).toEqual([])
    expect(find(read('b'), [bare]).calls).toHaveLength(1)
    expect(find(`I read on.\n<tool_call>${read('b')}</tool_call>`, [message]).calls).toHaveLength(1)
    expect(find(call, [{ role: 'assistant', content: call, toolCalls: [] }]).calls).toHaveLength(1)
  })

  it('finds the call behind one that is quoted [G.07]', () => {
    const text = `\`\`\`\n${call}\n\`\`\`\n<tool_call>${read('b')}</tool_call>`
    expect(find(text).calls).toEqual([['read_file', { path: 'b' }]])
  })

  it('finds none where no tools were offered [G.07]', () => {
    expect(readText(call, [])).toEqual({ text: call, thinking: '', calls: [] })
  })
})

describe('broken calls', () => {
  it.each([
    ['hermes', '<tool_call>{"name":"read_file","arguments":{"path":"a', '{"path":"a'],
    [
      'hermes',
      '<tool_call>{"name":"read_file","arguments":{"path":"say "a""}}</tool_call>',
      '{"path":"say "a""}',
    ],
    ['hermes', '<tool_call>{"name":"read_file",', ','],
    ['nemotron', '<TOOLCALL>[{"name":"read_file","arguments":{"path":"a"', '{"path":"a"'],
    ['qwen', '<tool_call><function=read_file><parameter=path>a', '<parameter=path>a'],
    ['qwen', '<function=read_file>', '{'],
    [
      'qwen',
      '<function=read_file><parameter=path>a</parameter><parameter=path>b</parameter></function>',
      '<parameter=path>a</parameter><parameter=path>b</parameter>',
    ],
    ['kimi', '<|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{"pa', '{"pa'],
    ['kimi', '<|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>', '{'],
    ['mistral', '[TOOL_CALLS]read_file[ARGS]{"path', '{"path'],
    ['hermes', '<tool_call>{"name":"read_file","path":"a"}</tool_call>', '[{"name":"read_file","path":"a"}]'],
  ])('keeps what %s wrote for validation to refuse: %s [G.07]', (form, text, argumentsText) => {
    expect(readText(text, tools)).toEqual({
      text: '',
      thinking: '',
      calls: [{ name: 'read_file', argumentsText, form }],
    })
  })
})

describe('hostile text', () => {
  const marks = [
    '<TOOLCALL>[{',
    '<tool_call>{"name":"read_file","arguments":{',
    '<tool_call>{</tool_call>',
    '<tool_call><function=read_file><parameter=path>',
    '<function=read_file><parameter=path></function>',
    '<function=read_file><parameter=path></parameter>x',
    '<function=x>',
    '<|tool_call_begin|>read_file<|tool_call_argument_begin|>{',
    '<|tool_calls_section_begin|><|tool_call_begin|>',
    '<｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{',
    '[TOOL_CALLS][',
    '[TOOL_CALLS]read_file{"a":',
    '<|python_tag|>{};',
    '{"name":"read_file","parameters":{}}',
    '`<tool_call>{"a":"',
    '```\n> <TOOLCALL>["',
    '<minimax:tool_call><invoke name="read_file"><parameter name="a">',
    ' \n\t',
    '[[[[',
    '"\\',
  ]

  it('may end with any number of marks of the end [G.07]', () => {
    for (const mark of ['</s>', ' <|eot_id|>\n'])
      expect(find(read('a') + mark.repeat(100_000)).calls).toEqual(one)
  })

  it('takes a megabyte of it in time that grows with its length alone [G.07]', () => {
    const history: ChatMessage[] = [{ role: 'tool', callId: 'c', content: marks.join('x').repeat(1_000) }]
    const time = (size: number): number => {
      const started = process.threadCpuUsage()
      for (const mark of marks) readText(mark.repeat(Math.floor(size / mark.length)), tools, history)
      return process.threadCpuUsage(started).user / 1_000
    }
    time(5_000)
    const small = Math.max(time(100_000), 2)
    expect(time(1_000_000) / small).toBeLessThan(60)
  })

  it('ends with a value for any mixture of marks [G.07]', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        ...marks,
        '</tool_call>',
        '</function>',
        '</parameter>',
        '}',
        ']',
        '\n',
        '"',
        '`',
        '}}]}',
      ),
      fc.string({ maxLength: 5 }),
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
        const found = readText(pieces.join(''), tools)
        for (const { name } of found.calls) expect(['read_file', 'list_files']).toContain(name)
        if (found.calls.length === 0) expect(found.text).toBe(pieces.join(''))
      }),
      { seed: 21, numRuns: 2_000 },
    )
  })
})
