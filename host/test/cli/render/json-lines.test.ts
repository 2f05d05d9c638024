import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { type JsonInput, readJsonLines, toJsonLine } from '../../../cli/render/json-lines.ts'

async function read(text: string) {
  const input = new PassThrough()
  const values: JsonInput[] = []
  const problems: string[] = []
  const ended = new Promise<void>((resolve) => {
    readJsonLines(input, {
      onInput: (value) => values.push(value),
      onProblem: (message) => problems.push(message),
      onEnd: resolve,
    })
  })
  input.end(text)
  await ended
  return { values, problems }
}

describe('objects on standard output', () => {
  it('mean the same and hold nothing that a terminal obeys or hides [S1.11 H.01]', () => {
    const value = { text: 'a\u009b31m\u007f\u202e\u200b\u2028\u{e0041}\u001b[2J é 漢 😀' }
    const line = toJsonLine(value)
    expect(JSON.parse(line)).toEqual(value)
    expect(line.trimEnd()).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}]/u)
    expect(line).toContain('é 漢 😀')
  })
})

describe('decisions on standard input', () => {
  it('are read line by line, blank lines and CRLF allowed [S1.11]', async () => {
    const { values, problems } = await read(
      '{"approvalId":"a","decision":"allow"}\r\n\n{"approvalId":"b","decision":"deny","scope":"run","hint":"no"}\n{"cancel":true}',
    )
    expect(values).toEqual([
      { approvalId: 'a', decision: 'allow', scope: 'once' },
      { approvalId: 'b', decision: 'deny', scope: 'run', hint: 'no' },
      { cancel: true },
    ])
    expect(problems).toEqual([])
  })

  it('say of network access how long and how far it is allowed [S1.11]', async () => {
    const { values } = await read('{"approvalId":"a","decision":"allow","scope":"always","reach":"suffix"}\n')
    expect(values).toEqual([{ approvalId: 'a', decision: 'allow', scope: 'always', reach: 'suffix' }])
  })

  it('answer questions of the agent, each with a value of its kind [S2.16]', async () => {
    const values = ['json', 2.5, false, ['a', 'b'], [], '']
    const lines = values.map((answer) => JSON.stringify({ type: 'answer', approvalId: 'q', answer }))
    const given = await read([...lines, '{"approvalId":"q","answer":"a","hint":"or b"}'].join('\n'))
    expect(given.problems).toEqual([])
    expect(given.values).toEqual([
      ...values.map((answer) => ({ type: 'answer', approvalId: 'q', answer })),
      { approvalId: 'q', answer: 'a', hint: 'or b' },
    ])
    const wrong = await read(
      [
        '{"type":"answer","approvalId":"q"}',
        '{"type":"answer","approvalId":"q","answer":null}',
        '{"type":"answer","approvalId":"q","answer":{"a":1}}',
        '{"type":"answer","approvalId":"q","answer":1e999}',
        '{"type":"answer","approvalId":"q","answer":NaN}',
        '{"approvalId":"q","decision":"allow","answer":"a"}',
        `{"approvalId":"q","answer":${JSON.stringify('x'.repeat(16_385))}}`,
      ].join('\n'),
    )
    expect(wrong.values).toEqual([])
    expect(wrong.problems).toHaveLength(7)
  })

  it('carry messages, holds, and a plan in the place of the agent’s [S1.11 A.08 A.11]', async () => {
    const plan = { goal: 'g', steps: [{ id: 'a', title: 'A', instructions: 'do' }] }
    const { values, problems } = await read(
      `{"steer":"use tabs"}\n{"steer":"you too","to":"tests"}\n{"cancelAgent":"tests","reason":"enough"}\n{"pause":true}\n{"pause":false}\n${JSON.stringify({ approvalId: 'p', decision: 'allow', plan })}\n`,
    )
    expect(problems).toEqual([])
    expect(values).toMatchObject([
      { steer: 'use tabs' },
      { steer: 'you too', to: 'tests' },
      { cancelAgent: 'tests', reason: 'enough' },
      { pause: true },
      { pause: false },
      { approvalId: 'p', decision: 'allow', scope: 'once', plan },
    ])
  })

  it('revoke an answer for the run by its approval [S1.11]', async () => {
    const { values, problems } = await read('{"revoke":"ap-1"}\n{"revoke":""}\n{"revoke":"ap-1","by":"me"}\n')
    expect(values).toEqual([{ revoke: 'ap-1' }])
    expect(problems).toHaveLength(2)
    expect(problems[0]).toContain('{"revoke":"APPROVAL"}')
  })

  it('are refused with the line when they are anything else, and nothing is decided by them', async () => {
    const { values, problems } = await read(
      'yes\n{"steer":""}\n{"pause":1}\n{"steer":"a","cancel":true}\n{"approvalId":"a","decision":"allow","plan":{"goal":"g","steps":[]}}\n{"approvalId":"a"}\n{"approvalId":"a","decision":"allow","all":true}\n{"cancel":false}\n[]\n{"cancelAgent":""}\n{"cancelAgent":"a","to":"b"}\n',
    )
    expect(values).toEqual([])
    expect(problems).toHaveLength(11)
    expect(problems[1]).toMatch(/^line 2 of standard input/)
  })
})
