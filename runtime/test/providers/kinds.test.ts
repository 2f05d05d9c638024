// The kinds that speak chat completions: where each sends its requests, with which header and which fields.
import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import type { LLMChatMessage } from '../../contract/contract.ts'
import { createLLMEnvironment, getProviderStatus } from '../../environment/environment.ts'
import { generate } from '../../generate/generate.ts'
import type { ProviderConfig } from '../../providers/config.ts'
import { LLMConfigurationError } from '../../providers/errors.ts'
import { configFromVariables } from '../../providers/kinds.ts'
import { ProviderStore } from '../../providers/store.ts'
import { askKind, originOf, testKey, weather } from './support.ts'

const hi = reply({ text: 'hi' })

describe('the kinds of chat completions', () => {
  it('send the key as a bearer, and the bound of tokens under the name that each takes [S2.06]', async () => {
    for (const [kind, field] of [
      ['openai', 'max_completion_tokens'],
      ['xai', 'max_tokens'],
      ['openai-compatible', 'max_tokens'],
      ['ollama', 'max_tokens'],
      ['nvidia', 'max_tokens'],
    ] as const) {
      const { answer, asked } = await askKind(kind, [hi], { maxTokens: 77 })
      expect(answer).toMatchObject({ ok: true, value: { type: 'text', content: 'hi', stopKind: 'natural' } })
      expect(asked[0]).toMatchObject({
        path: '/v1/chat/completions',
        headers: { authorization: `Bearer ${testKey}` },
        body: { model: 'm', [field]: 77, stream: true },
      })
      expect(asked[0]?.body.tools).toBeUndefined()
    }
  })

  it.each(['openai', 'anthropic', 'google'] as const)(
    'never send %s a call without a name, nor its result, whoever put it into the transcript [S2.06] [S2.08]',
    async (kind) => {
      const called = (id: string, name: string) => ({
        id,
        type: 'function' as const,
        function: { name, arguments: '{"word":"nameless"}' },
      })
      const messages: LLMChatMessage[] = [
        { role: 'user', content: 'hello' },
        { role: 'assistant', content: 'both', tool_calls: [called('a', ' '), called('b', 'now')] },
        { role: 'tool', tool_call_id: 'a', content: 'lost result' },
        { role: 'tool', tool_call_id: 'b', content: 'kept result' },
        { role: 'assistant', content: 'one', tool_calls: [called('', '')] },
        { role: 'tool', tool_call_id: '', content: 'lost result' },
        { role: 'user', content: 'continue' },
      ]
      const { asked } = await askKind(kind, [hi], { messages, tools: weather })
      const { text = '' } = asked[0] ?? {}
      expect(text).toContain('kept result')
      expect(text).not.toContain('lost result')
      expect(text.match(/nameless/g)).toHaveLength(1)
      expect(text).not.toMatch(/"(name)":"(unknown|\s*)"/)
    },
  )

  it('send to Azure by deployment, version and a header of its own [S2.06]', async () => {
    const { asked } = await askKind('azure', [hi], {}, { deployment: 'my model', apiVersion: '2030-01-01' })
    expect(asked[0]).toMatchObject({
      path: '/openai/deployments/my%20model/chat/completions?api-version=2030-01-01',
      headers: { 'api-key': testKey },
      body: { max_completion_tokens: 16_384 },
    })
    expect(asked[0]?.headers.authorization).toBeUndefined()
    await using server = await startModelServer([hi])
    await using newer = createLLMEnvironment({
      providers: { azure: { apiKey: testKey, baseUrl: `${originOf(server)}/openai/v1/` } },
    })
    const messages = [{ role: 'user', content: 'x' }] as const
    await generate({ environment: newer, provider: 'azure', model: 'm', messages })
    expect(server.asked[0]).toMatchObject({
      path: '/openai/v1/chat/completions',
      headers: { 'api-key': testKey },
      body: { model: 'm' },
    })
    const store = new ProviderStore({ azure: { apiKey: testKey, resourceName: 'mine' } })
    expect(store.status('azure').baseUrl).toBe('https://mine.openai.azure.com')
  })

  it('say tools, choice, form, effort, temperature, own headers and own fields in its words [S2.04 S2.06 S0.11]', async () => {
    const schema = { type: 'object', properties: {} }
    const { asked } = await askKind(
      'openai',
      [hi],
      {
        tools: weather,
        toolChoice: { name: 'now' },
        responseFormat: { name: 'x', schema },
        reasoningEffort: 'low',
        temperature: 0.1,
      },
      { headers: { 'x-team': 'seven' }, body: { store: false } },
    )
    expect(asked[0]?.headers['x-team']).toBe('seven')
    expect(asked[0]?.body).toMatchObject({
      tools: [{ function: { name: 'get_weather' } }, { function: { name: 'now' } }],
      tool_choice: { type: 'function', function: { name: 'now' } },
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
      reasoning_effort: 'low',
      temperature: 0.1,
      store: false,
    })
  })

  it('drop harmless fields that a server refuses by name, once, and remember [S2.06]', async () => {
    await using server = await startModelServer(({ body }) => {
      if (body.stream_options !== undefined) return failure(400, 'Unknown field: stream_options')
      return body.reasoning_effort === undefined
        ? hi
        : failure(422, 'reasoning_effort: extra inputs are not permitted')
    })
    await using environment = createLLMEnvironment({ providers: { ollama: { baseUrl: server.baseUrl } } })
    for (let turn = 0; turn < 2; turn++) {
      const messages = [{ role: 'user', content: 'x' }] as const
      const request = {
        environment,
        provider: 'ollama',
        model: 'm',
        messages,
        reasoningEffort: 'high',
      } as const
      expect((await generate(request)).content).toBe('hi')
    }
    expect(server.asked.length).toBe(4)
  })
})

describe('a server that wants reasoning back', () => {
  it('gets it with the calls that it led to, once it has said so, and in later calls [S1.07]', async () => {
    await using server = await startModelServer(({ messages }) =>
      'reasoning_content' in (messages[1] ?? {})
        ? hi
        : failure(400, 'The reasoning_content in the thinking mode must be passed back to the API'),
    )
    await using environment = createLLMEnvironment({ providers: { ollama: { baseUrl: server.baseUrl } } })
    const messages: LLMChatMessage[] = [
      { role: 'user', content: 'x' },
      {
        role: 'assistant',
        content: '',
        reasoning_content: 'hm',
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'a', content: 'y' },
    ]
    for (let turn = 0; turn < 2; turn++)
      expect((await generate({ environment, provider: 'ollama', model: 'm', messages })).content).toBe('hi')
    expect(server.asked).toHaveLength(3)
    expect(server.asked[2]?.messages[1]).toMatchObject({ reasoning_content: 'hm' })
  })
})

describe('keys', () => {
  it('do not follow a redirect [S2.06]', async () => {
    await using elsewhere = await startModelServer([hi])
    const moved = { status: 307, headers: { location: `${elsewhere.baseUrl}/chat/completions` }, body: '' }
    for (const kind of ['openai', 'anthropic', 'google'] as const) {
      const { answer } = await askKind(kind, [moved])
      expect(answer.ok).toBe(false)
    }
    expect(elsewhere.asked).toEqual([])
  })

  it('are in no error, status, text or inspection, in whatever form a server echoes them [S2.06]', async () => {
    const key = 'sk-a/b+c"d&0123456789'
    const header = 'Basic c2VjcmV0LXNlY3JldA=='
    const filler = 'x'.repeat(985)
    const echoes = [
      { status: 401, body: JSON.stringify({ error: { message: `wrong key ${key} ${header}` } }) },
      { status: 400, body: `bad ${encodeURIComponent(key)}` },
      { status: 400, body: `${filler}${key}${key}` },
      { body: `data: ${JSON.stringify({ error: { message: `${filler} ${key}`, code: 500 } })}\n\n` },
      { body: `data: no json ${key}\n\n` },
      { body: `<html><title>${key}</title></html>` },
    ]
    for (const kind of ['openai', 'anthropic', 'google'] as const) {
      for (const echo of echoes) {
        const { answer } = await askKind(kind, [echo], {}, { apiKey: key, headers: { 'x-gate': header } })
        const shown = answer.ok
          ? 'no error'
          : `${inspect(answer.error, { depth: 9 })} ${JSON.stringify(answer.error)}`
        expect(shown).toContain('LLMError')
        for (const secret of [key, encodeURIComponent(key), key.slice(0, 9), 'c2VjcmV0LXNlY3JldA==', 'sk-a/'])
          expect(shown).not.toContain(secret)
      }
    }
    const environment = createLLMEnvironment({
      providers: { openai: { apiKey: key, headers: { a: header } } },
    })
    const everything = inspect(environment, { depth: 20, showHidden: true, getters: true })
    for (const text of [
      everything,
      JSON.stringify(environment),
      JSON.stringify(getProviderStatus(environment)),
    ]) {
      expect(text).not.toContain('c2VjcmV0')
      expect(text).not.toContain('sk-a')
    }
  })

  it('that no header can carry are refused without being shown [S2.06]', () => {
    const key = 'sk-secret\r\nx-evil: 1'
    const make = () => new ProviderStore({ openai: { apiKey: key } })
    expect(make).toThrow(LLMConfigurationError)
    expect(make).not.toThrow(/sk-secret/)
  })
})

describe('provider stores', () => {
  it('share nothing with each other [S2.06]', () => {
    const first = createLLMEnvironment({ providers: { openai: { apiKey: testKey } } })
    const second = createLLMEnvironment()
    expect(first.providerStore.status('openai').configured).toBe(true)
    expect(second.providerStore.status('openai').configured).toBe(false)
    second.providerStore.configure('xai', { apiKey: testKey })
    expect(first.providerStore.status('xai').configured).toBe(false)
    expect(second.providerStore.remove('xai')).toBe(true)
    expect(second.providerStore.status('xai').configured).toBe(false)
  })

  it('say of every kind what is missing, and throw that when it is asked for [S2.06]', () => {
    const store = new ProviderStore({
      local: { kind: 'openai-compatible' },
      openai: { baseUrl: 'http://me/v1' },
    })
    expect(Object.fromEntries(store.list().map(({ provider, missing }) => [provider, missing]))).toEqual({
      anthropic: ['apiKey'],
      azure: ['apiKey', 'baseUrl or resourceName'],
      google: ['apiKey'],
      local: ['baseUrl'],
      nvidia: ['apiKey'],
      ollama: [],
      openai: [],
      'openai-compatible': ['baseUrl'],
      xai: ['apiKey'],
    })
    expect(() => store.get('local')).toThrow('the provider local is not configured: it lacks baseUrl')
    expect(() => store.get('google')).toThrow(
      'give it under providers.google or, in a call without an environment, as GEMINI_API_KEY or GOOGLE_API_KEY',
    )
    expect(() => store.get('nobody')).toThrow(/there is no provider "nobody"; known are anthropic, /)
    for (const name of ['__proto__', 'constructor', 'toString'])
      expect(() => store.get(name)).toThrow(LLMConfigurationError)
  })

  it('refuse configurations that cannot be meant [S2.06]', () => {
    for (const config of [
      { baseUrl: 'ftp://models.example' },
      { baseUrl: 'models.example' },
      { baseUrl: 'https://user:pass@models.example' },
      { baseUrl: 'https://models.example/?key=1' },
      { baseURL: 'https://models.example' },
      { maxTokens: 0 },
      { headers: { 'bad name': 'x' } },
      { kind: 'telepathy' },
    ])
      expect(() => new ProviderStore({ openai: config as ProviderConfig }), JSON.stringify(config)).toThrow(
        LLMConfigurationError,
      )
    expect(() => new ProviderStore({ mine: { apiKey: testKey } })).toThrow(/needs a kind/)
    const telepathy = { kind: 'telepathy', apiKey: 7, body: 'sk-x' } as unknown as ProviderConfig
    expect(() => new ProviderStore({ mine: telepathy })).toThrow(
      /kind: must be one of "openai".*, got text; apiKey: must be text, got a number/,
    )
    expect(() => new ProviderStore({ mine: telepathy })).not.toThrow(/telepathy|sk-x/)
    expect(() => new ProviderStore({ openai: { apiKey: ' ' } })).toThrow(/openai .*got an empty text/)
  })

  it('read the environment by kind [S2.02] [S2.06]', () => {
    const variables = {
      GOOGLE_API_KEY: 'g',
      GEMINI_API_KEY: ' ',
      AZURE_OPENAI_ENDPOINT: 'https://a.example',
      OLLAMA_BASE_URL: 'http://b/v1',
    }
    expect(configFromVariables('google', variables)).toEqual({ apiKey: 'g' })
    expect(configFromVariables('azure', variables)).toEqual({ baseUrl: 'https://a.example' })
    expect(configFromVariables('ollama', variables)).toEqual({ baseUrl: 'http://b/v1' })
    expect(configFromVariables('openai', variables)).toEqual({})
  })

  it('take an object of the application as a provider [S2.06]', async () => {
    await using environment = createLLMEnvironment({
      providers: {
        mine: {
          async *stream({ model }) {
            yield [
              { type: 'text', text: `I am ${model}` },
              { type: 'finish', reason: 'stop' },
            ]
          },
        },
      },
    })
    const messages = [{ role: 'user', content: 'x' }] as const
    expect(await generate({ environment, provider: 'mine', model: 'me', messages })).toMatchObject({
      content: 'I am me',
    })
    expect(environment.providerStore.status('mine')).toMatchObject({ kind: 'custom', configured: true })
  })

  it('keep addresses without their last slashes [S2.06]', async () => {
    await using server = await startModelServer([hi])
    await using environment = createLLMEnvironment({
      providers: { a: { kind: 'openai-compatible', baseUrl: `${originOf(server)}/v1//` } },
    })
    await generate({ environment, provider: 'a', model: 'm', messages: [{ role: 'user', content: 'x' }] })
    expect(server.asked[0]?.path).toBe('/v1/chat/completions')
  })
})
