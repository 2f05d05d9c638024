/**
 * A run with every tool: the whole agent over a folder, the offline model behind the host's gateway, with the web, memory
 * and an MCP server behind it.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { type Completion, Task } from '#specs/protocol/task.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { startDaemon } from '../../agent/daemon.ts'
import { createMcpExtension } from '../../agent/mcp/extension.ts'
import { createOwnTools } from '../../agent/own-tools.ts'
import { createCodeSearch } from '../../agent/search/code-search.ts'
import { openSkills } from '../../agent/skills/skill-catalog.ts'
import { folderViews } from '../../agent/test/support/agents.ts'
import { TestPrograms } from '../../agent/test/support/programs.ts'
import { helperInFolder } from '../../agent/test/support/tools.ts'
import { createGatewayClient } from '../../agent/tool-calls/gateway-client.ts'
import { toolFailure, toolSuccess } from '../../agent/tool-calls/tool.ts'
import { describeWorkspace } from '../../agent/workspace/listing.ts'
import { createGateway } from '../../host/gateway/gateway.ts'
import { serveMemory, serveWeb } from '../../host/gateway/serve-tools.ts'
import { openAgentLink } from '../../host/guest/agent-link.ts'
import { MemoryService } from '../../host/memory/memory-service.ts'
import { NoteStore } from '../../host/memory/note-store.ts'
import { offlineModel, offlineProvider } from '../../host/providers/providers.ts'
import { openWeb } from '../../host/test/web/support.ts'

const runId = `run-${'0'.repeat(19)}7`
const demoServer = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
)
const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

interface World {
  /** The address in place of `https://example.com`. */
  readonly site: string
  readonly events: readonly AgentEvent[]
  run(prompt: string): Promise<Completion>
}

/**
 * Call it from within a test.
 * @param files of the workspace, by path
 * @param withServer whether the MCP server `demo` is there
 */
export async function openToolWorld(
  files: Readonly<Record<string, string>>,
  withServer: boolean,
): Promise<World> {
  const folder = await temporaryFolder('tools')
  const [root, place, locks] = ['workspace', 'views', 'locks'].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ]
  for (const made of [root, place, locks]) mkdirSync(made)
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true })
    writeFileSync(path.join(root, name), content)
  }
  const page = '<title>Tides</title><p>The moon pulls the sea.</p>'
  const { web, ports } = await openWeb({
    servers: [
      (_, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end(page),
      { plain: (_, response) => void response.end('{"results":[]}') },
    ],
    search: ([, port]) => ({ provider: 'searxng', url: `http://127.0.0.1:${port}` }),
  })
  const memory = new MemoryService({
    store: new NoteStore({ home: folder, locks }),
    runId,
    workspace: root,
    note: () => undefined,
    redact: (text) => text,
  })
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens: 10_000_000 },
    services: {
      paths: { ...serveWeb(web), ...serveMemory(memory, () => Promise.resolve(true)) },
      egress: async (stream) => void stream.destroy(),
    },
    onModelEvent: () => undefined,
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
  const events: AgentEvent[] = []
  const completed = Promise.withResolvers<Completion>()
  const [rpc, http] = [new LinkedPort(), new LinkedPort()]
  const link = openAgentLink({
    rpc: rpc.host,
    http: http.host,
    onStream: (stream, headers) => gateway.handleStream(stream, headers),
    handlers: {
      onEvent: (_runId, { event }) => void events.push(event),
      onDelta: () => undefined,
      requestApproval: ({ question }) => {
        const answer = question === undefined ? {} : { answer: 'csv' }
        return Promise.resolve({ ok: true, value: { decision: 'allow', ...answer } })
      },
      completeTask: async (completion) => {
        completed.resolve(completion)
        return { ok: true, value: {} }
      },
      onLog: () => undefined,
    },
  })
  const client = createGatewayClient(() => daemon.link.http)
  const codeSearch = createCodeSearch({ gateway: client })
  const parts = (at: string) => ({ helper: helperInFolder(at), gateway: client, codeSearch })
  const { tools } = createOwnTools(parts(root), { root, owner })
  const programs = await TestPrograms.open()
  const mcp = createMcpExtension({
    openProgram: programs.helper.openProgram,
    network: { prepare: () => Promise.resolve({ env: {}, problem: null }) },
    http: { openStream: () => Promise.reject(new Error('no server at an address')) },
    files: { root },
  })
  const daemon = startDaemon({
    openRpc: () => Promise.resolve(rpc.openGuest()),
    openHttp: () => Promise.resolve(http.openGuest()),
    root: {
      mountWorkspace: () => Promise.resolve(toolFailure('internal', 'no disk')),
      resetWorkspace: () => Promise.resolve(toolSuccess({})),
      openShell: () => Promise.reject(new Error('no shell')),
    },
    tools,
    agents: {
      views: folderViews(root, place),
      toolsFor: (view) => createOwnTools(parts(view.path)).toolsOver({ root: view.path, owner }, {}),
      root,
      owner,
    },
    extensions: [codeSearch.extension, mcp],
    listWorkspace: (signal) => describeWorkspace(tools, signal),
    openSkills: ({ skills }) => openSkills(skills, { root }),
    describeExits: () => ({ restarts: 0 }),
  })
  onTestFinished(async () => {
    await daemon.close()
    await link[Symbol.asyncDispose]()
    await gateway.close()
    await programs[Symbol.asyncDispose]()
  })
  const demo = { transport: 'stdio' as const, command: process.execPath, args: [demoServer, 'stdio'] }
  return {
    site: `https://site.test:${ports[0]}`,
    events,
    run: async (prompt) => {
      const servers = withServer ? { mcpServers: { demo } } : {}
      const task = Task.parse({ runId, prompt, model: offlineModel, limits: {}, memory: [], ...servers })
      const submitted = await link.submitTask(task)
      if (!submitted.ok) throw new Error(JSON.stringify(submitted))
      return await completed.promise
    },
  }
}
