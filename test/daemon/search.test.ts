// The agent's search by meaning against the host's gateway: HTTP/2 over a port, a real HTTP server behind it.
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import type { ModelEnd } from '#specs/protocol/model-request.ts'
import { Task } from '#specs/protocol/task.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { startDaemon } from '../../agent/daemon.ts'
import { createCodeSearch } from '../../agent/search/code-search.ts'
import { createGatewayClient } from '../../agent/tool-calls/gateway-client.ts'
import { toolFailure, toolSuccess } from '../../agent/tool-calls/tool.ts'
import type { CodeSearchResult } from '../../agent/tools/search-code.ts'
import { createGateway, defaultTimeouts } from '../../host/gateway/gateway.ts'
import { openAgentLink } from '../../host/guest/agent-link.ts'
import { createHttpEmbedder } from '../../host/providers/embedder.ts'
import { offlineModel, offlineProvider } from '../../host/providers/providers.ts'
import { customProvider, startUpstream, testKey } from '../../host/test/support/gateway.ts'

const runId = `run-${'0'.repeat(19)}2`
const unused = () => Promise.reject(new Error('not asked'))

/** A search over `files`, whose vectors come from a server that knows that a kitten is a cat. */
async function openSearch(files: Readonly<Record<string, string>>, maxTokens: number) {
  const root = await temporaryFolder('search')
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true })
    writeFileSync(path.join(root, name), text)
  }
  const server = await startUpstream((response, _, body) => {
    const { input } = JSON.parse(body) as { input: string[] }
    const data = input.map((text, index) => ({ index, embedding: [/cat|kitten/.test(text) ? 1 : 0, 0.1] }))
    response.setHeader('content-type', 'application/json')
    response.end(
      JSON.stringify({ object: 'list', data, model: 'm', usage: { prompt_tokens: 10, total_tokens: 10 } }),
    )
  })
  const provider = { ...customProvider(server.url), model: 'some/embed', baseUrl: server.url }
  const exchanges: ModelEnd[] = []
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens },
    embeddings: {
      embedder: createHttpEmbedder({ provider, timeouts: defaultTimeouts, runId }),
      model: provider.model,
      price: null,
    },
    onModelEvent: (event) => {
      if (event.type === 'model-end') exchanges.push(event)
    },
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
  const [rpc, http] = [new LinkedPort(), new LinkedPort()]
  const link = openAgentLink({
    rpc: rpc.host,
    http: http.host,
    onStream: (stream, headers) => gateway.handleStream(stream, headers),
    handlers: {
      onEvent: () => undefined,
      onDelta: () => undefined,
      requestApproval: unused,
      completeTask: unused,
      onLog: () => undefined,
    },
  })
  const search = createCodeSearch({ gateway: createGatewayClient(() => daemon.link.http) })
  const tool = search.toolOver({ root })
  const daemon = startDaemon({
    openRpc: () => Promise.resolve(rpc.openGuest()),
    openHttp: () => Promise.resolve(http.openGuest()),
    root: {
      mountWorkspace: () => Promise.resolve(toolFailure('internal', 'no disk')),
      resetWorkspace: () => Promise.resolve(toolSuccess({})),
      openShell: unused,
    },
    tools: [tool],
    listWorkspace: async () => '',
    describeExits: () => ({ restarts: 0 }),
  })
  onTestFinished(async () => {
    await daemon.close()
    await link[Symbol.asyncDispose]()
    await gateway.close()
    await server[Symbol.asyncDispose]()
  })
  const signal = new AbortController().signal
  await search.extension({
    task: Task.parse({ runId, prompt: 'x', model: offlineModel, limits: {}, embeddingModel: provider.model }),
    host: { requestApproval: unused, runHook: unused, callTool: unused, note: unused },
    taken: new Set(),
    signal,
    logger: daemon.logger,
  })
  const ask = (query: string) =>
    tool.execute(tool.inputSchema.parse({ query, by: 'meaning' }), { signal, emitOutput: () => undefined })
  return { ask, exchanges, server }
}

it('a search by meaning finds what has none of its words, through the gateway with the key of the host [S0.14, G.01]', async () => {
  const { ask, exchanges, server } = await openSearch(
    { 'a.txt': 'a kitten', 'b.txt': 'a car', 'c/d.txt': 'a house' },
    1_000,
  )
  const result = await ask('cat')
  if (!result.ok) throw new Error(result.error.message)
  expect((result.value as CodeSearchResult).passages[0]).toMatchObject({ path: 'a.txt', text: 'a kitten' })
  expect(exchanges.map(({ status, model, usage }) => [status, model, usage.inputTokens])).toEqual([
    [200, 'some/embed', 10],
    [200, 'some/embed', 10],
  ])
  const sent = server.requests.map(({ body, request }) => [JSON.parse(body), request.headers.authorization])
  expect(sent).toMatchObject([
    [{ model: 'some/embed', input_type: 'query', input: ['cat'] }, `Bearer ${testKey}`],
    [
      { input_type: 'passage', input: ['a.txt\na kitten', 'b.txt\na car', 'c/d.txt\na house'] },
      `Bearer ${testKey}`,
    ],
  ])
})

it('a search by meaning ends with the budget of the run, and says so to the model [S0.14, G.05]', async () => {
  const { ask, exchanges } = await openSearch({ 'a.txt': 'a kitten' }, 11)
  expect(await ask('cat')).toMatchObject({
    ok: false,
    error: { message: expect.stringContaining('budget of 11 tokens') },
  })
  expect(exchanges.map(({ status }) => status)).toEqual([200, 429])
})
