import { once } from 'node:events'
import { createParser } from 'eventsource-parser'
import { expect, it } from 'vitest'
import { type LlamaServer, llamaKey, llamaModel, useLlamaServer } from '../../../test/support/llama-server.ts'
import { Secret } from '../../keys/secret.ts'
import type { ModelProvider } from '../../providers/providers.ts'
import { type RequestOptions, startGateway } from '../support/gateway.ts'

const start = useLlamaServer()

function provider(server: LlamaServer, key = llamaKey): ModelProvider {
  const keySetting = 'the variable CAISSON_LLM_KEY'
  return {
    name: 'custom',
    model: llamaModel,
    baseUrl: server.url,
    key: new Secret(key),
    keySetting,
    notes: [],
  }
}

interface Folded {
  text: string
  reasoning: string
  calls: { name: string; arguments: string }[]
  finish: string | null
  done: boolean
}

/** The stream folded, for the shape that this server gives. */
function fold(stream: string): Folded {
  const folded: Folded = { text: '', reasoning: '', calls: [], finish: null, done: false }
  const parser = createParser({
    onEvent: ({ data }) => {
      if (data === '[DONE]') {
        folded.done = true
        return
      }
      const { choices } = JSON.parse(data) as { choices: WireChoice[] }
      for (const { delta, finish_reason } of choices) {
        folded.text += delta.content ?? ''
        folded.reasoning += delta.reasoning_content ?? ''
        folded.finish = finish_reason ?? folded.finish
        for (const { index, function: called } of delta.tool_calls ?? []) {
          const call = folded.calls[index] ?? { name: '', arguments: '' }
          folded.calls[index] = call
          call.name ||= called.name ?? ''
          call.arguments += called.arguments ?? ''
        }
      }
    },
  })
  parser.feed(stream)
  return folded
}

interface WireChoice {
  readonly delta: {
    readonly content?: string | null
    readonly reasoning_content?: string
    readonly tool_calls?: readonly { index: number; function: { name?: string; arguments?: string } }[]
  }
  readonly finish_reason?: string | null
}

/** The server's grammar allows only arguments that a schema names. */
const schemas: Readonly<Record<string, unknown>> = {
  read_file: { type: 'object', properties: { path: { type: 'string' } } },
  list_files: { type: 'object', properties: { path: { type: 'string' } } },
  write_file: { type: 'object', properties: { path: { type: 'string' }, content: { type: 'string' } } },
  submit_plan: {
    type: 'object',
    properties: { goal: { type: 'string' }, steps: { type: 'array', items: { type: 'object' } } },
  },
}

function chat(content: string, tools: readonly string[] = []): RequestOptions {
  const offered = tools.map((name) => ({
    type: 'function',
    function: { name, description: 'x', parameters: schemas[name] ?? { type: 'object' } },
  }))
  return {
    body: {
      messages: [{ role: 'user', content }],
      stream: true,
      max_tokens: 4_000,
      ...(offered.length > 0 ? { tools: offered } : {}),
    },
  }
}

it('streams text, reasoning and usage from a real server [S1.07]', async (context) => {
  await using server = await start(context)
  await using test = await startGateway(provider(server))
  const answer = await test.request(chat('hello'))
  expect(answer.status).toBe(200)
  expect(fold(answer.text)).toMatchObject({
    text: expect.stringContaining('naïve café 日本語 🙂 done'),
    reasoning: expect.stringContaining('greets'),
    finish: 'stop',
    done: true,
  })
  expect(test.exchanges).toMatchObject([{ status: 200, estimated: false }])
  expect(test.exchanges[0]?.usage.outputTokens).toBeGreaterThan(5)
})

it('carries one and several tool calls of a real server [S0.11]', async (context) => {
  await using server = await start(context)
  await using test = await startGateway(provider(server))
  const one = fold((await test.request(chat('go', ['write_file', 'read_file']))).text)
  expect(one).toMatchObject({ finish: 'tool_calls', calls: [{ name: 'write_file' }] })
  expect(JSON.parse(one.calls[0]?.arguments ?? '')).toMatchObject({ path: 'hello.txt' })
  const both = await test.request(chat('both at once', ['read_file', 'list_files']))
  expect(both.status).toBe(200)
  const two = fold(both.text)
  expect(two.calls.map(({ name }) => name)).toEqual(['read_file', 'list_files'])
  const plan = fold((await test.request(chat('anything', ['submit_plan']))).text)
  expect(JSON.parse(plan.calls[0]?.arguments ?? '')).toMatchObject({
    steps: [{ id: 'look' }, { id: 'greet' }],
  })
})

it('passes the refusal of a wrong key on, without the key [G.01]', async (context) => {
  await using server = await start(context)
  await using test = await startGateway(provider(server, 'wrong-key-0123456789'))
  const answer = await test.request(chat('hello'))
  expect(answer.status).toBe(401)
  expect(answer.text).toContain('check the key in the variable CAISSON_LLM_KEY')
  expect(JSON.stringify([answer, test.exchanges, test.logged])).not.toContain('wrong-key')
})

it('passes on that the conversation is longer than the context [S0.06]', async (context) => {
  await using server = await start(context)
  await using test = await startGateway(provider(server))
  const answer = await test.request(chat('x'.repeat(120_000)))
  expect(answer).toMatchObject({ status: 400, code: '400' })
  expect(answer.text).toMatch(/context/i)
})

it('a guest that goes away in mid-stream frees the real server at once', async (context) => {
  await using server = await start(context)
  await using test = await startGateway(provider(server))
  const stream = test.open(chat('at length'))
  await once(stream, 'data')
  stream.close()
  await test.exchanged(1)
  expect(test.exchanges[0]?.error).toContain('guest ended')
  expect(fold((await test.request(chat('hello'))).text).done).toBe(true)
})
