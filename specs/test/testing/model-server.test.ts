// The scripted model's server, asked by the official client of the protocol: what is well formed there is so here.
import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { dresses, faults, quirkTurn } from '../../testing/model-quirks.ts'
import { errorDialects, failure, reply } from '../../testing/model-replies.ts'
import { type ServerReply, startModelServer } from '../../testing/model-server.ts'

const messages = [{ role: 'user' as const, content: 'hello' }]
const content = {
  text: quirkTurn.text,
  calls: [{ id: 'call-1', name: 'read_file', arguments: { path: 'a"b' } }],
  usage: { prompt_tokens: 7, completion_tokens: 3 },
}

async function startFor(...script: ServerReply[]) {
  const server = await startModelServer(script)
  const client = new OpenAI({ baseURL: server.baseUrl, apiKey: 'test-key', maxRetries: 0 })
  return { server, client, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
}

describe('the scripted model server', () => {
  it('streams a reply that the official client reads whole [T.01]', async () => {
    await using test = await startFor({ ...reply(content), pieceBytes: [3, 50, 1] })
    const stream = test.client.chat.completions.stream({
      model: 'm',
      messages,
      stream_options: { include_usage: true },
    })
    const { choices, usage } = await stream.finalChatCompletion()
    expect(choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: {
        content: quirkTurn.text,
        tool_calls: [{ id: 'call-1', function: { name: 'read_file', arguments: '{"path":"a\\"b"}' } }],
      },
    })
    expect(usage).toMatchObject({ prompt_tokens: 7, completion_tokens: 3 })
  })

  it('gives the same reply whole to who asks for no stream [T.01]', async () => {
    await using test = await startFor(reply(content))
    const { choices, usage } = await test.client.chat.completions.create({ model: 'm', messages })
    expect(choices[0]?.message).toMatchObject({
      content: quirkTurn.text,
      tool_calls: [{ id: 'call-1', function: { name: 'read_file', arguments: '{"path":"a\\"b"}' } }],
    })
    expect(usage).toMatchObject({ prompt_tokens: 7 })
  })

  it.each([
    [401, OpenAI.AuthenticationError],
    [404, OpenAI.NotFoundError],
    [429, OpenAI.RateLimitError],
    [503, OpenAI.InternalServerError],
  ])('answers %i as the official client knows it [T.01]', async (status, kind) => {
    await using test = await startFor(failure(status, 'because', 'openai', { 'retry-after': '2' }))
    const error = await test.client.chat.completions.create({ model: 'm', messages }).catch((cause) => cause)
    expect(error).toBeInstanceOf(kind)
    expect(error).toMatchObject({ status, error: { message: 'because' } })
    expect((error as InstanceType<typeof OpenAI.APIError>).headers?.get('retry-after')).toBe('2')
  })

  it('keeps what it was asked, answers in turn and then repeats itself [T.01]', async () => {
    await using test = await startFor(reply({ text: 'one' }), reply({ text: 'two' }))
    const said: (string | null | undefined)[] = []
    for (let turn = 0; turn < 3; turn++) {
      const answer = await test.client.chat.completions.create({ model: `m${turn}`, messages })
      said.push(answer.choices[0]?.message.content)
    }
    expect(said).toEqual(['one', 'two', 'two'])
    expect(test.server.asked.map(({ method, path, body }) => [method, path, body.model])).toEqual(
      [0, 1, 2].map((turn) => ['POST', '/v1/chat/completions', `m${turn}`]),
    )
    expect(test.server.asked[0]?.headers.authorization).toBe('Bearer test-key')
    expect(test.server.mostOpen()).toBe(1)
  })

  it('breaks connections where the script says so, and counts who leaves [T.01]', async () => {
    const script = [faults['a connection reset in the middle'], faults['a connection reset before the head']]
    await using server = await startModelServer([...script, faults['silence after the head']])
    const ask = async (): Promise<string> => {
      const answer = await fetch(`${server.baseUrl}/chat/completions`, { method: 'POST', body: '{}' })
      return answer.text()
    }
    await expect(ask()).rejects.toThrow('terminated')
    await expect(ask()).rejects.toThrow('fetch failed')
    const leaving = new AbortController()
    const silent = await fetch(server.baseUrl, { method: 'POST', signal: leaving.signal })
    expect(silent.status).toBe(200)
    leaving.abort()
    await expect.poll(() => server.abandoned()).toBe(3)
  })

  it('has dresses and faults whose bytes differ each from every other [T.01]', () => {
    for (const list of [dresses, faults]) {
      const seen = Object.values<ServerReply>(list).map((one) => JSON.stringify(one))
      expect(new Set(seen).size).toBe(seen.length)
    }
    const words = Object.values(errorDialects).map((say) => say(418, 'because'))
    expect(new Set(words).size).toBe(words.length)
    expect(words.every((word) => word.includes('because'))).toBe(true)
  })
})
