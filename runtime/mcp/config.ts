/**
 * Which MCP servers there are, in the form that other programs use too: `{ "servers": { NAME: … } }` or
 * `{ "mcpServers": { NAME: … } }`, as an object or as JSON. A server that is `"enabled": false` is left out.
 */
import * as z from 'zod'

export type McpTransport = 'stdio' | 'sse' | 'streamable-http'

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

const Server = z.object({
  transport: z.string().optional(),
  type: z.string().optional(),
  command: z.string().min(1).optional(),
  args: z.array(z.string()).optional(),
  env: z.record(z.string(), z.string()).optional(),
  cwd: z.string().optional(),
  url: z.string().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  timeoutMs: z.number().int().positive().optional(),
  connectTimeoutMs: z.number().int().positive().optional(),
  trustHints: z.boolean().optional(),
  enabled: z.boolean().optional(),
  disabled: z.boolean().optional(),
})

const transports: Readonly<Record<string, McpTransport>> = {
  stdio: 'stdio',
  sse: 'sse',
  http: 'streamable-http',
  'streamable-http': 'streamable-http',
  streamableHttp: 'streamable-http',
}

/**
 * The servers that are to be used, by name, sorted.
 * @throws TypeError which names the server and the field; values are not shown, for they hold secrets
 */
export function parseMcpConfig(config: McpConfig | string): ReadonlyMap<string, McpServerConfig> {
  const value = typeof config === 'string' ? parseJson(config) : config
  const parsed = z
    .object({
      servers: z.record(z.string(), z.unknown()).optional(),
      mcpServers: z.record(z.string(), z.unknown()).optional(),
    })
    .safeParse(value)
  if (!parsed.success)
    throw new TypeError(
      'the MCP configuration is not valid: expected an object with "servers" or "mcpServers"',
    )
  const entries = [
    ...Object.entries(parsed.data.servers ?? {}),
    ...Object.entries(parsed.data.mcpServers ?? {}),
  ]
  const servers = new Map<string, McpServerConfig>()
  for (const [name, entry] of entries.toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    if (servers.has(name)) throw new TypeError(`the MCP server ${JSON.stringify(name)} is configured twice`)
    const server = parseServer(name, entry)
    if (server !== null) servers.set(name, server)
  }
  return servers
}

function parseServer(name: string, entry: unknown): McpServerConfig | null {
  const fail = (problem: string) =>
    new TypeError(
      `the configuration of the MCP server ${JSON.stringify(name.slice(0, 100))} is not valid: ${problem}`,
    )
  const parsed = Server.safeParse(entry)
  if (!parsed.success) {
    const places = parsed.error.issues.map((issue) => `${issue.path.join('.') || 'it'}: ${issue.code}`)
    throw fail(places.join('; '))
  }
  const { transport, type, enabled, disabled, ...fields } = parsed.data
  if (enabled === false || disabled === true) return null
  const word = transport ?? type
  const known =
    word === undefined ? (fields.command === undefined ? 'streamable-http' : 'stdio') : transports[word]
  if (known === undefined) throw fail('its transport is none of stdio, sse, streamable-http')
  if (known === 'stdio' && fields.command === undefined) throw fail('a stdio server needs a command')
  if (known !== 'stdio' && !isHttpUrl(fields.url))
    throw fail(`a server of ${known} needs an http or https url`)
  if (known !== 'stdio' && hasCredentials(fields.url))
    throw fail('its url holds a name or password; send them as a header: headers.Authorization')
  return { transport: known, ...dropUndefined(fields) }
}

function isHttpUrl(text: string | undefined): boolean {
  const url = text === undefined ? null : URL.parse(text)
  return url !== null && (url.protocol === 'http:' || url.protocol === 'https:')
}

function hasCredentials(text: string | undefined): boolean {
  const url = text === undefined ? null : URL.parse(text)
  return url !== null && (url.username !== '' || url.password !== '')
}

type Given<T> = { [K in keyof T]?: Exclude<T[K], undefined> }

function dropUndefined<T extends object>(fields: T): Given<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Given<T>
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new TypeError('the MCP configuration is not valid: it is no JSON')
  }
}
