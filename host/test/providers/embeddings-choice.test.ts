import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import type { ConfigInput } from '../../config/schema.ts'
import { inspectSections } from '../../doctor/inspect-config.ts'
import { Settings } from '../../settings.ts'
import { resolveFolders } from '../../state/folders.ts'

const providers = { local: { url: 'http://127.0.0.1:9/v1', models: ['embed-*'] } }

it('models of fallback and of steps have servers, keys and prices of their own [S3.06 G.05]', async () => {
  const home = await mkdtemp(path.join(tmpdir(), 'caisson-fallback-'))
  onTestFinished(() => rm(home, { recursive: true }))
  const env = { CAISSON_HOME: home, HOME: home, B_KEY: 'key-of-b-0123456789' }
  const place = { env, folders: resolveFolders(env) }
  const settings = new Settings(place, {
    model: 'a-1',
    fallback: ['a-1', 'b-1'],
    stepModels: { fast: 'b-1' },
    providers: {
      a: { url: 'http://127.0.0.1:9/v1', models: ['a-*'] },
      b: { url: 'http://127.0.0.1:8/v1', models: ['b-*'], key: { env: 'B_KEY' } },
    },
    prices: { 'a-*': { input: 1, output: 1 } },
  })
  const config = await settings.config()
  const own = await settings.chooseServer(config)
  const found = await settings.fallbacks(config, own, undefined)
  expect(found.map(({ name, model, key }) => [name, model, key?.reveal()])).toEqual([
    ['a', 'a-1', undefined],
    ['b', 'b-1', 'key-of-b-0123456789'],
  ])
  await expect(settings.fallbacks(config, own, 1)).rejects.toThrow(
    'fallback in the configuration: The run may cost $1.00, but the price of b-1 is not known',
  )
  const instead = await settings.fallbacks(config, own, undefined, ['b-2'])
  expect(instead.map(({ name, model }) => [name, model])).toEqual([['b', 'b-2']])
  expect(await settings.fallbacks(config, own, undefined, [])).toEqual([])
  await expect(settings.fallbacks(config, own, 1, ['b-2'])).rejects.toThrow(
    'The run may cost $1.00, but the price of b-2 is not known',
  )
  const steps = await settings.stepModels(config, undefined)
  expect([...steps].map(([name, { name: server, model }]) => [name, server, model])).toEqual([
    ['fast', 'b', 'b-1'],
  ])
  expect([...(await settings.stepModels(config, undefined, ['a-2'])).keys()]).toEqual(['a-2'])
  expect((await settings.stepModels(config, undefined, {})).size).toBe(0)
  await expect(settings.stepModels(config, 1)).rejects.toThrow(
    'stepModels in the configuration: The run may cost $1.00, but the price of b-1 is not known',
  )
  const facts = await inspectSections(config, place)
  expect(facts.filter(({ what }) => what === 'fallback')).toMatchObject([
    { seen: 'a-1 of a at http://127.0.0.1:9/v1' },
    { seen: expect.stringContaining('b-1 of b at http://127.0.0.1:8/v1') },
  ])
  expect(facts.filter(({ what }) => what.startsWith('stepModels'))).toMatchObject([
    { what: 'stepModels.fast', seen: expect.stringContaining('b-1 of b at http://127.0.0.1:8/v1') },
  ])
})

/** What a run, and `caisson config check`, make of a configuration. */
async function look(config: ConfigInput, maxCostUsd?: number) {
  const home = await mkdtemp(path.join(tmpdir(), 'caisson-embeddings-'))
  onTestFinished(() => rm(home, { recursive: true }))
  const env = { CAISSON_HOME: home, HOME: home }
  const place = { env, folders: resolveFolders(env) }
  const settings = new Settings(place, config)
  const read = await settings.config()
  const chosen = await settings.chooseEmbeddings(read, maxCostUsd).catch((error: Error) => error.message)
  const fact = (await inspectSections(read, place)).find(({ what }) => what === 'embeddings')
  return { chosen, fact }
}

it('the embedding model is asked of the provider that its id names, and of nobody without one [S0.14]', async () => {
  const { chosen, fact } = await look({ embeddings: { model: 'embed-small' }, providers })
  expect(chosen).toMatchObject({ name: 'local', model: 'embed-small', baseUrl: 'http://127.0.0.1:9/v1' })
  expect(fact).toEqual({ what: 'embeddings', seen: 'embed-small of local at http://127.0.0.1:9/v1' })
  expect(await look({ providers })).toEqual({ chosen: undefined, fact: undefined })
})

it('an embedding model that cannot be used stops a run before it begins, with the setting to fix [S0.14]', async () => {
  const offline = await look({ embeddings: { model: 'caisson/offline' } })
  expect(offline.chosen).toContain(
    'embeddings.model in the configuration: the offline model has no embeddings',
  )
  expect(offline.fact).toMatchObject({ stopsRuns: true })
  const blank = look({ embeddings: { model: ' ' } })
  await expect(blank).rejects.toThrow('embeddings.model: expected a model id')
  const unpriced = await look({ embeddings: { model: 'embed-small' }, providers }, 1)
  expect(unpriced.chosen).toContain('the price of embed-small is not known')
  const prices = { 'embed-*': { input: 0.02, output: 0 } }
  expect(await look({ embeddings: { model: 'embed-small' }, providers, prices }, 1)).toMatchObject({
    chosen: { model: 'embed-small' },
  })
})

it.each([
  ['anthropic', 'https://models.example.com'],
  ['google', 'https://models.example.com'],
] as const)(
  'an embedding model of a server of kind %s is refused before a run begins [S0.14]',
  async (kind, url) => {
    const other = { other: { kind, url, models: ['embed-*'] } }
    const { chosen, fact } = await look({ embeddings: { model: 'embed-small' }, providers: other })
    expect(chosen).toBe(
      `embeddings.model in the configuration: the embeddings of other, a server of kind ${kind}, cannot be used; ` +
        "use a model of a server with OpenAI's /embeddings, or remove [embeddings], and search_code uses words only",
    )
    expect(fact).toMatchObject({ problem: chosen, stopsRuns: true })
  },
)

it('an embedding model that no server is set for says so of its own setting, and how to do without [S0.14]', async () => {
  const { chosen, fact } = await look({ embeddings: { model: 'embed-small' } })
  expect(chosen).toMatch(/^embeddings\.model in the configuration: no server .* with "embed-small"/)
  expect(chosen).toContain('models = ["embed-small"]')
  expect(chosen).toContain('remove [embeddings]')
  expect(chosen).not.toContain('leave the model out')
  expect(fact).toMatchObject({ seen: 'none can be used', problem: chosen, stopsRuns: true })
  const both = {
    a: { url: 'http://127.0.0.1:9/v1', models: ['e*'] },
    b: { url: 'http://127.0.0.1:8/v1', models: ['e*'] },
  }
  const unclear = await look({ embeddings: { model: 'embed-small' }, providers: both })
  expect(unclear.chosen).toContain('model = "a/embed-small" below [embeddings]')
})
