// Environments: what they hold, what they end, and what calls without one share.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type ModelServer, startModelServer } from '#specs/testing/model-server.ts'
import {
  createLLMEnvironment,
  disposeLLMEnvironment,
  disposeLLMRuntimeCaches,
  executeTool,
  generate,
  getProviderStatus,
  type LLMRequest,
  McpRegistry,
  ProviderStore,
  SkillRegistry,
} from '../../index.ts'
import { isAlive } from '../support/processes.ts'

const messages = [{ role: 'user', content: 'hello' }] as const
const mcpServer = path.join(import.meta.dirname, '../../../test/support/mcp-server.ts')
const mcpConfig = { servers: { small: { command: process.execPath, args: [mcpServer] } } }
const call = { id: 'c', type: 'function', function: { name: 'small_pid', arguments: '{}' } } as const

let server: ModelServer
let folder: string
beforeEach(async () => {
  server = await startModelServer([reply({ text: 'hi' })])
  folder = mkdtempSync(path.join(tmpdir(), 'caisson-environment-'))
})
afterEach(async () => {
  await disposeLLMRuntimeCaches()
  await server[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true })
  for (const name of ['OPENAI_API_KEY', 'OPENAI_BASE_URL', 'OLLAMA_BASE_URL']) delete process.env[name]
})

function writeSkill(id: string): void {
  mkdirSync(path.join(folder, id), { recursive: true })
  writeFileSync(
    path.join(folder, id, 'SKILL.md'),
    `---\nname: ${id}\ndescription: About ${id}\n---\nDo ${id}.\n`,
  )
}

describe('an environment', () => {
  it('holds providers, servers, skills and defaults, for inspection too [S2.01] [S2.03]', async () => {
    writeSkill('tidy')
    await using environment = createLLMEnvironment({
      providers: { openai: { apiKey: 'sk-0123456789' } },
      skillRoots: [folder],
      mcpConfig: {
        mcpServers: {
          docs: { command: 'node', args: ['docs-server.js'], transport: 'stdio', env: { A: 'secret' } },
        },
      },
      defaults: { reasoningEffort: 'medium', toolPermission: 'ask' },
    })
    expect(environment.defaults).toEqual({ reasoningEffort: 'medium', toolPermission: 'ask' })
    expect(await environment.skillRegistry.listSkills()).toMatchObject([{ skillId: 'tidy', title: 'tidy' }])
    expect(environment.mcpRegistry.listServers()).toEqual([
      {
        name: 'docs',
        config: { command: 'node', args: ['docs-server.js'], transport: 'stdio' },
        state: 'idle',
        problem: null,
      },
    ])
    expect(getProviderStatus(environment).find(({ provider }) => provider === 'openai')).toEqual({
      provider: 'openai',
      kind: 'openai',
      configured: true,
      missing: [],
      baseUrl: 'https://api.openai.com/v1',
    })
  })

  it('reads no variable of the process [S2.02]', async () => {
    process.env.OPENAI_API_KEY = 'sk-0123456789'
    process.env.OPENAI_BASE_URL = server.baseUrl
    await using environment = createLLMEnvironment()
    const request = { environment, provider: 'openai', model: 'm', messages }
    await expect(generate(request)).rejects.toThrow('the provider openai is not configured: it lacks apiKey')
    expect(server.asked).toEqual([])
  })

  it('takes one source of each thing [S2.03]', () => {
    for (const both of [
      { providers: {}, providerStore: new ProviderStore() },
      { skillRoots: [], skillRegistry: new SkillRegistry() },
      { mcpConfig: {}, mcpRegistry: new McpRegistry() },
    ])
      expect(() => createLLMEnvironment(both)).toThrow(expect.objectContaining({ code: 'invalid_options' }))
  })

  it('ends its servers when it is disposed, and takes no calls after that [S2.01] [S2.05]', async () => {
    const environment = createLLMEnvironment({
      mcpConfig,
      providers: { ollama: { baseUrl: server.baseUrl } },
    })
    const { content } = await executeTool(environment, call)
    const pid = Number(content)
    expect(isAlive(pid)).toBe(true)
    await disposeLLMEnvironment(environment)
    await disposeLLMEnvironment(environment)
    expect(isAlive(pid)).toBe(false)
    const request = { environment, provider: 'ollama', model: 'm', messages }
    await expect(generate(request)).rejects.toThrow('has been disposed')
    await expect(executeTool(environment, call)).rejects.toThrow('has been disposed')
  })

  it('leaves a registry that the application brought alive [S2.05]', async () => {
    await using mcpRegistry = new McpRegistry(mcpConfig)
    const environment = createLLMEnvironment({ mcpRegistry })
    const pid = Number((await executeTool(environment, call)).content)
    await disposeLLMEnvironment(environment)
    await disposeLLMRuntimeCaches()
    expect(isAlive(pid)).toBe(true)
    expect(await mcpRegistry.callTool('small', 'pid', {}, AbortSignal.timeout(5_000))).toEqual({
      ok: true,
      content: String(pid),
    })
  })
})

describe('a call without an environment', () => {
  it('takes its provider from the call, else from variables, and never a key of one to an address of the other [S2.02] [S2.06]', async () => {
    process.env.OPENAI_API_KEY = 'sk-of-the-variables'
    process.env.OPENAI_BASE_URL = server.baseUrl
    const request: LLMRequest = { provider: 'openai', model: 'm', messages }
    expect((await generate(request)).content).toBe('hi')
    await using own = await startModelServer([reply({ text: 'own' })])
    const providers = { openai: { baseUrl: own.baseUrl } }
    expect((await generate({ ...request, providers })).content).toBe('own')
    expect(server.asked[0]?.headers.authorization).toBe('Bearer sk-of-the-variables')
    expect(own.asked[0]?.headers.authorization).toBeUndefined()
    expect(
      getProviderStatus()
        .filter(({ configured }) => configured)
        .map(({ provider }) => provider),
    ).toContain('openai')
  })

  it('shares servers and skills with calls of the same configuration until the caches are disposed [S2.02] [S2.05]', async () => {
    const pidOf = async (config: object) =>
      Number((await executeTool(undefined, call, { mcpConfig: config })).content)
    const first = await pidOf(mcpConfig)
    expect(await pidOf(JSON.parse(JSON.stringify(mcpConfig)))).toBe(first)
    const other = await pidOf({ servers: { small: { ...mcpConfig.servers.small, env: { A: 'b' } } } })
    expect(other).not.toBe(first)
    await disposeLLMRuntimeCaches()
    expect([isAlive(first), isAlive(other)]).toEqual([false, false])
    expect(await pidOf(mcpConfig)).not.toBe(first)
  })

  it('reads skills once for each list of roots, and anew once the caches are disposed [S2.02] [S2.05]', async () => {
    writeSkill('one')
    process.env.OLLAMA_BASE_URL = server.baseUrl
    const request: LLMRequest = { provider: 'ollama', model: 'm', messages, skillRoots: [folder] }
    await generate(request)
    writeSkill('two')
    await generate(request)
    await disposeLLMRuntimeCaches()
    await generate(request)
    const told = server.asked.map(({ text }) => [
      text.includes('- one: About one'),
      text.includes('- two: About two'),
    ])
    expect(told).toEqual([
      [true, false],
      [true, false],
      [true, true],
    ])
  })
})
