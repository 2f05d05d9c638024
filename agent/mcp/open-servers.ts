/**
 * The MCP servers of one run: started in parallel, with their tools for the root agent and for each sub-agent.
 * Servers that are programs run again over each sub-agent's view. Their number is bounded; all end with the run.
 */
import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { dropUndefined } from '#runtime/mcp/config.ts'
import { McpConnection } from '#runtime/mcp/connection.ts'
import { openHttpTransport } from '#runtime/mcp/http.ts'
import { withDigest } from '#runtime/providers/names.ts'
import { errorMessage } from '#specs/errors.ts'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { accessReasonMaxChars } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type McpServer, mcpOfferTool } from '#specs/protocol/extension.ts'
import type { AgentWorkspace, Extension, ExtensionParts } from '../extensions/extension.ts'
import type { ExecRequest } from '../link/root-helper.ts'
import type { StreamOpener } from '../proxy/egress-stream.ts'
import type { ProgramNetwork } from '../proxy/proxy.ts'
import type { Tool } from '../tool-calls/tool.ts'
import { defaultProgramLimits, programEnvironment } from '../tools/code/code.ts'
import { accessTool } from '../tools/request-access.ts'
import { defaultRoot, type FileToolsOptions } from '../workspace/file-access.ts'
import { createEgressFetch } from './egress-fetch.ts'
import type { OfferSource } from './offer.ts'
import { prepareLaunch } from './package-runner.ts'
import { type Connected, createResourceTools, createServerTool, resourceToolNames } from './resource-tools.ts'
import { RunServer } from './run-server.ts'
import { VmTransport } from './vm-transport.ts'

/** What servers need from the guest. */
export interface McpEnvironment {
  /** Starts a program in the sandbox, which ends with the connection. */
  openProgram(request: Omit<ExecRequest, 'stdin'>): Promise<Duplex>
  /** Network access for programs. */
  readonly network: Pick<ProgramNetwork, 'prepare'>
  /** The path to the host, for servers with an address. */
  readonly http: StreamOpener
  /** The workspace, which may name its own servers. */
  readonly files?: FileToolsOptions
}

export interface ChosenServer {
  readonly name: string
  readonly source: OfferSource
  readonly config: McpServer
}

/** Maximum number of server programs of all agents together: the VM runs 32 programs at once. */
const programsMaxCount = 20
/** The root helper's own limit. */
const wallMs = 24 * 3_600_000
/** How long the run waits until all servers are ready or have failed. In an emulated VM a program loads slowly. */
const readyMs = { program: 60_000, address: 30_000, max: 5 * 60_000 } as const

/** @param chosen not empty */
export async function openServers(
  chosen: readonly ChosenServer[],
  parts: ExtensionParts,
  environment: McpEnvironment,
): Promise<Extension> {
  const opened = new OpenedServers(chosen, parts, environment)
  // A run that ends meanwhile does not wait for servers.
  const end = (): void => void opened.close()
  parts.signal.addEventListener('abort', end, { once: true })
  try {
    await opened.open()
  } finally {
    parts.signal.removeEventListener('abort', end)
  }
  return opened
}

class OpenedServers implements Extension {
  readonly #parts: ExtensionParts
  readonly #environment: McpEnvironment
  readonly #fetch: ReturnType<typeof createEgressFetch>
  readonly #servers: readonly RunServer[]
  /** The root agent's connections, by server; all agents share those with an address. */
  readonly #connections = new Map<RunServer, McpConnection>()
  readonly #instances = new Set<McpConnection>()
  /** Servers as they are started: a package runner may be replaced by the workspace's program. */
  readonly #launched = new Map<RunServer, McpServer>()
  /** Questions about addresses of registries, by address: several servers may need the same. */
  readonly #access = new Map<
    string,
    { readonly reasons: string[]; readonly answer: Promise<ApprovalDecision> }
  >()
  /** Servers that may still need an address; the questions wait for them, so that each names all that it is for. */
  readonly #undecided: Set<RunServer>
  readonly #decided = Promise.withResolvers<void>()
  /** Tool names for the model, by server and tool. */
  readonly #names = new Map<string, string>()
  readonly #asksAll: boolean
  #programs = 0

  constructor(chosen: readonly ChosenServer[], parts: ExtensionParts, environment: McpEnvironment) {
    this.#parts = parts
    this.#environment = environment
    this.#fetch = createEgressFetch(environment.http)
    this.#asksAll = parts.task.askTools.includes('*')
    this.#servers = chosen.map(
      (server) =>
        new RunServer({
          ...server,
          ask: (offer, agentPath, signal) =>
            this.#ask(mcpOfferTool, toCanonicalJson(offer), agentPath, signal),
        }),
    )
    this.#undecided = new Set(this.#servers)
  }

  #noteDecided(server: RunServer): void {
    this.#undecided.delete(server)
    if (this.#undecided.size === 0) this.#decided.resolve()
  }

  /** Starts the servers. Never rejects: a server that does not start is noted and not offered. */
  async open(): Promise<void> {
    const { signal, taken, host } = this.#parts
    const names = new ServerToolNames([...taken, ...resourceToolNames])
    const opening = this.#servers.map(async (server) => {
      const result = await this.#start(server).catch((error: unknown) => ({
        ok: false as const,
        error: errorMessage(error),
      }))
      if (!result.ok) await this.#drop(server)
      const words = result.ok ? result.value : result.error
      if (words !== null && !signal.aborted) await host.note('warn', `MCP server ${server.name}: ${words}`)
    })
    await Promise.all(opening)
    for (const server of this.#servers)
      for (const { info } of server.definitions)
        this.#names.set(keyOf(server, info.name), names.claim(server.name, info.name))
  }

  toolsFor(workspace: AgentWorkspace, signal: AbortSignal): Promise<readonly Tool[]> {
    const connected = [...this.#connections].map(([server, connection]): Connected => {
      const isShared = !server.isProgram || workspace.view === undefined
      const own = isShared
        ? connection
        : this.#connect(server.name, this.#launched.get(server) ?? server.config, workspace)
      if (!isShared) signal.addEventListener('abort', () => void this.#close(own), { once: true })
      return { server, connection: own }
    })
    const { agentPath } = workspace
    const tools = connected.flatMap(({ server, connection }) =>
      server.definitions.flatMap((definition) => {
        const name = this.#names.get(keyOf(server, definition.info.name))
        if (name === undefined) return []
        const caller = { connection, agentPath }
        return [createServerTool({ server, name, definition, caller, asksAll: this.#asksAll })]
      }),
    )
    const all = [...tools, ...createResourceTools(connected, this.#asksAll)]
    return Promise.resolve(all.toSorted((a, b) => (a.name < b.name ? -1 : 1)))
  }

  async close(): Promise<void> {
    await Promise.all([...this.#instances].map((connection) => this.#close(connection)))
  }

  async #start(server: RunServer): Promise<Result<string | null, string>> {
    const { signal } = this.#parts
    const { files } = this.#environment
    const askAccess = (url: string, reason: string) => {
      const answer = this.#askAccess(url, reason, signal)
      this.#noteDecided(server)
      return answer
    }
    const launch = await prepareLaunch(server.config, { files, askAccess }).finally(() =>
      this.#noteDecided(server),
    )
    if (!launch.ok || signal.aborted) return launch.ok ? { ok: false, error: 'the run has ended' } : launch
    const { config, isFetched } = launch.value
    const connectTimeoutMs = isFetched ? (config.connectTimeoutMs ?? readyMs.max) : config.connectTimeoutMs
    const started = dropUndefined({ ...config, connectTimeoutMs })
    this.#launched.set(server, started)
    const connection = this.#connect(server.name, started, rootWorkspace)
    this.#connections.set(server, connection)
    return await server.open({ connection, agentPath: 'root', signal })
  }

  async #drop(server: RunServer): Promise<void> {
    const connection = this.#connections.get(server)
    this.#connections.delete(server)
    if (connection !== undefined) await this.#close(connection)
  }

  async #close(connection: McpConnection): Promise<void> {
    await connection.close()
    this.#instances.delete(connection)
  }

  #connect(name: string, config: McpServer, workspace: AgentWorkspace): McpConnection {
    const usual = config.transport === 'stdio' ? readyMs.program : readyMs.address
    const connectTimeoutMs = Math.min(config.connectTimeoutMs ?? usual, readyMs.max)
    const connection = new McpConnection(name, dropUndefined({ ...config, connectTimeoutMs }), {
      roots: [{ uri: `file://${defaultRoot}`, name: 'workspace' }],
      hasPerson: true,
      openTransport: (server) =>
        server.transport === 'stdio'
          ? this.#startProgram(config, workspace)
          : openHttpTransport(server, this.#fetchFor(name, server)),
    })
    this.#instances.add(connection)
    return connection
  }

  /** A server that demands a sign-in is named with the command for it, which only the user can give. */
  #fetchFor(
    name: string,
    { headers = {} }: Pick<McpServer, 'headers'>,
  ): ReturnType<typeof createEgressFetch> {
    const hasKey = Object.keys(headers).some((header) => header.toLowerCase() === 'authorization')
    return async (address, init) => {
      const response = await this.#fetch(address, init)
      if (response.status !== 401 || hasKey) return response
      await response.body?.cancel()
      throw new Error(`it needs a sign-in; the user signs in on the host: caisson mcp login ${name}`)
    }
  }

  #startProgram(
    { command = '', args = [], env = {}, cwd }: McpServer,
    { view }: AgentWorkspace,
  ): VmTransport {
    if (this.#programs >= programsMaxCount)
      throw new Error(`as many MCP servers run in this VM already as may (${programsMaxCount})`)
    this.#programs += 1
    const { openProgram, network } = this.#environment
    const open = async () => {
      const { env: proxy } = await network.prepare()
      return await openProgram({
        argv: [command, ...args],
        ...(view === undefined ? {} : { view }),
        ...(cwd === undefined ? {} : { cwd: relativeTo(defaultRoot, cwd) }),
        env: { ...programEnvironment, ...proxy, ...env },
        limits: { ...defaultProgramLimits(), wallMs },
      })
    }
    return new VmTransport(open, () => {
      this.#programs -= 1
    })
  }

  #askAccess(url: string, reason: string, signal: AbortSignal): Promise<ApprovalDecision> {
    const known = this.#access.get(url)
    if (known !== undefined) {
      known.reasons.push(reason)
      return known.answer
    }
    const reasons = [reason]
    const answer = this.#decided.promise.then(() => {
      const given = toCanonicalJson({ url, reason: reasons.join('; ').slice(0, accessReasonMaxChars) })
      return this.#ask(accessTool, given, rootWorkspace.agentPath, signal)
    })
    this.#access.set(url, { reasons, answer })
    return answer
  }

  async #ask(tool: string, given: string, agentPath: string, signal: AbortSignal): Promise<ApprovalDecision> {
    const approvalId = `mcp-${randomBytes(8).toString('hex')}`
    return await this.#parts.host.requestApproval(
      {
        approvalId,
        agentPath,
        stepId: 'mcp',
        callId: approvalId,
        tool,
        arguments: given,
        preview: '',
      },
      signal,
    )
  }
}

const rootWorkspace: AgentWorkspace = { agentPath: 'root', root: defaultRoot }

function keyOf(server: RunServer, tool: string): string {
  return `${server.name}\n${tool}`
}

/** A folder of the workspace in the root helper's form. */
function relativeTo(root: string, folder: string): string {
  if (folder === root) return ''
  return folder.startsWith(`${root}/`) ? folder.slice(root.length + 1) : folder
}

const toolNameMaxChars = 64

/**
 * Names server tools for the model: `server_tool`, in the alphabet that every provider accepts, never a taken name.
 * Deterministic for the same set of other names.
 */
export class ServerToolNames {
  readonly #taken: Set<string>

  /** @param taken names of other tools; compared without case and with `-` equal to `_`, since models confuse them */
  constructor(taken: Iterable<string>) {
    this.#taken = new Set([...taken].map(fold))
  }

  claim(server: string, tool: string): string {
    const plain = `${server}_${tool}`.replaceAll(/[^A-Za-z0-9_]/g, '_').replace(/^(?=\d)/, '_')
    const fits = plain.length <= toolNameMaxChars && !this.#taken.has(fold(plain))
    const name = fits ? plain : withDigest(plain, `${server}\n${tool}`)
    this.#taken.add(fold(name))
    return name
  }
}

function fold(name: string): string {
  return name.replaceAll('-', '_').toLowerCase()
}
