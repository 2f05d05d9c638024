/**
 * The MCP servers of one environment: their tools in one list, their calls, their shutdown. A failing server loses
 * only its own tools; its state holds the error.
 */
import { isRecord } from '../llm/json-schema.ts'
import { type McpConfig, type McpServerConfig, type McpTransport, parseMcpConfig } from './config.ts'
import { McpConnection, type McpState } from './connection.ts'
import type { McpToolInfo } from './lists.ts'
import type { McpResult } from './result.ts'

export interface McpTool extends McpToolInfo {
  readonly server: string
  /** Whether the server's claim that the tool only reads is trusted. */
  readonly readOnly: boolean
}

export interface McpServerInfo {
  readonly name: string
  /** Without values of variables and headers, which are secrets. */
  readonly config: {
    readonly transport: McpTransport
    readonly command?: string
    readonly args?: readonly string[]
    /** Without query. */
    readonly url?: string
  }
  readonly state: McpState
  /** Why it is not connected; null when nothing failed. */
  readonly problem: string | null
}

export class McpRegistry implements AsyncDisposable {
  readonly #connections = new Map<string, McpConnection>()

  /**
   * Starts no server before a tool is requested. @throws {CaissonError} `invalid_options` for an invalid
   * configuration
   */
  constructor(config: McpConfig | string = {}) {
    for (const [name, server] of parseMcpConfig(config))
      this.#connections.set(name, new McpConnection(name, server))
  }

  /** Sorted by name. */
  listServers(): McpServerInfo[] {
    return [...this.#connections.values()].map(({ name, config, state, problem }) => ({
      name,
      config: describeConfig(config),
      state,
      problem,
    }))
  }

  /** The tools of all responding servers, sorted by server and name. */
  async listTools(): Promise<McpTool[]> {
    const lists = await Promise.all([...this.#connections.values()].map(toolsOf))
    return lists.flat()
  }

  /** @param input a value other than an object yields a failure */
  async callTool(server: string, tool: string, input: unknown, signal: AbortSignal): Promise<McpResult> {
    const connection = this.#connections.get(server)
    if (connection === undefined)
      return { ok: false, content: `there is no MCP server ${JSON.stringify(server)}` }
    if (!isRecord(input)) return { ok: false, content: `expected an object of arguments for ${tool}` }
    return await connection.callTool(tool, input, signal)
  }

  /** Stops all servers and everything they started; active calls fail. Idempotent. */
  async shutdown(): Promise<void> {
    await Promise.all([...this.#connections.values()].map((connection) => connection.close()))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.shutdown()
  }
}

async function toolsOf(connection: McpConnection): Promise<McpTool[]> {
  const tools = await connection.listTools()
  if (!tools.ok) return []
  const { name: server, config } = connection
  return tools.value.map((tool) => ({
    ...tool,
    server,
    readOnly: config.trustHints === true && tool.readOnlyHint,
  }))
}

function describeConfig({ transport, command, args, url }: McpServerConfig): McpServerInfo['config'] {
  const address = url === undefined ? null : URL.parse(url)
  return {
    transport,
    ...(command === undefined ? {} : { command }),
    ...(args === undefined ? {} : { args }),
    ...(address === null ? {} : { url: `${address.origin}${address.pathname}` }),
  }
}
