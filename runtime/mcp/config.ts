/**
 * Parses the configuration of MCP servers in the format of other programs: `{ "servers": { NAME: … } }` or `{
 * "mcpServers": { NAME: … } }`, as an object or JSON. Omits servers with `"enabled": false`. Redacts a server's secrets.
 */
import { CaissonError } from '#specs/errors.ts'
import { listMcpServers, type McpTransport, readMcpServer } from '#specs/protocol/mcp-config.ts'

export type { McpTransport } from '#specs/protocol/mcp-config.ts'

export interface McpServerConfig {
  readonly transport: McpTransport
  /** For stdio: the program, looked up like in a shell but run without one. */
  readonly command?: string
  readonly args?: readonly string[]
  /** For stdio: the program gets only these variables and a short list of harmless ones. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** For sse and streamable-http. */
  readonly url?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Maximum duration of a call; default 60 s. */
  readonly timeoutMs?: number
  /** Maximum time until the server is ready, and for its list of tools; default 30 s. */
  readonly connectTimeoutMs?: number
  /** Whether its claim that a tool only reads is trusted; default false. */
  readonly trustHints?: boolean
}

/** Servers in either form; both are merged, and a duplicate name is refused. */
export interface McpConfig {
  readonly servers?: Readonly<Record<string, unknown>>
  readonly mcpServers?: Readonly<Record<string, unknown>>
}

/**
 * The enabled servers, sorted by name.
 * @throws {CaissonError} `invalid_options` naming server and field; values may be secrets and are not shown
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

/** Removes undefined fields. */
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

/** Shorter values are not redacted: too much other text would match. */
const secretMinChars = 8
const shown = '[secret]'
/** Placeholder for a secret that is inserted elsewhere; names the secret. */
const placeholder = /^\{\{[A-Z][A-Z0-9_]*\}\}$/

/**
 * Redacts the values of variables, of headers and of the address's query in a text, plain and as encoded in JSON and
 * addresses.
 */
export function hideSecrets({ env = {}, headers = {}, url }: McpServerConfig): (text: string) => string {
  const address = url === undefined ? null : URL.parse(url)
  const words = [
    ...Object.values(env),
    ...Object.values(headers).flatMap((value) => [value, ...value.split(/\s+/)]),
    ...(address?.searchParams.values() ?? []),
  ]
  const forms = words
    .filter((word) => word.length >= secretMinChars && !placeholder.test(word))
    .flatMap((word) => [word, JSON.stringify(word).slice(1, -1), encodeURIComponent(word.toWellFormed())])
  // Longest first: one value may be a part of another.
  const all = [...new Set(forms)].toSorted((a, b) => b.length - a.length)
  return (text) => all.reduce((rest, form) => rest.replaceAll(form, shown), text)
}
