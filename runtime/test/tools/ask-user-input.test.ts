// Typed questions of a model to a person, and the answers that an application gives back.
import { describe, expect, it } from 'vitest'
import { createUserInputResult, type PendingUserInput, parsePendingUserInput } from '../../index.ts'
import { caller } from './support.ts'

const ask = caller('ask_user_input')
const questions = [
  { id: 'where', question: 'Where to?', kind: 'choice', options: ['eu', { value: 'us', label: 'America' }] },
  { id: 'when', question: 'When?', kind: 'text', defaultAnswer: 'now' },
  { id: 'sure', question: 'Sure?', kind: 'confirm' },
  { id: 'count', question: 'How many?', kind: 'number' },
  { id: 'tags', question: 'Which tags?', kind: 'choices', options: ['a', 'b', 'c'] },
]
const answers = { where: 'us', sure: true, count: 2, tags: ['c', 'a'] }

async function pending(): Promise<PendingUserInput> {
  const artifact = parsePendingUserInput((await ask({ questions })).content)
  if (artifact === null) throw new Error('not pending')
  return artifact
}

describe('ask_user_input', () => {
  it('gives its typed questions as a pending artifact under the id of the call [S2.16]', async () => {
    const result = await ask({ questions })
    expect(result).toMatchObject({ ok: false })
    expect(result.evidence).toBeUndefined()
    expect(JSON.parse(result.content)).toMatchObject({
      ok: false,
      pending: true,
      status: 'pending',
      requestId: 'c1',
    })
    expect((await pending()).questions[0]).toEqual({
      id: 'where',
      question: 'Where to?',
      kind: 'choice',
      options: [{ value: 'eu' }, { value: 'us', label: 'America' }],
    })
  })

  it('takes answers of the form of their questions alone, as the message for the transcript [S2.16]', async () => {
    const asked = await pending()
    expect(createUserInputResult(asked, answers)).toEqual({
      role: 'tool',
      tool_call_id: 'c1',
      content:
        '{"status":"answered","answers":{"where":"us","when":"now","sure":true,"count":2,"tags":["c","a"]}}',
    })
    for (const wrong of [
      { where: 'asia' },
      { sure: 'yes' },
      { count: Number.NaN },
      { tags: ['d'] },
      { tags: ['a', 'a'] },
      { when: 1 },
      { stranger: 'x' },
      { sure: undefined },
    ])
      expect(
        () => createUserInputResult(asked, { ...answers, ...wrong } as typeof answers),
        JSON.stringify(wrong),
      ).toThrow(expect.objectContaining({ code: 'invalid_options' }))
  })

  it('refuses questions that nobody can answer [S2.16 S2.18]', async () => {
    const [choice, text] = questions
    for (const wrong of [
      [],
      [{ id: 'a', question: '', kind: 'text' }],
      [{ id: 'a b', question: 'Q', kind: 'text' }],
      [{ id: 'a', question: 'Q', kind: 'choice' }],
      [{ id: 'a', question: 'Q', kind: 'number', defaultAnswer: 'x' }],
      [{ ...choice, options: ['eu', 'eu'] }],
      [text, text],
      [{ ...text, server: 'docs' }],
    ])
      expect((await ask({ questions: wrong })).content, JSON.stringify(wrong)).toContain(
        'tool_parameter_validation_failed',
      )
  })

  it('is one form with the question of human_intervention_request [S2.16]', async () => {
    const human = caller('human_intervention_request')
    const one = await human({ question: 'Deploy?', options: ['yes', 'no'], defaultOption: 'no' })
    const asked = parsePendingUserInput(one.content)
    expect(asked).toMatchObject({
      requestId: 'c1',
      questions: [{ id: 'answer', kind: 'choice', options: [{ value: 'yes' }, { value: 'no' }] }],
    })
    if (asked === null) throw new Error('not pending')
    expect(createUserInputResult(asked, {}).content).toBe('{"status":"answered","answers":{"answer":"no"}}')
    const only = parsePendingUserInput((await human({ question: 'Ready?', options: ['ok'] })).content)
    expect(only?.questions[0]).toMatchObject({ kind: 'text' })
  })
})
