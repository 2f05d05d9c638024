/**
 * Parses the usual configuration of MCP servers: `{ "mcpServers": { NAME: … } }`, or `servers`. Reports errors by
 * field and never shows a value, which may be a secret.
 */

import * as z from 'zod'
import type { Result } from './error.ts'
import { describeIssues, plainMessagesWithoutValues } from './issue-text.ts'
import { limits } from './limits.ts'

/** Where a workspace configures its own servers. */
export const workspaceMcpFile = '.mcp.json'

/** One server; unknown fields of other programs are ignored. */
export const McpServerForm = z.object({
  transport: z.string().optional(),
  /** The most common name of the same field. */
  type: z.string().optional(),
  command: z.string().optional(),
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
export type McpServerForm = z.infer<typeof McpServerForm>

export type McpTransport = 'stdio' | 'sse' | 'streamable-http'

export type McpServerFields = Omit<McpServerForm, 'transport' | 'type' | 'enabled' | 'disabled'> & {
  readonly transport: McpTransport
}

const transports: ReadonlyMap<string, McpTransport> = new Map([
  ['stdio', 'stdio'],
  ['sse', 'sse'],
  ['http', 'streamable-http'],
  ['streamable-http', 'streamable-http'],
  ['streamableHttp', 'streamable-http'],
])

const McpServers = z.object({
  servers: z.record(z.string(), z.unknown()).optional(),
  mcpServers: z.record(z.string(), z.unknown()).optional(),
})

/** The entries of both forms, sorted by name; a duplicate name is an error. */
export function listMcpServers(value: unknown): Result<readonly (readonly [string, unknown])[], string> {
  const parsed = McpServers.safeParse(value)
  if (!parsed.success) {
    const error = 'the MCP configuration is not valid: expected an object with "servers" or "mcpServers"'
    return { ok: false, error }
  }
  const { servers = {}, mcpServers = {} } = parsed.data
  const twice = Object.keys(servers).find((name) => Object.hasOwn(mcpServers, name))
  if (twice !== undefined)
    return { ok: false, error: `the MCP server ${JSON.stringify(twice.slice(0, 100))} is configured twice` }
  const entries = Object.entries({ ...servers, ...mcpServers })
  return { ok: true, value: entries.toSorted(([a], [b]) => (a < b ? -1 : 1)) }
}

/** The fields of one server; null when it is disabled. */
export function readMcpServer(entry: unknown): Result<McpServerFields | null, string> {
  const parsed = McpServerForm.safeParse(entry, plainMessagesWithoutValues)
  if (!parsed.success) return { ok: false, error: describeIssues(parsed.error, { root: 'it' }) }
  const { transport, type, enabled, disabled, ...fields } = parsed.data
  if (enabled === false || disabled === true) return { ok: true, value: null }
  const word = transport ?? type
  if (word === undefined && fields.command === undefined && fields.url === undefined)
    return { ok: false, error: 'it has neither a command nor a url' }
  const usual = fields.command === undefined ? 'streamable-http' : 'stdio'
  const known = word === undefined ? usual : transports.get(word)
  if (known === undefined) return { ok: false, error: 'its transport is none of stdio, sse, streamable-http' }
  const problem = findProblem(known, fields)
  return problem === null
    ? { ok: true, value: { transport: known, ...fields } }
    : { ok: false, error: problem }
}

function findProblem(transport: McpTransport, { command, url }: Partial<McpServerFields>): string | null {
  if (transport === 'stdio') {
    if (command === undefined) return 'a stdio server needs a command'
    return command.trim() === '' ? 'its command is blank: expected the name or path of a program' : null
  }
  const address = url === undefined ? null : URL.parse(url)
  if (address === null || !/^https?:$/.test(address.protocol))
    return `a server of ${transport} needs an http or https url`
  if (address.username !== '' || address.password !== '')
    return 'its url holds a name or password; send them as a header: headers.Authorization'
  return null
}

/** Program and arguments, or the address without its query: a server's label for people, used by agent and host. */
export function describeMcpServer({
  command = '',
  args = [],
  url,
}: Pick<McpServerFields, 'command' | 'args' | 'url'>): string {
  const address = url === undefined ? null : URL.parse(url)
  const text = address === null ? [command, ...args].join(' ') : `${address.origin}${address.pathname}`
  return text.toWellFormed().slice(0, limits.textMaxChars).toWellFormed()
}
