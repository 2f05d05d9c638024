// The agent's client, HTTP/2 over a port in memory, the gateway, and a real OpenAI-compatible server behind it.
import { afterEach, describe, expect, it } from 'vitest'
import { type ChatRequest, streamChat } from '#runtime/llm/client.ts'
import type { SendRequest } from '#runtime/llm/exchange.ts'
import type { ToolSpec } from '#runtime/llm/messages.ts'
import { collectTurn, createModel } from '#runtime/llm/model.ts'
import { isCutOff } from '#runtime/llm/tool-calls.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { GuestHttp } from '../../agent/link/http.ts'
import { serveHttp2 } from '../../host/guest/http-server.ts'
import { Secret } from '../../host/keys/secret.ts'
import type { ModelProvider } from '../../host/providers/providers.ts'
import { startGateway } from '../../host/test/support/gateway.ts'
import { type LlamaServer, llamaKey, llamaModel, useLlamaServer } from '../support/llama-server.ts'

const start = useLlamaServer()
const open: (() => Promise<void>)[] = []

afterEach(async () => {
  for (const close of open.splice(0)) await close()
})

/** What the client needs to reach the server through a gateway. */
async function openRoute(server: LlamaServer, key = llamaKey) {
  const provider: ModelProvider = {
    name: 'custom',
    model: llamaModel,
    baseUrl: server.url,
    key: new Secret(key),
    notes: [],
  }
  const test = await startGateway(provider)
  const port = new LinkedPort()
  const session = serveHttp2(
    port.host,
    (stream, headers) => test.gateway.handleStream(stream, headers),
    () => undefined,
  )
  const http = new GuestHttp()
  http.connect(port.openGuest())
  open.push(async () => {
    http.close()
    session.destroy()
    await test[Symbol.asyncDispose]()
  })
  const sendRequest: SendRequest = (url, options) => http.post(url, options)
  return { ...test, route: { baseUrl: 'http://gateway/v1', sendRequest } }
}

type Route = Awaited<ReturnType<typeof openRoute>>['route']

function ask(route: Route, content: string, tools: readonly ToolSpec[], fields: Partial<ChatRequest> = {}) {
  const request = {
    model: 'm',
    messages: [{ role: 'user', content } as const],
    tools,
    maxTokens: 4_000,
    ...fields,
  }
  return collectTurn(streamChat(request, { ...route, signal: new AbortController().signal }))
}

const tool = (name: string, ...parameters: string[]): ToolSpec => ({
  name,
  description: 'x',
  parameters: {
    type: 'object',
    properties: Object.fromEntries(parameters.map((parameter) => [parameter, { type: 'string' }])),
  },
})
const files = [tool('read_file', 'path'), tool('list_files', 'path')]
const writing = [tool('write_file', 'path', 'content')]

describe('the client with a real server', () => {
  it('reads the same turn from a stream and from a whole answer [S1.07] [G.05]', async (context) => {
    await using server = await start(context)
    const { route } = await openRoute(server)
    for (const [content, tools] of [
      ['hello', []],
      ['both at once', files],
    ] as const) {
      const streamed = await ask(route, content, tools)
      const whole = await ask(route, content, tools, { stream: false })
      if (!streamed.ok || !whole.ok) throw new Error(JSON.stringify([streamed, whole]))
      const withoutIds = ({ value }: typeof whole) => ({
        ...value,
        toolCalls: value.toolCalls.map(({ name, argumentsText }) => [name, JSON.parse(argumentsText)]),
      })
      expect(withoutIds(whole)).toEqual(withoutIds(streamed))
      expect(streamed.value.usage.outputTokens).toBeGreaterThan(5)
    }
    const greeting = await ask(route, 'hello', [])
    expect(greeting).toMatchObject({
      value: {
        text: expect.stringContaining('naïve café 日本語 🙂'),
        reasoning: expect.stringContaining('greets'),
      },
    })
    const both = await ask(route, 'both at once', files)
    expect(both).toMatchObject({
      value: { finishReason: 'tool_calls', toolCalls: [{ name: 'read_file' }, { name: 'list_files' }] },
    })
  })

  it('never takes arguments that the length limit cut for whole ones, wherever it cuts [G.07]', async (context) => {
    await using server = await start(context)
    const { route, exchanges } = await openRoute(server)
    const signal = new AbortController().signal
    const whole = await ask(route, 'go', writing)
    if (!whole.ok) throw new Error(whole.error.message)
    const { outputTokens } = whole.value.usage
    let cut = 0
    for (let maxTokens = 4; maxTokens < outputTokens; maxTokens += Math.ceil(outputTokens / 12)) {
      const before = exchanges.length
      const model = createModel({ model: 'm', maxTokens, ...route })
      const turn = await model({ messages: [{ role: 'user', content: 'go' }], tools: writing }, { signal })
      if (!turn.ok) throw new Error(turn.error.message)
      const { finishReason, toolCalls } = turn.value
      expect(finishReason).toBe('length')
      for (const { argumentsText } of toolCalls) if (isCutOff(argumentsText)) cut++
      expect(exchanges.length - before).toBe(1)
    }
    expect(cut).toBeGreaterThan(0)
  })

  it('types its refusals, and does not repeat them [G.05]', async (context) => {
    await using server = await start(context)
    const { route, exchanges } = await openRoute(server)
    const signal = new AbortController().signal
    const messages = [{ role: 'user', content: 'x'.repeat(120_000) }] as const
    const model = createModel({ model: 'm', ...route })
    expect(await model({ messages, tools: [] }, { signal })).toMatchObject({
      ok: false,
      error: { code: 'context_exceeded', status: 400 },
    })
    expect(exchanges).toHaveLength(1)
    const stranger = await openRoute(server, 'wrong-key-0123456789')
    expect(await ask(stranger.route, 'hello', [])).toMatchObject({
      ok: false,
      error: { code: 'unauthorized', status: 401, retryable: false },
    })
  })
})
