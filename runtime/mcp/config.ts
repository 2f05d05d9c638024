/**
 * Which MCP servers there are, in the form that other programs use too: `{ "servers": { NAME: … } }` or
 * `{ "mcpServers": { NAME: … } }`, as an object or as JSON. A server that is `"enabled": false` is left out.
 */
import { CaissonError } from '#specs/errors.ts'
import { listMcpServers, type McpTransport, readMcpServer } from '#specs/protocol/mcp-config.ts'

export type { McpTransport } from '#specs/protocol/mcp-config.ts'

export interface McpServerConfig {
  readonly transport: McpTransport
  /** Of stdio: the program, by the shell's path rules but without a shell. */
  readonly command?: string
  readonly args?: readonly string[]
  /** Of stdio: beside a short list of harmless variables, the only ones the program gets. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Of sse and streamable-http. */
  readonly url?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Longest wait for a call; default 60 s. */
  readonly timeoutMs?: number
  /** Longest wait for the server to be ready, and for its list of tools; default 30 s. */
  readonly connectTimeoutMs?: number
  /** Whether its word that a tool only reads is believed; default false. */
  readonly trustHints?: boolean
}

/** Servers in either form; both together are one set, and a name in both is refused. */
export interface McpConfig {
  readonly servers?: Readonly<Record<string, unknown>>
  readonly mcpServers?: Readonly<Record<string, unknown>>
}

/**
 * The servers that are to be used, by name, sorted.
 * @throws {CaissonError} `invalid_options` which names the server and the field; values are not shown, for they hold secrets
 */
export function parseMcpConfig(config: McpConfig | string): ReadonlyMap<string, McpServerConfig> {
  const listed = listMcpServers(typeof config === 'string' ? parseJson(config) : config)
  if (!listed.ok) throw new CaissonError('invalid_options', listed.error)
  const servers = new Map<string, McpServerConfig>()
  for (const [name, entry] of listed.value) {
    const server = readMcpServer(entry)
    if (!server.ok) {
      const of = JSON.stringify(name.slice(0, 100))
      throw new CaissonError(
        'invalid_options',
        `the configuration of the MCP server ${of} is not valid: ${server.error}`,
      )
    }
    if (server.value !== null) servers.set(name, dropUndefined(server.value))
  }
  return servers
}

type Given<T> = { [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined> } & {
  [K in keyof T as undefined extends T[K] ? never : K]: T[K]
}

/** The same without the fields that hold nothing. */
export function dropUndefined<T extends object>(fields: T): Given<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Given<T>
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new CaissonError('invalid_options', 'the MCP configuration is not valid: it is no JSON')
  }
}
