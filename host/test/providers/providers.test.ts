import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Config } from '../../config/schema.ts'
import { Secret } from '../../keys/secret.ts'
import {
  chooseProvider,
  fetchKey,
  nvidiaBaseUrl,
  nvidiaDefaultModel,
  offlineModel,
  type ProviderQuestion,
} from '../../providers/providers.ts'

const key = 'nvapi-abcdefghijklmnop'

/** Chosen, and its key fetched. */
async function resolveProvider(question: ProviderQuestion) {
  const chosen = chooseProvider(question)
  return chosen.ok
    ? await fetchKey(chosen.value, { env: question.env, folders: { home: '/nowhere' } })
    : chosen
}

async function provider(env: Record<string, string>, model?: string) {
  const result = await resolveProvider(model === undefined ? { env } : { env, model })
  if (!result.ok) throw new Error(result.error.message)
  return result.value
}

describe('the provider', () => {
  it('is the offline model without a key, and says how to set one [S4.06] [S0.09]', async () => {
    expect(await provider({})).toMatchObject({
      name: 'offline',
      model: offlineModel,
      baseUrl: null,
      key: null,
    })
    expect((await provider({})).notes.join()).toContain('NVIDIA_API_KEY')
    expect((await provider({ NVIDIA_API_KEY: '  ' })).name).toBe('offline')
  })

  it('is the offline model where only a key of another program is set, and names it and what is read [S0.09]', async () => {
    for (const [name, kind] of [
      ['OPENAI_API_KEY', 'openai'],
      ['ANTHROPIC_API_KEY', 'anthropic'],
      ['GEMINI_API_KEY', 'google'],
      ['XAI_API_KEY', 'xai'],
    ] as const) {
      const { name: chosen, notes } = await provider({ [name]: 'sk-abcdefghijklmnop' })
      expect(chosen).toBe('offline')
      expect(notes.join(' ')).toContain(`${name} is set, but a key alone sends nothing`)
      expect(notes.join(' ')).toContain(`${kind}/MODEL`)
      expect(notes.join(' ')).not.toContain('sk-abc')
    }
    for (const [name, setting] of [
      ['OLLAMA_HOST', 'OLLAMA_MODEL'],
      ['OPENAI_BASE_URL', 'OPENAI_MODEL'],
    ] as const) {
      const { name: chosen, notes } = await provider({ [name]: 'http://127.0.0.1:11434' })
      expect(chosen).toBe('offline')
      expect(notes.join(' ')).toContain(`${name} is set, but an address alone sends nothing`)
      expect(notes.join(' ')).toContain(`the variable ${setting}`)
    }
    const groq = await provider({ GROQ_API_KEY: 'k' })
    expect(groq.notes.join(' ')).toContain('key = { env = "GROQ_API_KEY" }')
    const openAi = { OPENAI_API_KEY: 'sk-abcdefghijklmnop' }
    expect((await provider({ CAISSON_LLM_KEY: 'k' })).notes.join(' ')).toContain(
      'not used without CAISSON_LLM_URL',
    )
    expect((await provider({ ...openAi, NVIDIA_API_KEY: key })).notes.join(' ')).not.toContain('OPENAI')
    const providers = {
      openai: { url: 'https://api.openai.com/v1', key: { env: 'OPENAI_API_KEY' }, models: ['gpt-*'] },
    }
    const read = chooseProvider({ env: openAi, config: Config.parse({ providers }) })
    expect(read.ok && read.value.notes.join(' ')).not.toContain('a key alone')
  })

  it('is the server of OPENAI_MODEL with a key or an address, below what is Caisson’s own [S0.09]', async () => {
    const openAi = { OPENAI_API_KEY: 'sk-abcdefghijklmnop', OPENAI_MODEL: 'gpt-5' }
    const chosen = await provider(openAi)
    expect(chosen).toMatchObject({
      name: 'openai',
      kind: 'openai',
      model: 'gpt-5',
      baseUrl: 'https://api.openai.com/v1',
      notes: [],
    })
    expect(chosen.key?.reveal()).toBe(openAi.OPENAI_API_KEY)
    const local = { OPENAI_MODEL: 'm-1', OPENAI_BASE_URL: 'http://127.0.0.1:1/v1' }
    expect(await provider(local)).toMatchObject({ model: 'm-1', baseUrl: local.OPENAI_BASE_URL, key: null })
    expect((await provider({ ...openAi, CAISSON_MODEL: 'gpt-6' })).model).toBe('gpt-6')
    const own = { CAISSON_LLM_URL: 'http://127.0.0.1:2/v1', CAISSON_MODEL: 'm-2' }
    expect(await provider({ ...openAi, ...own })).toMatchObject({ model: 'm-2', key: null })
    expect((await provider({ ...openAi, NVIDIA_API_KEY: key })).name).toBe('nvidia')
    expect((await provider({ OPENAI_MODEL: 'gpt-5' })).name).toBe('offline')
    for (const url of ['ftp://a.example/v1', 'http://a.example/v1', 'https://u:p@a.example/v1', 'x'])
      expect(chooseProvider({ env: { ...openAi, OPENAI_BASE_URL: url } })).toMatchObject({
        ok: false,
        error: { message: expect.stringContaining('OPENAI_BASE_URL') },
      })
  })

  it.each<[string, Record<string, string>, string | undefined, object]>([
    ['an id of Anthropic', { ANTHROPIC_API_KEY: 'k' }, 'claude-x', { kind: 'anthropic', model: 'claude-x' }],
    ['a prefix', { ANTHROPIC_API_KEY: 'k' }, 'anthropic/other', { kind: 'anthropic', model: 'other' }],
    [
      'ANTHROPIC_MODEL',
      { ANTHROPIC_API_KEY: 'k', ANTHROPIC_MODEL: 'claude-x' },
      undefined,
      { name: 'anthropic' },
    ],
    [
      'an id of Gemini',
      { GOOGLE_API_KEY: 'k' },
      'gemini-x',
      { kind: 'google', keySetting: 'the variable GOOGLE_API_KEY' },
    ],
    ['an id of xAI', { XAI_API_KEY: 'k' }, 'grok-x', { kind: 'xai', baseUrl: 'https://api.x.ai/v1' }],
    ['an id of OpenAI', { OPENAI_API_KEY: 'k' }, 'gpt-5', { kind: 'openai' }],
    [
      'another kind than the variable of a model',
      { OPENAI_API_KEY: 'k', OPENAI_MODEL: 'gpt-5', XAI_API_KEY: 'k' },
      'grok-x',
      { kind: 'xai' },
    ],
    [
      'the host of Ollama',
      { OLLAMA_HOST: '0.0.0.0' },
      'ollama/qwen3',
      { kind: 'ollama', model: 'qwen3', baseUrl: 'http://127.0.0.1:11434/v1' },
    ],
    [
      'a deployment of Azure',
      { AZURE_OPENAI_API_KEY: 'k', AZURE_OPENAI_RESOURCE_NAME: 'mine', AZURE_OPENAI_DEPLOYMENT: 'd1' },
      undefined,
      { kind: 'azure', model: 'd1', deployment: 'd1', baseUrl: 'https://mine.openai.azure.com' },
    ],
    [
      "NVIDIA's id of another owner",
      { NVIDIA_API_KEY: key, OPENAI_API_KEY: 'k' },
      'openai/gpt-oss-120b',
      { name: 'nvidia' },
    ],
    [
      'an id of its own beside a key of NVIDIA',
      { NVIDIA_API_KEY: key, GEMINI_API_KEY: 'k' },
      'google/gemini-x',
      { kind: 'google' },
    ],
  ])('is found by %s [S0.09] [S3.06]', (_, env, model, expected) => {
    const chosen = chooseProvider(model === undefined ? { env } : { env, model })
    expect(chosen.ok ? chosen.value : chosen.error).toMatchObject(expected)
  })

  it('stays the user’s own server for any id, whatever keys of others there are [G.01]', () => {
    const config = Config.parse({ providers: { proxy: { url: 'https://proxy.example/v1' } } })
    for (const model of ['claude-x', 'anthropic/claude-x', 'gpt-5']) {
      const chosen = chooseProvider({ env: { ANTHROPIC_API_KEY: 'k', OPENAI_API_KEY: 'k' }, config, model })
      expect(chosen).toMatchObject({ value: { name: 'proxy', model, keySource: null } })
    }
  })

  it('is the offline model where nothing chooses among those of the configuration, and says how to', async () => {
    const providers = { local: { url: 'http://127.0.0.1:1/v1', models: ['m-1'] } }
    const chosen = chooseProvider({ env: {}, config: Config.parse({ providers }) })
    expect(chosen).toMatchObject({ value: { name: 'offline' } })
    const note = chosen.ok ? chosen.value.notes.join() : ''
    expect(note).toMatch(/To use local, name a model .option model\)/)
    expect(note).not.toContain('No model key')
  })

  it('is NVIDIA with its key, at its address only [S0.09] [G.01]', async () => {
    expect(await provider({ NVIDIA_API_KEY: key })).toMatchObject({
      name: 'nvidia',
      baseUrl: nvidiaBaseUrl,
      model: nvidiaDefaultModel,
    })
    expect((await provider({ NVIDIA_API_KEY: key, CAISSON_MODEL: 'a/b' })).model).toBe('a/b')
    expect((await provider({ NVIDIA_API_KEY: key, CAISSON_MODEL: 'a/b' }, 'c/d')).model).toBe('c/d')
  })

  it('never gets the key of another server [G.01]', async () => {
    const custom = await provider({
      NVIDIA_API_KEY: key,
      CAISSON_LLM_URL: 'https://llm.example/v1/',
      CAISSON_MODEL: 'm',
    })
    expect(custom).toMatchObject({ name: 'custom', baseUrl: 'https://llm.example/v1', key: null })
    const nvidia = await provider({ NVIDIA_API_KEY: key, CAISSON_LLM_KEY: 'other-key' })
    expect(nvidia.key?.reveal()).toBe(key)
  })

  it('is the offline model when it is asked for by name, whatever keys there are [S4.06]', async () => {
    expect(await provider({ NVIDIA_API_KEY: key }, offlineModel)).toMatchObject({
      name: 'offline',
      notes: [],
    })
  })

  it.each([
    'http://127.0.0.1:8080/v1',
    'http://localhost:11434/v1',
    'http://[::1]:80/v1',
    'https://x.example',
  ])('takes %s without a warning [S0.09]', async (url) => {
    expect((await provider({ CAISSON_LLM_URL: url, CAISSON_MODEL: 'm' })).notes).toEqual([])
  })

  it.each([
    'http://192.168.1.4:8000/v1',
    'http://10.0.0.1/v1',
    'http://172.20.0.1/v1',
    'http://[fd00::1]/v1',
  ])('takes %s with a note that it can be read on the way [S0.09]', async (url) => {
    expect((await provider({ CAISSON_LLM_URL: url, CAISSON_MODEL: 'm' })).notes.join()).toContain(
      'plain http',
    )
  })

  it.each([
    ['http://llm.example/v1', 'insecure_url'],
    ['http://8.8.8.8/v1', 'insecure_url'],
    ['http://172.32.0.1/v1', 'insecure_url'],
    ['http://127.0.0.1.evil.example/v1', 'insecure_url'],
    ['ftp://127.0.0.1/v1', 'invalid_url'],
    ['not an address', 'invalid_url'],
    ['https://user:pass@llm.example/v1', 'invalid_url'],
    ['https://llm.example/v1?key=x', 'invalid_url'],
    ['https://llm.example/v1/chat/completions', 'invalid_url'],
  ])('refuses %s as %s, without repeating what may be a key [S0.09]', async (url, code) => {
    const result = await resolveProvider({
      env: { CAISSON_LLM_URL: url, CAISSON_MODEL: 'm', CAISSON_LLM_KEY: key },
    })
    expect(result).toMatchObject({ ok: false, error: { code } })
    expect(JSON.stringify(result)).not.toContain(key)
    expect(JSON.stringify(result)).not.toContain('pass')
  })

  it.each([
    [{ NVIDIA_API_KEY: `${key}\nx-evil: 1` }, 'invalid_key'],
    [{ CAISSON_LLM_URL: 'https://x.example', CAISSON_MODEL: 'm', CAISSON_LLM_KEY: 'a b' }, 'invalid_key'],
    [{ ANTHROPIC_MODEL: 'claude-x', ANTHROPIC_API_KEY: 'a b' }, 'invalid_key'],
    [{ CAISSON_MODEL: 'nvidia/x' }, 'missing_model'],
    [{ CAISSON_MODEL: 'a b' }, 'invalid_model'],
  ])('refuses %o as %s, with the setting to change [S0.09]', async (env, code) => {
    const result = await resolveProvider({ env })
    expect(result).toMatchObject({ ok: false, error: { code } })
    expect(inspect(result)).not.toContain(key)
  })
})

it('a key cannot be shown by printing, joining, inspecting or JSON [G.01]', () => {
  const secret = new Secret(key)
  const nested = { deep: [{ secret }] }
  const shown = [
    String(secret),
    `${secret}`,
    JSON.stringify(nested),
    inspect(nested, { depth: 9, showHidden: true }),
  ]
  shown.push(
    inspect(secret, { customInspect: false, showHidden: true }),
    JSON.stringify(Object.entries(secret)),
  )
  expect(shown.join()).not.toContain(key)
  expect(secret.reveal()).toBe(key)
})
