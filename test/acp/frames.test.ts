// Frames of bad clients, to a real `caisson acp` and to the part that checks them: nothing of them starts a run or decides.
import { createInterface } from 'node:readline'
import type { AnyMessage } from '@agentclientprotocol/sdk'
import { describe, expect, it } from 'vitest'
import { checkFrames } from '../../host/acp/frames.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { startProgram, vmFlags } from './support.ts'

const initialize = { id: 0, method: 'initialize', params: { protocolVersion: 1 } }

/** Sends these bytes, and closes once all requests have answers. @returns what the program answered, line by line */
async function send(...lines: readonly (object | string)[]) {
  const place = await cliPlace({})
  const program = startProgram(place, [...vmFlags, '--unstable', 'v2'])
  const answers: Record<string, unknown>[] = []
  const open = new Set(lines.flatMap((line) => (isRequest(line) ? [line.id] : [])))
  const read = async (): Promise<void> => {
    for await (const line of createInterface({ input: program.child.stdout })) {
      const answer = JSON.parse(line) as Record<string, unknown>
      answers.push(answer)
      open.delete(answer.id)
      if (open.size === 0) program.child.stdin.end()
    }
  }
  const over = read()
  for (const line of lines)
    program.child.stdin.write(
      typeof line === 'string' ? line : `${JSON.stringify({ jsonrpc: '2.0', ...line })}\n`,
    )
  const code = await program.ended
  await over
  return { code, answers, errors: program.errors(), runs: (await place.run('runs', 'list')).stdout }
}

function isRequest(line: object | string): line is { id: unknown } {
  return typeof line !== 'string' && 'id' in line && 'method' in line
}

describe('a frame of a bad client', { timeout: 60_000 }, () => {
  it('is answered with an error where it is no request, unknown, early or of another form [H.03]', async () => {
    const { code, answers, runs } = await send(
      { id: 'early', method: 'session/list', params: {} },
      'no json\n',
      '[{"jsonrpc":"2.0","id":9,"method":"initialize"}]\n',
      '42\n',
      initialize,
      { id: 1, method: 'session/invent', params: {} },
      { id: 2, method: 'session/new', params: { cwd: 7 } },
      { id: 3, method: 'session/new', params: { cwd: 'relative', mcpServers: [] } },
      { id: 4, method: 'session/prompt', params: { sessionId: 'session-x', prompt: [] } },
      { id: 5, method: 'session/load', params: { sessionId: '../../etc', cwd: '/tmp', mcpServers: [] } },
      { method: 'session/cancel', params: { sessionId: 'session-x' } },
      { method: 'session/invent', params: {} },
      { id: 77, result: { outcome: { outcome: 'selected', optionId: 'answer-1' } } },
      { id: 'last', method: 'session/list', params: {} },
    )
    const codeOf = (id: unknown) =>
      answers.filter((answer) => answer.id === id).map(({ error }) => (error as { code: number })?.code)
    expect(codeOf('early')).toEqual([-32600])
    expect(codeOf(null)).toEqual([-32700, -32600, -32600])
    expect([1, 2, 3, 4, 5].map((id) => codeOf(id)[0])).toEqual([-32601, -32602, -32602, -32002, -32002])
    expect(answers.find(({ id }) => id === 'last')).toMatchObject({ result: { sessions: [] } })
    expect([code, runs]).toEqual([0, expect.not.stringContaining('run-')])
  })

  it('is answered, each once, when there are thousands; a cut one ends with the connection [H.03]', async () => {
    const flood = Array.from({ length: 3_000 }, (_, at) => ({
      id: at + 1,
      method: 'session/invent',
      params: {},
    }))
    const { code, answers } = await send(initialize, ...flood, '{"jsonrpc":"2.0","id":"cut","meth')
    expect(answers.filter(({ id }) => typeof id === 'number').length).toBe(3_001)
    expect(code).toBe(0)
  })

  it.each([1, 2])(
    'of version %i that nests too deep is refused; the next one is answered [H.03]',
    async (version) => {
      const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`
      const info = { name: 'raw', version: '1' }
      const { code, answers } = await send(
        { id: 'first', method: 'initialize', params: { protocolVersion: version, info } },
        `{"jsonrpc":"2.0","id":{},"method":"session/list","params":{"_meta":{"a":${deep}}}}\n`,
        `{"jsonrpc":"2.0","id":5,"method":"session/list","params":{"_meta":{"a":${deep}}}}\n`,
        `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x","_meta":{"a":${deep}}}}\n`,
        `{"jsonrpc":"2.0","id":0,"result":{"outcome":${deep}}}\n`,
        { id: 'last', method: 'session/list', params: {} },
      )
      const error = { code: -32600, message: expect.stringContaining('nests deeper than 256 levels') }
      expect(answers.filter(({ error: seen }) => seen !== undefined)).toMatchObject([
        { id: null, error },
        { id: 5, error },
      ])
      expect(answers.at(-1)).toMatchObject({ id: 'last', result: { sessions: [] } })
      expect(code).toBe(0)
    },
  )

  it('ends the connection when it is longer than 32 MiB, whoever waits [H.03]', async () => {
    const long = `{"jsonrpc":"2.0","id":1,"method":"${'x'.repeat(33 * 1024 * 1024)}`
    const { code, answers, errors } = await send(initialize, long)
    expect(answers.map(({ id }) => id)).toEqual([0])
    expect([code, errors]).toEqual([4, expect.stringContaining('longer than')])
  })
})

/** Frames through the check, over streams of the test. */
function checked() {
  const logged: string[] = []
  const [sent, given] = [new TransformStream<AnyMessage>(), new TransformStream<AnyMessage>()]
  const { readable, writable } = checkFrames({ readable: given.readable, writable: sent.writable }, (line) =>
    logged.push(line),
  )
  return {
    logged,
    fromClient: given.writable.getWriter(),
    toAgent: readable.getReader(),
    fromAgent: writable.getWriter(),
    toClient: sent.readable.getReader(),
  }
}

describe('a frame that is checked', () => {
  const request = (optionId: string): AnyMessage => ({
    ...{ jsonrpc: '2.0', id: 1, method: 'session/request_permission' },
    params: {
      sessionId: 's',
      toolCall: { toolCallId: 't' },
      options: [{ optionId, name: 'yes', kind: 'allow_once' }],
    },
  })

  it('as an answer to a question is an error where it does not fit: no choice [H.03]', async () => {
    const { fromAgent, toClient, fromClient, toAgent, logged } = checked()
    void fromAgent.write(request('yes'))
    await toClient.read()
    void fromClient.write({ jsonrpc: '2.0', id: 1, result: { outcome: { outcome: 'selected' } } })
    expect((await toAgent.read()).value).toMatchObject({ id: 1, error: { code: -32603 } })
    expect(logged).toEqual([expect.stringContaining('does not fit')])
  })

  it('as an answer that nests too deep is an error for its asker: no choice [H.03]', async () => {
    const { fromAgent, toClient, fromClient, toAgent } = checked()
    void fromAgent.write(request('yes'))
    await toClient.read()
    const deep: unknown = JSON.parse(`${'['.repeat(300)}${']'.repeat(300)}`)
    const result = { outcome: { outcome: 'selected', optionId: 'yes' }, _meta: { deep } }
    void fromClient.write({ jsonrpc: '2.0', id: 1, result })
    expect((await toAgent.read()).value).toMatchObject({ id: 1, error: { code: -32603 } })
  })

  it('of this side is not sent where it does not fit, and its asker learns it [H.03]', async () => {
    const { fromAgent, toClient, toAgent, logged } = checked()
    const bad = { jsonrpc: '2.0', method: 'session/update', params: { sessionId: 's', update: {} } } as const
    void fromAgent.write(bad as unknown as AnyMessage)
    void fromAgent.write({ ...request('yes'), params: {} } as AnyMessage)
    expect((await toAgent.read()).value).toMatchObject({ id: 1, error: { code: -32603 } })
    void fromAgent.write(request('\udc80 \\udc80'))
    expect(JSON.stringify((await toClient.read()).value)).toContain('\ufffd \\\\udc80')
    expect(logged).toHaveLength(2)
  })
})
