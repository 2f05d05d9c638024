import { describe, expect, it } from 'vitest'
import { CompletionRequest } from '#specs/protocol/completion-request.ts'
import { answerOffline } from '../../offline-model/upstream.ts'

function answer(schema: object, said = '[offline model] a.txt has 3 words.\n- one') {
  const request = CompletionRequest.parse({
    model: 'offline',
    messages: [
      { role: 'system', content: "You are Caisson's agent." },
      { role: 'user', content: '# Task' },
      { role: 'assistant', content: said },
      { role: 'user', content: 'Your answer is not valid.' },
    ],
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema } },
  })
  return answerOffline(request).text
}

const object = (properties: object, required = Object.keys(properties)) => ({
  type: 'object',
  properties,
  required,
})

describe('the offline model, asked for JSON', () => {
  it('fills an object with the text, the lines and the only number of its answer [S0.06]', () => {
    const simple = object({
      text: { type: 'string', description: 'What was found' },
      lines: { type: 'array', items: { type: 'string' } },
      count: { type: 'integer' },
    })
    expect(JSON.parse(answer(simple))).toEqual({
      text: 'a.txt has 3 words.\n- one',
      lines: ['a.txt has 3 words.', '- one'],
      count: 3,
    })
    const optional = object({ text: { type: 'string' }, kind: { enum: ['a'] } }, ['text'])
    expect(JSON.parse(answer(optional))).toEqual({ text: 'a.txt has 3 words.\n- one' })
  })

  it.each([
    ['two texts', object({ a: { type: 'string' }, b: { type: 'string' } }), 'more than one text'],
    ['a choice', object({ a: { enum: ['x'] } }), 'nothing for "a"'],
    ['a name that is not described', object({}, ['toString']), 'nothing for "toString"'],
    ['a list', { type: 'array', items: { type: 'string' } }, 'no object with properties'],
  ])('says that it cannot: %s [S0.06]', (_, schema, why) => {
    expect(answer(schema)).toMatch(/^STEP FAILED: \[offline model\]/)
    expect(answer(schema)).toContain(why)
  })

  it('takes no number where the answer has several or none [S0.06]', () => {
    const number = object({ count: { type: 'number' } })
    for (const said of ['2 of 3', 'none', 'v1.2.3'])
      expect(answer(number, said)).toContain('nothing for "count"')
    expect(answer(number, 'There are 12.')).toBe('{"count":12}')
  })
})
