/**
 * An agent's MCP servers for tests: the extension over real child processes, a host that answers as it is
 * instructed, calls through the registry.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect } from 'vitest'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import { McpOffer } from '#specs/protocol/extension.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { AgentWorkspace, Extension } from '../../extensions/extension.ts'
import { createMcpExtension } from '../../mcp/extension.ts'
import type { McpEnvironment } from '../../mcp/open-servers.ts'
import type { Invocation } from '../../tool-calls/call.ts'
import type { AskUser, Tool } from '../../tool-calls/tool.ts'
import { accessTool } from '../../tools/request-access.ts'
import { TestPrograms } from '../support/programs.ts'
import { makeTask, silentLogger } from '../support/run.ts'
import { callAsModel } from '../support/tools.ts'

const script = path.join(import.meta.dirname, '../../../test/support/mcp-server.ts')

/** The small server of the runtime's tests, wrong in these ways. */
export function small(...ways: string[]) {
  return { transport: 'stdio' as const, command: process.execPath, args: [script, ...ways] }
}

export interface WorldOptions {
  readonly mcpServers?: Task['mcpServers']
  readonly task?: Partial<Parameters<typeof makeTask>[0]>
  /** What the workspace's `.mcp.json` says; absent: there is none. */
  readonly workspaceFile?: string
  /** Further files of the workspace, executable. */
  readonly files?: Readonly<Record<string, string>>
  /** What the host says to a request for an address; default no. */
  readonly decideAccess?: () => ApprovalDecision
  readonly taken?: readonly string[]
  /** What the host says to an offer; default yes. */
  readonly decide?: (offer: McpOffer) => ApprovalDecision
  readonly http?: McpEnvironment['http']
}

export class McpWorld implements AsyncDisposable {
  readonly programs: TestPrograms
  readonly offers: McpOffer[] = []
  /** Addresses that the host was asked for. */
  readonly addresses: string[] = []
  readonly reasons: string[] = []
  /** What was said as a warning. */
  readonly notes: string[] = []
  readonly news: string[] = []
  readonly root: AgentWorkspace = { agentPath: 'root', root: '/mnt/workspace' }
  extension: Extension | null = null
  #folder = ''
  readonly #ending = new AbortController()

  constructor(programs: TestPrograms) {
    this.programs = programs
  }

  static async open(options: WorldOptions): Promise<McpWorld> {
    const world = new McpWorld(await TestPrograms.open())
    await world.#open(options)
    return world
  }

  /** Resolves when the servers are as far as they come in a run that is cancelled once one of them was started. */
  static async openCancelled(options: WorldOptions): Promise<McpWorld> {
    const world = new McpWorld(await TestPrograms.open())
    const opening = world.#open(options)
    await expect.poll(() => world.programs.requests.length, { timeout: 60_000 }).toBe(1)
    world.#ending.abort()
    await opening
    return world
  }

  async #open(options: WorldOptions): Promise<void> {
    const { mcpServers, task, workspaceFile, files, taken, decide, decideAccess, http } = options
    this.#folder = await mkdtemp(path.join(tmpdir(), 'caisson-mcp-'))
    for (const [name, content] of Object.entries(files ?? {})) {
      await mkdir(path.dirname(path.join(this.#folder, name)), { recursive: true })
      await writeFile(path.join(this.#folder, name), content, { mode: 0o755 })
    }
    if (workspaceFile !== undefined) await writeFile(path.join(this.#folder, '.mcp.json'), workspaceFile)
    const open = createMcpExtension({
      openProgram: this.programs.helper.openProgram,
      network: {
        prepare: () => Promise.resolve({ env: { HTTP_PROXY: 'http://127.0.0.1:3128' }, problem: null }),
      },
      http: http ?? { openStream: () => Promise.reject(new Error('no host')) },
      files: { root: this.#folder },
    })
    this.extension = await open({
      task: makeTask({ ...task, ...(mcpServers === undefined ? {} : { mcpServers }) }),
      host: {
        requestApproval: ({ tool, arguments: offer }) => {
          if (tool === accessTool) {
            const { url, reason } = JSON.parse(offer)
            this.addresses.push(url)
            this.reasons.push(reason)
            return Promise.resolve(decideAccess?.() ?? { decision: 'deny', hint: 'no user is available' })
          }
          const parsed = McpOffer.parse(JSON.parse(offer))
          this.offers.push(parsed)
          return Promise.resolve(decide?.(parsed) ?? { decision: 'allow' })
        },
        runHook: () => Promise.resolve({ decision: 'allow' }),
        callTool: () => Promise.reject(new Error('no tool of the host is called')),
        note: (level, text) => {
          this[level === 'warn' ? 'notes' : 'news'].push(text)
          return Promise.resolve()
        },
      },
      taken: new Set(taken ?? ['read_file']),
      signal: this.#ending.signal,
      logger: silentLogger,
    })
  }

  async tools(workspace = this.root, signal = this.#ending.signal): Promise<readonly Tool[]> {
    return (await this.extension?.toolsFor(workspace, signal)) ?? []
  }

  /** A call as the model makes it; approvals of tools themselves are given. */
  async call(
    tools: readonly Tool[],
    name: string,
    input: object = {},
    askUser?: AskUser,
  ): Promise<Invocation> {
    const signal = AbortSignal.timeout(60_000)
    return await callAsModel(tools, name, input, { signal, ...(askUser === undefined ? {} : { askUser }) })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ending.abort()
    await this.extension?.close()
    await this.programs[Symbol.asyncDispose]()
    await rm(this.#folder, { recursive: true, force: true })
  }
}
