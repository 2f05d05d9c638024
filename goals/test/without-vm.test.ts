// Goals without HTTP and without a VM: the offline model, a scripted one, tools of the application and of the runtime.
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { calls, createScriptedModel, text } from 'caisson/testing'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { defineHostTool, Host, HostToolError } from '../../host/index.ts'
import { Agent, type AgentOptions } from '../index.ts'

/** Folders of the test's own; the offline model answers. */
async function place(): Promise<{ readonly env: Record<string, string>; readonly home: string }> {
  const home = await temporaryFolder('agent-home')
  return { home, env: { HOME: home, CAISSON_HOME: home, CAISSON_CACHE: path.join(home, 'cache') } }
}

const entry = { step: 1, error: null, timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) }

describe('an agent without a VM', () => {
  it('calculates, searches and keeps notes on the offline model [S4.01 S4.04]', async () => {
    const { env } = await place()
    const notes: string[] = []
    const onNotes = (said: readonly string[]) => void notes.push(...said)
    await using agent = new Agent({ vm: false, env, onNotes })
    expect(await agent.run('Calculate the result of (100 + 50) * 2', { tools: ['math'] })).toEqual({
      status: 'success',
      output: expect.stringContaining('Calculation result: 300 (from (100 + 50) * 2)'),
      trace: [
        {
          ...entry,
          tool: 'math',
          input: { expression: '(100 + 50) * 2' },
          output: { result: 300, expression: '(100 + 50) * 2' },
        },
      ],
    })
    const searched = await agent.run('Search for Python FastAPI best practices', {
      context: 'Focus on production deployment',
      tools: ['web_search'],
    })
    expect(searched).toMatchObject({
      status: 'success',
      output: expect.stringMatching(/Python FastAPI best practices[\s\S]*no search was made/),
      trace: [{ tool: 'web_search', input: { query: 'Python FastAPI best practices' }, error: null }],
    })
    const noted = await agent.run('Add note to PROP-2025-001: Legal review completed')
    expect(noted).toMatchObject({ status: 'success', trace: [{ tool: 'governance_note', error: null }] })
    const kept = await new Host({ env }).notes.ofProposal('PROP-2025-001')
    expect(kept.map((note) => note.text)).toEqual(['Legal review completed'])
    expect(notes).toEqual([expect.stringContaining('the offline model answers')])
  })

  it('is one call, whose tools are names, a folder or definitions [S4.01 S4.05]', async () => {
    const { env, home } = await place()
    const options = { vm: false, env, onNotes: () => undefined }
    const named = await Agent.run('Calculate 6 * 7', { ...options, tools: ['math'] })
    expect(named).toMatchObject({ status: 'success', output: expect.stringContaining('42') })
    const folder = path.join(home, 'tools')
    await mkdir(folder)
    const tool = `export default { description: 'Looks an order up', inputSchema: { type: 'object' }, readOnly: true, execute: () => 'sent' }`
    await writeFile(path.join(folder, 'find_order.js'), tool)
    await writeFile(path.join(folder, 'lost.js'), "import 'no-such-package-of-mine'\n")
    const script = () =>
      createScriptedModel({ replies: [calls({ name: 'find_order', arguments: {} }), text('It is sent.')] })
    const said: string[] = []
    const model = script()
    const folderOptions: AgentOptions = { ...options, onNotes: (notes) => void said.push(...notes) }
    const found = await Agent.run('Where is it?', {
      ...folderOptions,
      provider: model.provider,
      tools: folder,
    })
    expect(found).toMatchObject({
      status: 'success',
      output: 'It is sent.',
      trace: [{ tool: 'find_order', output: { text: 'sent' } }],
    })
    expect(said).toEqual([
      expect.stringMatching(
        /lost\.js was left out: it needs no-such-package-of-mine, which is not installed/,
      ),
    ])
    await using agent = new Agent({ ...folderOptions, tools: folder })
    expect(await agent.run('Find it', { tools: ['lost'] })).toEqual({
      status: 'error',
      output: expect.stringContaining('it needs no-such-package-of-mine'),
      trace: [],
    })
    const tools = {
      find_order: { description: 'x', inputSchema: z.object({}), readOnly: true, execute: () => 'sent' },
    }
    const given = await Agent.run('Where is it?', { ...options, provider: script().provider, tools })
    expect(given).toMatchObject({ status: 'success', trace: [{ tool: 'find_order', error: null }] })
  })

  it('asks about calls that may change something, and denies them without an answer [S4.01 S1.02]', async () => {
    const { env } = await place()
    const done: string[] = []
    const close = defineHostTool({
      description: 'Closes an order',
      inputSchema: z.object({ order: z.string() }),
      preview: ({ order }) => `close ${order}`,
      execute: ({ order }) => {
        done.push(order)
        if (order === 'B') throw new HostToolError('It is closed already.', { code: 'already_exists' })
        if (order === 'C') throw new Error('password=1234')
        return { closed: order }
      },
    })
    const asked: unknown[] = []
    const note = { action: 'add', proposalId: 'PROP-1', text: 'invented' }
    const model = createScriptedModel({
      replies: [
        calls({ name: 'close_order', arguments: { order: 'A' } }),
        calls(
          { name: 'close_order', arguments: { order: 'B' } },
          { name: 'close_order', arguments: { order: 'C' } },
        ),
        calls({ name: 'governance_note', arguments: note }),
        text('done'),
      ],
    })
    const result = await Agent.run('Close the orders', {
      ...{
        vm: false,
        env,
        provider: model.provider,
        tools: { close_order: close },
        onNotes: () => undefined,
      },
      onApproval: (call) => {
        asked.push(call)
        return call.tool === 'close_order' ? 'allow' : 'deny'
      },
    })
    expect(result.status).toBe('success')
    expect(result.trace.map(({ output, error }) => output ?? error)).toEqual([
      { text: '{"closed":"A"}' },
      'already_exists: It is closed already.',
      'internal: The tool failed.',
      expect.stringMatching(/^denied: /),
    ])
    expect(asked[0]).toEqual({ tool: 'close_order', arguments: '{"order":"A"}', preview: 'close A' })
    expect(await new Host({ env }).notes.list()).toEqual([])
    const silent = createScriptedModel({
      replies: [calls({ name: 'close_order', arguments: { order: 'D' } }), text('not done')],
    })
    const denied = await Agent.run('Close D', {
      ...{ vm: false, env, provider: silent.provider, tools: { close_order: close } },
    })
    expect(denied.trace).toMatchObject([{ error: expect.stringContaining('was not allowed'), output: null }])
    expect(done).toEqual(['A', 'B', 'C'])
  })

  it('works in a directory with the tools of the runtime, those that change it only when named [S4.01]', async () => {
    const { env } = await place()
    const workspace = await temporaryFolder('agent-workspace')
    await writeFile(path.join(workspace, 'a.txt'), 'hello')
    const model = createScriptedModel({
      replies: [
        calls({ name: 'read_file', arguments: { filePath: 'a.txt' } }),
        text('read'),
        calls({ name: 'write_file', arguments: { filePath: 'b.txt', content: 'made' } }),
        text('written'),
      ],
    })
    const options = {
      vm: false,
      env,
      provider: model.provider,
      workspace,
      onApproval: () => 'allow' as const,
    }
    await using agent = new Agent(options)
    const read = await agent.run('Read it')
    expect(read.trace).toMatchObject([{ tool: 'read_file', error: null }])
    const first = model.requests[0]?.tools.map(({ name }) => name)
    expect(first).toEqual(['governance_note', 'grep', 'list_files', 'math', 'read_file', 'web_search'])
    expect(await agent.run('Write it', { tools: ['write_file'] })).toMatchObject({ status: 'success' })
    expect(await readFile(path.join(workspace, 'b.txt'), 'utf8')).toBe('made')
    await using homeless = new Agent({ vm: false, env, onNotes: () => undefined })
    expect(await homeless.run('Read it', { tools: ['read_file'] })).toMatchObject({
      status: 'error',
      output: expect.stringContaining('needs a workspace'),
    })
  })

  it('asks the configured server, and says what it refused [S4.01]', async () => {
    const { env, home } = await place()
    await using model = createScriptedModel({
      replies: [calls({ name: 'math', arguments: { expression: '1 / 0' } }), text('STEP FAILED: no value')],
    })
    const server = {
      CAISSON_LLM_URL: await model.listen(),
      CAISSON_LLM_KEY: 'sk-test-key-1',
      CAISSON_MODEL: 'm',
    }
    const agent = new Agent({ vm: false, env: { ...env, ...server } })
    expect(await agent.run('Divide')).toEqual({
      status: 'error',
      output: 'no value',
      trace: [
        expect.objectContaining({
          tool: 'math',
          output: null,
          error: expect.stringMatching(/^invalid_input: /),
        }),
      ],
    })
    // The script is over: the server refuses.
    const refused = await agent.run('Again')
    expect(refused).toMatchObject({ status: 'error', trace: [] })
    expect(JSON.stringify(refused)).not.toContain('sk-test-key-1')
    await agent.close()
    await expect(agent.run('x')).rejects.toMatchObject({ code: 'not_possible_now' })
    expect(await readdir(home)).toEqual([])
  })

  it('ends with its signal, its time or its agent, and gives the trace until then [S4.01 S4.07]', async () => {
    const { env } = await place()
    const started = Promise.withResolvers<void>()
    const wait = {
      description: 'Waits',
      inputSchema: { type: 'object' },
      readOnly: true,
      execute: () => {
        started.resolve()
        return new Promise(() => undefined)
      },
    }
    const begin = (more: object = {}) => {
      const model = createScriptedModel({ replies: [calls({ name: 'wait', arguments: {} }), text('x')] })
      const agent = new Agent({ vm: false, env, provider: model.provider, tools: { wait } })
      return { agent, result: agent.run('Wait', more) }
    }
    const controller = new AbortController()
    const aborted = begin({ signal: controller.signal })
    await started.promise
    controller.abort(new Error('the user went away'))
    const trace = [
      expect.objectContaining({ tool: 'wait', output: null, error: expect.stringContaining('') }),
    ]
    expect(await aborted.result).toEqual({ status: 'error', output: 'the user went away', trace })
    const late = begin({ timeoutMs: 300 })
    expect(await late.result).toMatchObject({ status: 'error', output: 'the time limit of 300 ms is over' })
    const closed = begin()
    await closed.agent.close()
    expect(await closed.result).toMatchObject({ status: 'error', output: 'the agent was closed' })
  })

  it.each([
    [{ maxRequests: 2 }, /budget of 2 model requests is used up/, 2],
    [{ maxTokens: 2_000 }, /budget of 2000 tokens does not allow another request; 2400 are used/, 2],
    [{ maxCostUsd: 0.001 }, /budget of .*0.001.* does not allow another request; .*0.0012/, 2],
  ])(
    'ends at the limits %j of the configuration, with the trace until then [S4.01 G.05]',
    async (limits, words, requests) => {
      const { env } = await place()
      const used = { inputTokens: 1_000, outputTokens: 200 }
      const model = createScriptedModel({
        replies: [1, 2, 3, 4].map((n) => ({
          ...calls({ name: 'math', arguments: { expression: `${n} + 1` } }),
          usage: used,
        })),
      })
      const config = { limits, prices: { 'my-model': { input: 0.4, output: 1 } } }
      const options = { vm: false, env, provider: model.provider, model: 'my-model', config }
      const result = await Agent.run('Count', options)
      expect(result).toMatchObject({ status: 'error', output: expect.stringMatching(words) })
      expect([result.trace.length, model.requests.length]).toEqual([requests, requests])
    },
  )

  it('does not begin with a limit of cost where the price of the model is not known [S4.01 G.05]', async () => {
    const { env } = await place()
    const model = createScriptedModel({ replies: [text('x')] })
    const config = { limits: { maxCostUsd: 1 } }
    const options = { vm: false, env, provider: model.provider, model: 'mine', config }
    expect(await Agent.run('Count', options)).toEqual({
      status: 'error',
      output: expect.stringContaining('the price of mine is not known'),
      trace: [],
    })
    expect(model.requests).toHaveLength(0)
  })

  it('counts the cost of a known model by the table of prices, where the configuration has none [S4.01 G.05]', async () => {
    const { env } = await place()
    const usage = { prompt_tokens: 400, completion_tokens: 100 }
    await using server = await startModelServer((_asked, n) =>
      reply({ calls: [{ name: 'math', arguments: { expression: `${n} + 1` } }], usage }),
    )
    const providers = { mine: { kind: 'openai' as const, url: server.baseUrl, models: ['gpt-5.6'] } }
    const config = { providers, limits: { maxCostUsd: 0.002 } }
    const result = await Agent.run('Count', { vm: false, env, model: 'gpt-5.6', config })
    // $2 and $10 a million, and $2.50 for input that goes into the cache: $0.002 a request.
    expect(result).toMatchObject({
      status: 'error',
      output: expect.stringMatching(
        /budget of \$0\.0020 does not allow another request; \$0\.0020 are spent/,
      ),
    })
    expect(server.asked).toHaveLength(1)
  })

  it('stops a model that calls in circles, or never answers [S4.07]', async () => {
    const { env } = await place()
    const model = createScriptedModel({
      rules: [{ when: {}, reply: calls({ name: 'math', arguments: { expression: '1' } }) }],
    })
    const options = { vm: false, env, provider: model.provider }
    const circled = await Agent.run('Count', options)
    expect(circled).toMatchObject({
      status: 'error',
      output: expect.stringContaining('repeated the same calls: math'),
    })
    const silent = createScriptedModel({ rules: [{ when: {}, reply: text('') }] })
    expect(await Agent.run('Count', { ...options, provider: silent.provider })).toMatchObject({
      status: 'error',
    })
  })
})
