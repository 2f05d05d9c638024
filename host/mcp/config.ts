/**
 * The user's MCP servers: `[mcpServers.NAME]` of the configuration, a file of `--mcp`, or an application's own. Refuses
 * a header with a plain-text secret: store it as a secret and use a placeholder.
 */

import * as z from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import { McpServer, McpServerName } from '#specs/protocol/extension.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import { listMcpServers, McpServerForm, readMcpServer } from '#specs/protocol/mcp-config.ts'
import { parseJson } from '../files/json.ts'
import { findPlaceholders } from '../secrets/placeholders.ts'
import { checkOwnOAuth, McpOAuth, readOAuth } from './oauth-settings.ts'

const mcpServersMaxCount = 32

const token = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$/
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/
const secretHeaders: ReadonlySet<string> = new Set([
  'authorization',
  'proxy-authorization',
  'cookie',
  'x-api-key',
  'api-key',
  'x-auth-token',
])
const mountPoint = '/mnt/workspace'

/** One server, as the configuration has it; a setting that there is not is refused. */
const McpServerConfig = z
  .strictObject({ ...McpServerForm.shape, oauth: McpOAuth.exactOptional() })
  .superRefine((form, context) => {
    const read = toMcpServer(form)
    if (!read.ok) context.addIssue({ code: 'custom', message: read.error })
  })

export const McpServersConfig = z
  .record(McpServerName, McpServerConfig)
  .refine(
    (servers) => Object.keys(servers).length <= mcpServersMaxCount,
    `expected at most ${mcpServersMaxCount} servers`,
  )
  .default({})
export type McpServersConfig = z.infer<typeof McpServersConfig>

/** What goes to the agent, of the servers that are switched on. Those of `own` go before those of the configuration. */
export function mcpServersOf(
  configured: Readonly<Record<string, unknown>>,
  own: Readonly<Record<string, unknown>> = {},
): Result<Readonly<Record<string, McpServer>>, string> {
  const servers: Record<string, McpServer> = {}
  for (const [name, form] of Object.entries({ ...configured, ...own })) {
    const problem = (why: string) => ({ ok: false as const, error: `the MCP server ${shown(name)}: ${why}` })
    if (!McpServerName.safeParse(name).success) return problem('a name is 1 to 64 of A-Z a-z 0-9 _ . -')
    const read = toMcpServer(form)
    if (!read.ok) return problem(read.error)
    const allowed = Object.hasOwn(own, name) ? checkOwnOAuth(form) : undefined
    if (allowed?.ok === false) return problem(allowed.error)
    if (read.value !== null) servers[name] = read.value
  }
  if (Object.keys(servers).length > mcpServersMaxCount)
    return { ok: false, error: `at most ${mcpServersMaxCount} MCP servers can be configured` }
  return { ok: true, value: servers }
}

/** The servers of a file in the usual form, `{ "mcpServers": { NAME: … } }`. @param file named in errors */
export function readMcpFile(text: string, file: string): Result<Readonly<Record<string, unknown>>, string> {
  const value = parseJson(text)
  if (value === undefined) return { ok: false, error: `${file}: not JSON; correct the file` }
  const listed = listMcpServers(value)
  if (!listed.ok) return { ok: false, error: `${file}: ${listed.error}` }
  const servers = Object.fromEntries(listed.value)
  const read = mcpServersOf({}, servers)
  return read.ok ? { ok: true, value: servers } : { ok: false, error: `${file}: ${read.error}` }
}

/** Null where it is switched off. No error shows a value. */
function toMcpServer(form: unknown): Result<McpServer | null, string> {
  const read = readMcpServer(form)
  if (!read.ok || read.value === null) return read.ok ? { ok: true, value: null } : read
  const oauth = readOAuth(form)
  if (!oauth.ok) return oauth
  const { cwd, ...fields } = read.value
  const given = Object.entries({ ...fields, cwd: cwd === undefined ? undefined : relative(cwd) })
  const parsed = McpServer.safeParse(
    Object.fromEntries(given.filter(([, value]) => value !== undefined)),
    plainMessagesWithoutValues,
  )
  if (!parsed.success) return { ok: false, error: describeIssues(parsed.error, { root: 'it' }) }
  const problem = findProblem(parsed.data)
  return problem === null ? { ok: true, value: parsed.data } : { ok: false, error: problem }
}

function findProblem({ cwd = '', headers = {} }: McpServer): string | null {
  if (cwd.startsWith('/') || cwd.split('/').includes('..'))
    return `cwd: expected a folder of the workspace, such as tools, or ${mountPoint}/tools: the server runs in the VM`
  for (const [name, value] of Object.entries(headers)) {
    if (!token.test(name) || !fieldValue.test(value)) return 'headers: contains an invalid header'
    if (secretHeaders.has(name.toLowerCase()) && findPlaceholders(value).length === 0)
      return `headers.${name}: secrets are not allowed here; define one ([secrets.NAME] with its source and hosts) and write {{NAME}} instead`
  }
  return null
}

function relative(cwd: string): string {
  if (cwd === mountPoint) return ''
  return cwd.startsWith(`${mountPoint}/`) ? cwd.slice(mountPoint.length + 1) : cwd
}

function shown(name: string): string {
  return JSON.stringify(name.slice(0, 64))
}
