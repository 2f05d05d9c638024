import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../../cli/main.ts'
import { CapabilityCache } from '../../../providers/capability-cache.ts'
import { Settings } from '../../../settings.ts'
import { prepareFolders, resolveFolders } from '../../../state/folders.ts'
import { testKeyring } from '../../support/keyring.ts'

const key = 'test-key-0123456789'
const nemotron = 'nvidia/nemotron-3-super-120b-a12b'

function list(...data: unknown[]) {
  return { headers: { 'content-type': 'application/json' }, body: JSON.stringify({ object: 'list', data }) }
}

/** A machine of the test's own, with this configuration. */
async function place(config = '', variables: Record<string, string> = {}) {
  const home = await temporaryFolder('models')
  const keyring = await testKeyring()
  const env = { HOME: home, PATH: keyring.PATH, TEST_KEY: key, ...variables }
  const folders = resolveFolders(env)
  await prepareFolders(folders)
  await mkdir(folders.config, { recursive: true, mode: 0o700 })
  await writeFile(path.join(folders.config, 'config.toml'), config, { mode: 0o600 })
  const cli = async (...argv: string[]) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const code = await runCli(argv, { stdin: new PassThrough(), stdout, stderr, env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  const settings = new Settings({ folders, env })
  const choose = async () => await settings.chooseProvider(await settings.config())
  return { folders, cli, choose }
}

const local = (url: string) => `[providers.local]\nurl = "${url}"\nkey = { env = "TEST_KEY" }\n`

describe('caisson models', () => {
  it('lists what each server offers, with what is known of each model [S1.07]', async () => {
    await using server = await startModelServer([
      list({ id: 'small', max_model_len: 32_768 }, { id: nemotron }, { id: 'meta/llama-3.1-8b' }, { no: 1 }),
    ])
    const { cli } = await place(`${local(server.baseUrl)}[prices."small"]\ninput = 1\noutput = 2\n`)
    const { code, stdout } = await cli('models', '--json')
    expect(code).toBe(0)
    const rows = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(rows).toMatchObject([
      {
        provider: 'local',
        model: 'small',
        isDefault: false,
        contextTokens: 32_768,
        price: { input: 1, output: 2 },
        known: null,
      },
      { model: nemotron, isDefault: true, contextTokens: 262_144, hasOwnEffort: true },
      { model: 'meta/llama-3.1-8b', parallelCalls: false, known: { asOf: expect.any(String) } },
    ])
    expect(server.asked[0]).toMatchObject({
      method: 'GET',
      path: '/v1/models',
      headers: { authorization: `Bearer ${key}` },
    })
    const shown = await cli('models', 'local')
    expect(shown.stdout).toContain(`* ${nemotron}`)
    expect(shown.stdout).toContain('262,144 tokens of context')
    expect(shown.stdout).toMatch(/ {2}small +32,768 tokens of context · \$1 in, \$2 out per million tokens\n/)
    expect(shown.stdout).toContain('* the model of a run that names none\n')
    expect(await cli('models', 'other')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no provider is called "other"; use local'),
    })
  })

  it('marks the one model that a run uses which names none, as config check does [S1.07] [S0.09]', async () => {
    const json = { headers: { 'content-type': 'application/json' } }
    await using server = await startModelServer(() => ({ ...json, ...list({ id: 'qwen' }) }))
    await using other = await startModelServer(() => ({ ...json, ...list({ id: 'qwen' }, { id: nemotron }) }))
    const { cli } = await place(
      `model = "qwen"\n${local(server.baseUrl)}models = ["qwen"]\n[providers.other]\nurl = "${other.baseUrl}"\nmodels = ["nvidia/*"]\n`,
    )
    expect((await cli('models')).stdout.split('\n').filter((line) => !line.includes('http'))).toEqual([
      '* qwen',
      '  qwen',
      expect.stringMatching(/^ {2}nvidia\/nemotron-3/),
      '* the model of a run that names none',
      '',
    ])
    const named = await cli('models', '-c', 'model="nvidia/other"')
    expect(named.stdout).toContain('A run that names no model uses nvidia/other of other.\n')
    expect(named.stdout).not.toContain('*')
    const missing = await cli('models', '-c', 'model="meta"')
    expect(missing.stdout).toContain('A run that names no model cannot start: ')
  })

  it('marks no model where the offline model answers, or where the run has to name one [S1.07] [S0.09]', async () => {
    await using server = await startModelServer(() => list({ id: 'a' }, { id: 'b' }))
    const keyAlone = await place('', { OPENAI_API_KEY: key, OPENAI_BASE_URL: server.baseUrl })
    const { stdout } = await keyAlone.cli('models')
    expect(stdout).toContain(
      '  a\n  b\nA run that names no model uses the offline model. Name one (--model), ',
    )
    const checked = await keyAlone.cli('config', 'check')
    expect(checked.stdout).toContain('caisson/offline, built in')
    expect(checked.stdout).toContain('Name a model (--model openai/MODEL, or the variable OPENAI_MODEL)')
    expect(checked.stdout).not.toContain('No model key is set')
    const { cli } = await place(local(server.baseUrl))
    expect((await cli('models')).stdout).toContain('Of local, a run has to name its model (--model, ')
  })

  it('reads the lists of Anthropic and Google [S1.07] [S3.06]', async () => {
    const json = { 'content-type': 'application/json' }
    await using server = await startModelServer(({ path: asked }) =>
      asked.startsWith('/v1beta')
        ? {
            headers: json,
            body: JSON.stringify({
              models: [
                {
                  name: 'models/gemini-3.8-flash',
                  inputTokenLimit: 1_048_576,
                  supportedGenerationMethods: ['generateContent'],
                },
                { name: 'models/embed', supportedGenerationMethods: ['embedContent'] },
              ],
            }),
          }
        : { headers: json, body: JSON.stringify({ data: [{ type: 'model', id: 'claude-sonnet-5-5' }] }) },
    )
    const url = server.baseUrl
    const { cli } = await place('', {
      ANTHROPIC_API_KEY: key,
      ANTHROPIC_BASE_URL: url,
      GEMINI_API_KEY: key,
      GEMINI_BASE_URL: url,
    })
    const { stdout } = await cli('models', '--json')
    const rows = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(rows).toMatchObject([
      { provider: 'anthropic', model: 'claude-sonnet-5-5', isDefault: false },
      { provider: 'google', model: 'gemini-3.8-flash', contextTokens: 1_048_576, isDefault: false },
    ])
    expect(server.asked.map(({ headers }) => headers['x-api-key'] ?? headers['x-goog-api-key'])).toEqual([
      key,
      key,
    ])
  })

  it('says why a server has no list, without the key, and ends with 4 where none has [S1.07] [G.01]', async () => {
    const json = { 'content-type': 'application/json' }
    await using server = await startModelServer([
      { status: 401, headers: json, body: `{"error":{"message":"wrong key ${key}"}}` },
      { body: 'x'.repeat(9 * 1024 * 1024), headers: json },
      { body: '[]', headers: json },
    ])
    const { cli } = await place(local(server.baseUrl))
    for (const words of ['HTTP 401', 'longer than', 'no list of models']) {
      const { code, stdout, stderr } = await cli('models')
      expect([code, stdout]).toEqual([4, expect.stringContaining(words)])
      expect(stdout + stderr).not.toContain(key)
    }
  })
})

describe('the model of a run that names none', () => {
  it("is NVIDIA's default where its list cannot be read [S1.07]", async () => {
    const { cli } = await place('', { NVIDIA_API_KEY: key, HTTPS_PROXY: 'http://127.0.0.1:9' })
    const { code, stdout } = await cli('models')
    expect([code, stdout]).toEqual([
      4,
      expect.stringContaining(`A run that names no model uses ${nemotron} of nvidia.`),
    ])
  })

  it('is the first preferred one that the server lists, but for what it said is gone [S1.07] [S0.09]', async () => {
    const second = 'nvidia/nemotron-3.5-lightning-30b-a3b'
    await using server = await startModelServer([list({ id: 'x' }, { id: second }, { id: nemotron })])
    const { choose, folders } = await place(local(server.baseUrl))
    expect(await choose()).toMatchObject({ model: nemotron, modelFrom: expect.stringContaining('preferred') })
    await new CapabilityCache(folders).learn(server.baseUrl, nemotron, { isGone: true })
    expect(await choose()).toMatchObject({ model: second })
  })

  it('is the only one of its server, else somebody has to choose [S1.07] [S0.09]', async () => {
    await using server = await startModelServer([list({ id: 'qwen' }), list({ id: 'a' }, { id: 'b' })])
    const { choose, cli } = await place(local(server.baseUrl))
    expect(await choose()).toMatchObject({ name: 'local', model: 'qwen' })
    await expect(choose()).rejects.toMatchObject({
      code: 'provider_unavailable',
      message: expect.stringMatching(/No model is named, and local lists 2 models: a, b\. Name one/),
    })
    const { stdout } = await cli('config', 'check')
    expect(stdout).toMatch(/model +chosen from the list of local at http.*, as caisson models shows/)
    expect(server.asked).toHaveLength(2)
  })

  it('is that of a file of --env-file, for models, config check and doctor [S0.09]', async () => {
    await using server = await startModelServer(() => list({ id: 'qwen', meta: { n_ctx: 8_192 } }))
    const { cli, folders } = await place()
    const file = path.join(folders.config, 'variables')
    const lines = `OPENAI_API_KEY=${key}\nOPENAI_BASE_URL=${server.baseUrl}\nOPENAI_MODEL=qwen\n`
    await writeFile(file, lines, { mode: 0o600 })
    expect((await cli('models', '--env-file', file)).stdout).toContain('* qwen  8,192 tokens of context\n')
    for (const command of [['config', 'check'], ['doctor']])
      expect((await cli(...command, '--env-file', file)).stdout).toContain(
        'qwen (the variable OPENAI_MODEL) of openai',
      )
  })

  it('is said by config check, with who named it [S0.09]', async () => {
    const { cli } = await place('', { ANTHROPIC_API_KEY: key, ANTHROPIC_MODEL: 'claude-x' })
    const { stdout } = await cli('config', 'check')
    expect(stdout).toContain(
      'claude-x (the variable ANTHROPIC_MODEL) of anthropic at https://api.anthropic.com, key from the variable ANTHROPIC_API_KEY',
    )
  })
})
