import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { type JsonInput, readJsonLines } from '../../cli/json-lines.ts'

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

  it('are refused with the line when they are anything else, and nothing is decided by them', async () => {
    const { values, problems } = await read(
      'yes\n{"approvalId":"a"}\n{"approvalId":"a","decision":"allow","all":true}\n{"cancel":false}\n[]\n',
    )
    expect(values).toEqual([])
    expect(problems).toHaveLength(5)
    expect(problems[1]).toMatch(/^line 2 of standard input/)
  })
})
