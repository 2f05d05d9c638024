// Calls that a model only considered: none is carried out, whatever marks its thoughts and wherever they stand.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ToolSpec } from '../../llm/messages.ts'
import { readText, readTurnText } from '../../llm/text-calls.ts'

const path = { type: 'object', properties: { path: { type: 'string' }, content: { type: 'string' } } }
const tools: ToolSpec[] = ['read_file', 'write_file', 'delete_file'].map((name) => ({
  name,
  description: 'A tool.',
  parameters: path,
}))
const callOf = (name: string, args: object = { path: 'a' }) =>
  `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`
const considered = callOf('delete_file')
const meant = callOf('read_file')
const namesIn = (text: string) => readText(text, tools).calls.map(({ name }) => name)

/** Beginning and end of a thought, as each family writes them. */
const families: readonly (readonly [string, string])[] = [
  ['<think>', '</think>'],
  ['<thinking>', '</thinking>'],
  ['<Thought>', '</Thought>'],
  ['<reasoning>', '</reasoning>'],
  ['<think kind="plan">', '</think>'],
  ['<reflection>', '</reflection>'],
  ['<scratchpad>', '</scratchpad>'],
  ['<inner_monologue>', '</inner_monologue>'],
  ['<seed:think>', '</seed:think>'],
  ['<mm:think>', '</mm:think>'],
  ['[THINK]', '[/THINK]'],
  ['◁think▷', '◁/think▷'],
  ['<｜begin▁of▁thinking｜>', '<｜end▁of▁thinking｜>'],
  ['<|START_THINKING|>', '<|END_THINKING|>'],
  ['<|channel>thought\n', '<channel|>'],
  ['<|inner_prefix|>', '<|inner_suffix|>'],
  ['<|begin_of_thought|>', '<|end_of_thought|>'],
  ['<|channel|>analysis<|message|>', '<|end|><|start|>assistant<|channel|>final<|message|>'],
  ['<|channel|>analysis<|message|>', '<|channel|>commentary<|message|>'],
  ['<|channel|>analysis', '<|channel|>commentary<|message|>'],
]

describe.each(families)('a thought between %s and %s', (open, close) => {
  it.each([
    ['at the head', `${open}Maybe ${considered} or not.${close}\n`],
    ['behind text', `Let me see. ${open}Maybe ${considered} or not.${close}\n`],
    ['without a beginning', `Maybe ${considered} or not.${close}\n`],
    ['that is the second', `${open}hm${close}So. ${open}Maybe\n${considered}${close}\n`],
    ['that begins twice', `${open}a ${open}b ${considered} ${close}`],
    ['that quotes its own end', `${open}It ends with \`${close}\`.\n${considered}\nso \`x ${close}\n`],
    ['with a fence that never closes', `${considered}\n\`\`\`sh\nls\n${close}\n`],
    ['with a call that it breaks off', `${open}${considered.slice(0, 30)} no.${close}\n`],
    ['with parameters that it breaks off', `<function=delete_file><parameter=path>a ${close}\n`],
  ])('is not carried out: %s [G.07]', (_name, thought) => {
    expect(namesIn(`${thought}${meant}`)).toEqual(['read_file'])
    const read = readText(`${thought}The answer.`, tools)
    expect(read).toMatchObject({ text: 'The answer.', calls: [] })
    expect(read.thinking).not.toContain('The answer')
  })

  it.each([
    ['at the head', ''],
    ['behind text', 'Let me see.\n'],
    ['in the middle of a line', 'Let me see. '],
    ['behind a thought', `${open}hm${close}\nWell.\n`],
  ])('continues to the end when it never ends: %s [G.07]', (_name, before) => {
    const read = readText(`${before}${open}I could\n${considered}\nbut`, tools)
    expect(read.calls).toEqual([])
    expect(read.text).not.toContain('delete_file')
    expect(read.thinking).toContain('delete_file')
  })

  it('takes no call before it with it when it never ends [G.07]', () => {
    expect(namesIn(`${meant}\n${open}I could\n${considered}`)).toEqual(['read_file'])
  })

  it('becomes the reasoning of the turn, its marks left out [G.07]', () => {
    const turn = { text: `${open}hm${close}\n\nThe answer.`, reasoning: 'First. ', toolCalls: [] }
    const read = readTurnText(turn, { messages: [], tools: [] })
    expect(read.text).toBe('The answer.')
    expect(read.reasoning).toBe('First. hm')
  })

  it('leaves its marks in a call, in quotations and in JSON alone [G.07]', () => {
    const content = `a ${close} b ${open} c`
    const call = callOf('write_file', { path: 'a', content })
    const tags = `<function=write_file>\n<parameter=path>a</parameter>\n<parameter=content>${content}</parameter>\n</function>`
    for (const text of [call, tags, `${open}hm${close}\n${tags}`, `So:\n${call}\n`]) {
      expect(readText(text, tools).calls.map(({ argumentsText }) => JSON.parse(argumentsText))).toEqual([
        { path: 'a', content },
      ])
    }
    for (const text of [
      `Models write \`${open.trim()}\` and "${close}".`,
      `So:\n\`\`\`\n${open}\n${close}\n\`\`\`\nIt is.`,
      JSON.stringify({ summary: content }),
    ])
      expect(readText(text, tools)).toEqual({ text, thinking: '', calls: [] })
  })
})

describe('thoughts', () => {
  it('of gpt-oss end where it calls, and where a server left its tokens out [G.07]', () => {
    const call =
      '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path":"a"}<|call|>'
    const thought = `<|channel|>analysis<|message|>Maybe ${considered}<|end|><|start|>assistant`
    expect(readText(thought + call, tools)).toMatchObject({ text: '', calls: [{ name: 'read_file' }] })
    const bare = `analysisWe could ${considered}.assistantfinalThe answer.`
    expect(readText(bare, tools)).toMatchObject({ text: 'The answer.', calls: [] })
    const word = 'analysisService does it.'
    expect(readText(word, tools).text).toBe(word)
  })

  it('may stand before a reply that is a call as JSON [G.07]', () => {
    const bare = '{"name":"read_file","parameters":{"path":"a"}}'
    expect(readText(`hm </think>\n${bare}`, tools)).toMatchObject({ text: '', thinking: 'hm ', calls: [{}] })
    expect(namesIn(`${bare}\n</think>\n{"name":"write_file","parameters":{"path":"b"}}`)).toEqual([
      'write_file',
    ])
  })

  it('leave a word of an answer that only looks like their beginning [G.07]', () => {
    const text = 'I put <thinking> in the prompt, as you said.'
    expect(readText(text, tools)).toEqual({ text, thinking: '', calls: [] })
  })

  it('never lead to a call, in any mixture of words, calls and marks [G.07]', () => {
    const opens = fc.constantFrom(...families.map(([open]) => open))
    const closes = fc.constantFrom(...families.map(([, close]) => close))
    const word = fc.constantFrom('hm', ' ', '\n', '`', '```\n', '> ', '"', '{', '<tool_call>', 'no.')
    const open = fc.oneof({ weight: 2, arbitrary: word }, opens, fc.constant(considered))
    const any = fc.oneof({ weight: 4, arbitrary: open }, closes)
    const pieces = (piece: fc.Arbitrary<string>) =>
      fc.array(piece, { maxLength: 20 }).map((all) => all.join(''))
    fc.assert(
      fc.property(pieces(any), pieces(open), fc.constantFrom(...families), (ended, unended, [from, to]) => {
        for (const text of [
          `${ended}${to}\nThe answer.`,
          `\n${from}${ended}${to}\n${meant}`,
          `${meant}\n${from}${unended}`,
          `${ended}${to}\n${from}${unended}`,
        ])
          expect(namesIn(text)).not.toContain('delete_file')
      }),
      { seed: 1_305, numRuns: 2_000 },
    )
  })
})
