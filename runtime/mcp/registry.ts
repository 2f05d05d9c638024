/**
 * The MCP servers of one environment: their tools in one list, their calls, their end. A server that does not answer costs its
 * tools alone; what is wrong with it stands in its state.
 */
import { isRecord } from '../llm/json-schema.ts'
import { type McpConfig, type McpServerConfig, type McpTransport, parseMcpConfig } from './config.ts'
import { McpConnection, type McpState } from './connection.ts'
import type { McpToolInfo } from './lists.ts'
import type { McpResult } from './result.ts'

export interface McpTool extends McpToolInfo {
  readonly server: string
  /** Whether its server is believed when it says that the tool only reads. */
  readonly readOnly: boolean
}

export interface McpServerInfo {
  readonly name: string
  /** Without values of variables and headers, which hold secrets. */
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

  /** Nothing is started before a tool is asked for. @throws {CaissonError} `invalid_options` for a configuration that is not valid */
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

  /** Of all servers that answer, sorted by server and name. */
  async listTools(): Promise<McpTool[]> {
    const lists = await Promise.all([...this.#connections.values()].map(toolsOf))
    return lists.flat()
  }

  /** @param input what is no object is refused as a value too */
  async callTool(server: string, tool: string, input: unknown, signal: AbortSignal): Promise<McpResult> {
    const connection = this.#connections.get(server)
    if (connection === undefined)
      return { ok: false, content: `there is no MCP server ${JSON.stringify(server)}` }
    if (!isRecord(input)) return { ok: false, content: `expected an object of arguments for ${tool}` }
    return await connection.callTool(tool, input, signal)
  }

  /** Ends all servers and what they started; calls under way fail. Can be called again. */
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
