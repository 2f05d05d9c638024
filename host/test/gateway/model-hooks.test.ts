// Hooks at the model's route: a no before means that nothing is sent, one after that nothing of the answer reaches the guest.
import { describe, expect, it } from 'vitest'
import type { ModelReply } from '../../gateway/hold-answer.ts'
import type { ModelHooks } from '../../gateway/model-route.ts'
import {
  chatBody,
  customProvider,
  sendStream,
  sse,
  startGateway,
  startUpstream,
  testKey,
  textChunk,
} from '../support/gateway.ts'

const usage = sse({ choices: [], usage: { prompt_tokens: 10, completion_tokens: 5 } })
const callPiece = (index: number, name: string | undefined, given: string): string =>
  sse({
    choices: [
      {
        delta: {
          tool_calls: [{ index, function: { ...(name === undefined ? {} : { name }), arguments: given } }],
        },
      },
    ],
  })

async function ask(hooks: ModelHooks, chunks: readonly string[], body: object = chatBody) {
  await using upstream = await startUpstream((response) => sendStream(response, ...chunks))
  await using test = await startGateway(customProvider(upstream.url), { modelHooks: hooks })
  const answer = await test.request({ body })
  await test.exchanged(1)
  return { answer, exchange: test.exchanges[0], sent: upstream.requests.length, usage: test.gateway.usage() }
}

describe('a hook before the model', () => {
  it('sees the request without key and address; its no costs nothing and is final [A.10, S0.07]', async () => {
    const seen: unknown[] = []
    const before: ModelHooks['before'] = async (request) => {
      seen.push(request)
      return 'no names of customers'
    }
    const { answer, exchange, sent, usage: spent } = await ask({ before }, [textChunk('x'), sse('[DONE]')])
    expect(answer).toMatchObject({
      status: 403,
      code: 'hook_denied',
      text: expect.stringContaining('no names of customers'),
    })
    expect(sent).toBe(0)
    expect(seen).toMatchObject([{ messages: chatBody.messages }])
    expect(JSON.stringify(seen)).not.toContain(testKey)
    expect(exchange).toMatchObject({ status: 403, error: expect.stringContaining('hook_denied') })
    expect(spent.inputTokens).toBe(0)
  })

  it('lets the rest through as it is [A.10]', async () => {
    const { answer } = await ask({ before: async () => null }, [textChunk('hello'), sse('[DONE]')])
    expect(answer).toMatchObject({ status: 200, text: textChunk('hello') + sse('[DONE]') })
  })
})

describe('a hook after the model', () => {
  const pieces = [
    textChunk('hel'),
    textChunk('lo'),
    callPiece(1, 'run_bash', '{"command"'),
    callPiece(0, 'read_file', '{}'),
    callPiece(1, undefined, ':"ls"}'),
    usage,
    sse('[DONE]'),
  ]

  it('has all of the answer put together, and the guest gets the same bytes behind it [A.10]', async () => {
    const seen: ModelReply[] = []
    const { answer } = await ask(
      {
        after: async (_request, said) => {
          seen.push(said)
          return null
        },
      },
      pieces,
    )
    expect(answer).toMatchObject({ status: 200, text: pieces.join('') })
    expect(seen).toEqual([
      {
        text: 'hello',
        reasoning: '',
        calls: [
          { name: 'read_file', arguments: '{}' },
          { name: 'run_bash', arguments: '{"command":"ls"}' },
        ],
      },
    ])
  })

  it('holds every byte of a refused answer back, and what was spent on it counts [A.10, S0.07]', async () => {
    const { answer, exchange, usage: spent } = await ask({ after: async () => 'no programs' }, pieces)
    expect(answer).toMatchObject({ status: 403, code: 'hook_denied' })
    expect(answer.text).not.toMatch(/hel|run_bash/)
    expect(exchange).toMatchObject({
      status: 403,
      usage: { inputTokens: 10, outputTokens: 5 },
      estimated: false,
    })
    expect(spent).toMatchObject({ inputTokens: 10, outputTokens: 5 })
  })

  it('lets nothing through that it could not read or that broke off [A.10]', async () => {
    let asked = 0
    const after = async (): Promise<null> => {
      asked++
      return null
    }
    for (const chunks of [
      ['data: {"choices": 7}\n\n', sse('[DONE]')],
      ['data: not json\n\n', sse('[DONE]')],
    ]) {
      const { answer } = await ask({ after }, chunks)
      expect(answer).toMatchObject({ status: 502, code: 'upstream_broken' })
    }
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(textChunk('half'))
      setTimeout(() => response.destroy(), 20)
    })
    await using test = await startGateway(customProvider(upstream.url), { modelHooks: { after } })
    const broken = await test.request()
    expect(broken.status).toBeGreaterThanOrEqual(500)
    expect(broken.text).not.toContain('half')
    expect(asked).toBe(0)
  })
})
