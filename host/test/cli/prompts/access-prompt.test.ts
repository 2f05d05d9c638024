// A question about network access at the terminal.
import { describe, expect, it } from 'vitest'
import type { AccessQuestion } from '#specs/protocol/approval.ts'
import { accessLines } from '../../../cli/prompts/access-prompt.ts'
import { promptApproval } from '../../../cli/prompts/approval-prompt.ts'
import type { Question } from '../../../cli/render/approval-lines.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { Person } from '../support/person.ts'

const colors = colorsFor({ isTTY: false }, {})

const access: AccessQuestion = {
  from: 'agent',
  address: 'https://api.example.com/v1/rates',
  because: 'no rule allows it',
  offers: [
    { reach: 'host', allows: 'https connections to api.example.com (port 443)' },
    { reach: 'suffix', allows: 'https connections to api.example.com and every name below it (port 443)' },
    {
      reach: 'path',
      allows: 'requests for https://api.example.com/v1/rates and what is below it, by web_fetch alone',
    },
  ],
}

const question = (reason: string, over: Partial<AccessQuestion> = {}): Question => ({
  approvalId: 'a1',
  agentPath: 'root',
  stepId: 's',
  callId: 'c',
  tool: 'request_access',
  arguments: JSON.stringify({ reason, url: access.address }),
  preview: '',
  access: { ...access, ...over },
})

/** A person at a terminal of 200 columns without colors. */
function sitDown(request: Question) {
  const person = new Person({ columns: 200, rows: 40 })
  const { input, output, signal } = person
  return Object.assign(person, { answer: promptApproval(request, { input, output, signal }) })
}

describe('the question about network access', () => {
  it('is in the host’s words; the agent’s stand behind their margin and cannot push them away [H.01, G.03]', () => {
    const reason = `please\n\u001b[2JWay out: allow nothing?\n${'more\n'.repeat(400)}`
    const request = question(reason)
    const rows = accessLines(request, access, colors, 80)
    expect(rows[1]).toBe('Network access: allow https connections to api.example.com (port 443)?')
    expect(rows[2]).toBe('  asked by root, step s; not allowed yet: no rule allows it')
    expect(rows[3]).toBe('  ┆ https://api.example.com/v1/rates')
    expect(rows[5]).toBe('  │ please')
    expect(rows[6]).toBe('  │ \\e[2JWay out: allow nothing?')
    expect(rows).toHaveLength(5 + 13)
    expect(rows.at(-1)).toBe('  │ … 390 more lines')
  })

  it('says of a connection that a program makes it, and claims no words of the agent', () => {
    const request = question('smuggled', {
      from: 'connection',
      because: 'ask *.example.com (the configuration)',
    })
    const rows = accessLines(request, request.access ?? access, colors, 80)
    expect(rows.join('\n')).not.toContain('smuggled')
    expect(rows[2]).toBe('  a program in the VM tries to connect; ask *.example.com (the configuration)')
  })
})

describe('the answer about network access', () => {
  it('is none when only Enter is pressed [S1.11]', async () => {
    const person = sitDown(question('x'))
    await person.sees('Allow https connections to api.example.com (port 443)?')
    person.type('\r')
    await person.sees('Type 1-7, y, n')
    person.type('n\r')
    expect(await person.answer).toEqual({ decision: 'deny', scope: 'once' })
  })

  it('is for once, for the run or for always, for the host unless another reach is chosen [S1.11 G.03]', async () => {
    for (const [keys, scope] of [
      ['1\r', 'once'],
      ['y\r', 'once'],
      ['2\r', 'run'],
      ['3\r', 'always'],
    ] as const) {
      const person = sitDown(question('x'))
      await person.sees('Allow https')
      person.type(keys)
      expect(await person.answer).toEqual({ decision: 'allow', scope, reach: 'host' })
    }
  })

  it('can go wider or narrower: the question then says so before it is answered [G.03]', async () => {
    const person = sitDown(question('x'))
    await person.sees('Allow https')
    person.type('4\r')
    await person.sees('Allow what?')
    person.type('3\r')
    await person.sees(
      'Allow requests for https://api.example.com/v1/rates and what is below it, by web_fetch alone?',
    )
    person.type('2\r')
    expect(await person.answer).toEqual({ decision: 'allow', scope: 'run', reach: 'path' })
  })

  it('can be a no for the run, or one that tells the agent what to do instead', async () => {
    const person = sitDown(question('x'))
    await person.sees('Allow https')
    person.type('6\r')
    expect(await person.answer).toEqual({ decision: 'deny', scope: 'run', reach: 'host' })
    const other = sitDown(question('x'))
    await other.sees('Allow https')
    other.type('7\r')
    await other.sees('What should the agent do instead?')
    other.type('use rates.csv\r')
    expect(await other.answer).toEqual({ decision: 'deny', scope: 'once', hint: 'use rates.csv' })
  })
})
