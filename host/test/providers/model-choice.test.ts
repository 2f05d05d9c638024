import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Config, type ConfigInput } from '../../config/schema.ts'
import { Host } from '../../host.ts'
import { readUpstreamError } from '../../providers/http-exchange.ts'
import { contextTokensOf, longestMatch } from '../../providers/model-choice.ts'
import { chooseProvider, fetchKey, nvidiaBaseUrl, nvidiaDefaultModel } from '../../providers/providers.ts'
import { testKeyring } from '../support/keyring.ts'

const key = 'nvapi-abcdefghijklmnop'
const local = { url: 'http://127.0.0.1:8000/v1' }
const far = { url: 'https://far.example/v1', key: { env: 'FAR_KEY' } }

function choose(
  config: ConfigInput,
  model?: string,
  env: Record<string, string> = {},
  storedKeys: readonly string[] = [],
) {
  const question = { config: Config.parse(config), env, storedKeys }
  return chooseProvider(model === undefined ? question : { ...question, model })
}

/** `NAME MODEL`, or the code of the refusal. */
function chosen(...question: Parameters<typeof choose>): string {
  const result = choose(...question)
  return result.ok ? `${result.value.name} ${result.value.model}` : result.error.code
}

describe('the provider of a model', () => {
  it('is missing where no list has the model, and the message names the providers [S1.07]', () => {
    const providers = { local: { ...local, models: ['qwen*'] }, far: { ...far, models: ['far-*'] } }
    expect(choose({ providers }, 'llama')).toMatchObject({
      ok: false,
      error: {
        code: 'missing_model',
        message: expect.stringContaining('(local, far), or put its name before the id: local/llama'),
      },
    })
  })

  const listed = {
    providers: {
      local: { ...local, models: ['qwen*', 'qwen3-coder'] },
      far: { ...far, models: ['qwen3*', 'local/big*', '*'] },
    },
  }

  it.each([
    ['the list that fits', 'qwen2', 'local qwen2'],
    ['the longer pattern', 'qwen3-32b', 'far qwen3-32b'],
    ['the id in full', 'qwen3-coder', 'local qwen3-coder'],
    ['the pattern for everything', 'anything', 'far anything'],
    ['a prefix before the pattern for everything', 'local/anything', 'local anything'],
    ['a list that is longer than the prefix', 'local/big-1', 'far local/big-1'],
    ['what is behind the prefix, however it continues', 'local/a/b:c', 'local a/b:c'],
    ['no prefix where nothing is behind it', 'local/', 'far local/'],
  ])('is found by %s [S0.09 S3.06 S1.07]', (_, model, expected) => {
    expect(chosen(listed, model)).toBe(expected)
  })

  it.each<[string, ConfigInput, string | undefined, Record<string, string>, string]>([
    ['the only server without a list', { providers: { local }, model: 'm' }, undefined, {}, 'local m'],
    [
      'that server, though there is a key for NVIDIA',
      { providers: { local } },
      'm',
      { NVIDIA_API_KEY: key },
      'local m',
    ],
    [
      'NVIDIA beside lists that do not fit',
      { providers: { local: { ...local, models: ['a'] } } },
      'b',
      { NVIDIA_API_KEY: key },
      'nvidia b',
    ],
    [
      'nothing, where no list fits and nothing else is set',
      { providers: { local: { ...local, models: ['a'] } } },
      'b',
      {},
      'missing_model',
    ],
    ['nothing, where several could be meant', { providers: { local, far } }, 'm', {}, 'ambiguous_provider'],
    ['the one that is named', { provider: 'far', providers: { local, far } }, 'm', {}, 'far m'],
    [
      'the first model in full of the one that is named',
      { provider: 'local', providers: { local: { ...local, models: ['q*', 'q1', 'q2'] } } },
      undefined,
      {},
      'local q1',
    ],
    [
      'left to the list of the one that is named, where it has no model',
      { provider: 'local', providers: { local } },
      undefined,
      {},
      'local ',
    ],
    [
      'nothing, where the one that is named is not there',
      { provider: 'gone', providers: { local } },
      'm',
      {},
      'unknown_provider',
    ],
    ['nothing, where a server has no address', { providers: { local: {} } }, 'm', {}, 'invalid_url'],
    [
      'the offline model, named as the default',
      { provider: 'offline', providers: { local } },
      undefined,
      { NVIDIA_API_KEY: key },
      'offline caisson/offline',
    ],
    [
      'no server for an unlisted model where offline is the default',
      { provider: 'offline', providers: { local } },
      'm',
      { NVIDIA_API_KEY: key },
      'missing_model',
    ],
    [
      'the offline model by its id, whatever is set',
      { provider: 'far', providers: { far } },
      'caisson/offline',
      {},
      'offline caisson/offline',
    ],
    [
      'NVIDIA with the key of the configuration',
      { providers: { nvidia: { key: { file: '~/k' } } } },
      undefined,
      {},
      `nvidia ${nvidiaDefaultModel}`,
    ],
    [
      'the offline model while NVIDIA has terms but no key',
      { providers: { nvidia: { maxConcurrent: 2 } } },
      undefined,
      {},
      'offline caisson/offline',
    ],
    ['nothing, where NVIDIA is named and has no key', { provider: 'nvidia' }, undefined, {}, 'missing_key'],
    [
      "NVIDIA's own ids, which begin with its name",
      { providers: { nvidia: { key: { env: 'K' } } } },
      'nvidia/nemotron-x',
      {},
      'nvidia nvidia/nemotron-x',
    ],
    [
      'NVIDIA by a prefix before a whole id',
      { provider: 'local', providers: { local, nvidia: { key: { env: 'K' } } } },
      'nvidia/meta/llama',
      {},
      'nvidia meta/llama',
    ],
    [
      'two lists that fit equally',
      { providers: { local: { ...local, models: ['a*'] }, far: { ...far, models: ['a*'] } } },
      'ab',
      {},
      'ambiguous_provider',
    ],
    [
      'the server of the environment, whatever the file says',
      { providers: { far: { ...far, models: ['*'] } } },
      'm',
      { CAISSON_LLM_URL: 'http://localhost:1/v1' },
      'custom m',
    ],
    [
      'the model of the flag over that of the environment',
      { providers: { local }, model: 'file' },
      'flag',
      { CAISSON_MODEL: 'env' },
      'local flag',
    ],
    [
      'the model of the environment over that of the file',
      { providers: { local }, model: 'file' },
      undefined,
      { CAISSON_MODEL: 'env' },
      'local env',
    ],
  ])('by default is %s [S0.09] [S3.06]', (_, config, model, env, expected) => {
    expect(chosen(config, model, env)).toBe(expected)
  })

  it('carries its terms, and the price of the pattern that fits best [G.05]', () => {
    const config = {
      providers: { far: { ...far, models: ['m*'], requestsPerMinute: 7, maxConcurrent: 3 } },
      prices: { 'm*': { input: 1, output: 2 }, m1: { input: 3, output: 4 } },
    }
    expect(choose(config, 'm1')).toMatchObject({
      value: {
        requestsPerMinute: 7,
        maxConcurrent: 3,
        price: { input: 3, output: 4 },
        keySetting: 'the variable FAR_KEY',
      },
    })
    expect(choose(config, 'm2')).toMatchObject({ value: { price: { input: 1, output: 2 } } })
    expect(choose({}, undefined, { NVIDIA_API_KEY: key })).toMatchObject({
      value: { baseUrl: nvidiaBaseUrl, requestsPerMinute: 36 },
    })
    expect(longestMatch(['*', 'a*', 'b', 'ab'], 'ab')).toBe('ab')
    expect(longestMatch(['ab*', 'ab'], 'c')).toBeUndefined()
  })
})

describe('the price of a model', () => {
  it('is the table’s for the kind, unless the configuration has one [G.05]', () => {
    const priceOf = (config: ConfigInput, model: string) => {
      const found = choose(config, model, { ANTHROPIC_API_KEY: 'k' })
      return found.ok ? found.value.price : found.error
    }
    expect(priceOf({}, 'claude-sonnet-5-5')).toMatchObject({ input: 2, output: 10, cachedInput: 0.1 })
    expect(priceOf({}, 'claude-unknown')).toBeUndefined()
    const prices = { 'claude-*': { input: 7, output: 8 } }
    expect(priceOf({ prices }, 'claude-sonnet-5-5')).toEqual({ input: 7, output: 8 })
    // The same id at a server of the user's own costs what nobody knows here.
    expect(priceOf({ providers: { local } }, 'claude-sonnet-5-5')).toBeUndefined()
  })
})

describe('the key of a configured provider', () => {
  it('belongs to one server: NVIDIA_API_KEY goes to NVIDIA alone, and no two share a source [G.01 S0.09]', () => {
    const env = { NVIDIA_API_KEY: key }
    const taken = { url: 'https://far.example/v1', key: { env: 'NVIDIA_API_KEY' } }
    expect(chosen({ providers: { far: taken } }, 'm', env)).toBe('invalid_key')
    for (const url of [
      'https://api.nvidia.com.evil.example/v1',
      'http://127.0.0.1/v1',
      'https://notapi.nvidia.com/v1',
    ]) {
      expect(chosen({ providers: { nvidia: { url } } }, 'm', env)).toBe('invalid_url')
      expect(chosen({ providers: { far: { ...taken, url } } }, 'm', env)).toBe('invalid_key')
    }
    const shared = {
      providers: {
        far: { ...far, models: ['a'] },
        other: { ...far, url: 'https://other.example', models: ['b'] },
      },
    }
    expect(chosen(shared, 'a')).toBe('invalid_key')
    const sameServer = { providers: { far: { ...far, models: ['a'] }, again: { ...far, models: ['b'] } } }
    expect(chosen(sameServer, 'a')).toBe('far a')
  })

  it('never goes to another server than its own, whatever the configuration says [G.01]', () => {
    const name = fc.constantFrom('nvidia', 'local', 'far')
    const url = fc.constantFrom(
      undefined,
      nvidiaBaseUrl,
      'https://api.nvidia.com.evil.example/v1',
      'https://b.example',
      'http://127.0.0.1:1',
    )
    const source = fc.constantFrom(undefined, { env: 'NVIDIA_API_KEY' }, { env: 'A' }, { keyring: 'local' })
    const models = fc.option(fc.array(fc.constantFrom('*', 'a*', 'ab', 'nvidia/*', 'local/*')), {
      nil: undefined,
    })
    const provider = fc.record({ url, key: source, models })
    const config = fc.record({
      provider: fc.option(name, { nil: undefined }),
      providers: fc.dictionary(name, provider),
    })
    const env = { NVIDIA_API_KEY: key, A: 'another-key' }
    const model = fc.constantFrom(undefined, 'ab', 'nvidia/x', 'nvidia/x/y', 'local/ab', 'far/nvidia/x', 'z')
    fc.assert(
      fc.property(config, model, (given, wanted) => {
        const result = choose(given as ConfigInput, wanted, env, ['nvidia', 'local'])
        if (!result.ok) {
          expect(result.error.message).not.toContain(key)
          return
        }
        const { name: chosenName, baseUrl, keySource } = result.value
        if (JSON.stringify(keySource)?.includes('NVIDIA_API_KEY')) expect(baseUrl).toBe(nvidiaBaseUrl)
        if (chosenName === 'nvidia') expect(baseUrl).toBe(nvidiaBaseUrl)
        if (keySource !== null && 'keyring' in keySource && keySource.keyring !== chosenName) {
          expect(given.providers[chosenName]?.key).toEqual(keySource)
        }
      }),
      { numRuns: 1_000, seed: 43 },
    )
  })

  it('is the one of the environment for NVIDIA, else of the file, else of the keyring by its name [G.01] [S0.09]', () => {
    const config = { providers: { nvidia: { key: { file: '~/k' } } } }
    const sourceOf = (...question: Parameters<typeof choose>) => {
      const result = choose(...question)
      return result.ok ? result.value.keySource : result.error
    }
    expect(sourceOf(config, undefined, { NVIDIA_API_KEY: key }, ['nvidia'])).toEqual({
      env: 'NVIDIA_API_KEY',
    })
    expect(sourceOf(config, undefined, {}, ['nvidia'])).toEqual({ file: '~/k' })
    expect(sourceOf({}, undefined, {}, ['nvidia'])).toEqual({ keyring: 'nvidia' })
    expect(sourceOf({ providers: { local } }, 'm', {}, ['local'])).toEqual({ keyring: 'local' })
    expect(sourceOf({ providers: { local } }, 'm', { NVIDIA_API_KEY: key }, ['nvidia'])).toBeNull()
  })

  it('is fetched when a run is planned, and a failure names provider, source and remedy [G.01]', async () => {
    const home = await temporaryFolder('fetch')
    const place = { folders: { home }, env: { HOME: home } }
    const choice = choose({ providers: { local: { ...local, key: { file: '~/k' } } } }, 'm')
    if (!choice.ok) throw new Error(choice.error.message)
    expect(await fetchKey(choice.value, place)).toMatchObject({
      ok: false,
      error: {
        code: 'invalid_key',
        message: expect.stringMatching(/provider local: the key file .*cannot be read/),
      },
    })
    await writeFile(path.join(home, 'k'), 'two words\n', { mode: 0o600 })
    const spaced = await fetchKey(choice.value, place)
    expect(spaced).toMatchObject({ ok: false, error: { code: 'invalid_key' } })
    expect(JSON.stringify(spaced)).not.toContain('two words')
    await writeFile(path.join(home, 'k'), `${key}\n`)
    const fetched = await fetchKey(choice.value, place)
    expect(fetched.ok && fetched.value.key?.reveal()).toBe(key)
    expect(JSON.stringify(fetched)).not.toContain(key)
  })
})

it.each([
  ['providers.own.key in the configuration', { own: local }, 'own/m', {}],
  ['the variable CAISSON_LLM_KEY', {}, 'm', { CAISSON_LLM_URL: local.url }],
  ['OPENAI_API_KEY', {}, 'openai/m', { OPENAI_BASE_URL: local.url }],
  [
    'providers.openai.key in the configuration',
    { openai: local },
    'openai/m',
    { OPENAI_BASE_URL: local.url },
  ],
])('a server that wants a key is refused with where to set it: %s [G.01]', (place, providers, model, env) => {
  const choice = choose({ providers }, model, env)
  if (!choice.ok) throw new Error(choice.error.message)
  const { message } = readUpstreamError(401, '{}', { ...choice.value, key: null })
  expect(message).toContain(`(set its key in ${place})`)
})

describe('a host of the library', () => {
  it('takes a configuration as an object, or from the file each time a run starts [S0.09]', async () => {
    const home = await temporaryFolder('library')
    const keyring = await testKeyring()
    const env = {
      HOME: home,
      CAISSON_HOME: home,
      PATH: keyring.PATH,
      XDG_CONFIG_HOME: path.join(home, 'none'),
    }
    await using given = new Host({ env, config: { providers: { local }, model: 'm' } })
    expect(await given.provider()).toMatchObject({ name: 'local', model: 'm', keySource: null })
    await using wrong = new Host({ env, config: { provider: 'gone' } })
    await expect(wrong.provider()).rejects.toMatchObject({ code: 'provider_unavailable' })
    expect(() => new Host({ env, config: JSON.parse('{ "provder": "x" }') })).toThrow(
      /config\.provder: no option has this name; the names are .*provider/,
    )
    await using plain = new Host({ env })
    expect(await plain.provider()).toMatchObject({ name: 'offline' })
    await writeFile(path.join(home, 'keys.json'), '["nvidia"]')
    expect(await plain.provider()).toMatchObject({ name: 'nvidia', keySource: { keyring: 'nvidia' } })
  })
})

describe('the window of a model', () => {
  it('is what the configuration says of the longest pattern that fits, or not known [A.04]', () => {
    const { models } = Config.parse({
      models: { 'qwen3-*': { contextTokens: 32_768 }, 'qwen3-coder': { contextTokens: 262_144 }, other: {} },
    })
    expect(['qwen3-4b', 'qwen3-coder', 'other', 'gpt'].map((id) => contextTokensOf({ models }, id))).toEqual([
      32_768,
      262_144,
      undefined,
      undefined,
    ])
    expect(Config.safeParse({ models: { m: { contextTokens: 10 } } }).success).toBe(false)
  })

  it('and so is how many images of a request it sees [G.09]', () => {
    const config = Config.parse({
      models: { 'qwen3-*': { maxImages: 2 } },
      providers: { own: { url: 'http://127.0.0.1:9/v1' } },
    })
    const choose = (model: string) => chooseProvider({ env: {}, config, model: `own/${model}` })
    expect(choose('qwen3-4b')).toMatchObject({ ok: true, value: { model: 'qwen3-4b', maxImages: 2 } })
    expect(choose('gpt-4o')).not.toHaveProperty('value.maxImages')
    expect(Config.safeParse({ models: { m: { maxImages: 9 } } }).success).toBe(false)
  })
})
