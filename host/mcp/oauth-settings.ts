/**
 * How the host signs in to an MCP server by OAuth: `oauth` of `[mcpServers.NAME]`, and which servers it may sign in to.
 * The agent learns nothing of it.
 */
import { createHash } from 'node:crypto'
import * as z from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import { McpServerName } from '#specs/protocol/extension.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import { type McpServerFields, readMcpServer } from '#specs/protocol/mcp-config.ts'
import { KeySource } from '../keys/key-source.ts'

const visible = /^[\x21-\x7e]+$/

export const McpOAuth = z
  .strictObject({
    /** Absent: `code`, a browser that comes back to this machine. */
    flow: z.enum(['code', 'device', 'client-credentials']).exactOptional(),
    /** A client that is registered with the authorization server. Absent: `clientMetadataUrl`, else it is registered now. */
    clientId: z.string().regex(visible).max(2_000).exactOptional(),
    clientSecret: KeySource.exactOptional(),
    /** A private key (JWK, in one line) that signs for the client, for `client-credentials`. */
    privateKey: KeySource.exactOptional(),
    /** Of `privateKey`. Absent: `ES256`. */
    algorithm: z.enum(['ES256', 'ES384', 'RS256', 'PS256', 'EdDSA']).exactOptional(),
    /** Address of a document that describes this client; it names `http://127.0.0.1:PORT/callback` of `callbackPort`. */
    clientMetadataUrl: z
      .string()
      .regex(/^https:\/\/[^/]+\/./)
      .max(2_000)
      .exactOptional(),
    /** Absent: what the server asks for, else what it lists. */
    scopes: z.array(z.string().regex(visible).max(200)).max(64).exactOptional(),
    /** Absent: a free port. */
    callbackPort: z.number().int().min(1_024).max(65_535).exactOptional(),
  })
  .refine(
    ({ flow, clientId }) => flow !== 'client-credentials' || clientId !== undefined,
    'client-credentials needs clientId',
  )
  .refine(
    ({ flow, clientSecret, privateKey }) =>
      flow !== 'client-credentials' || (clientSecret === undefined) !== (privateKey === undefined),
    'client-credentials needs one of clientSecret and privateKey',
  )
export type McpOAuth = z.infer<typeof McpOAuth>

/** A server that the host may sign in to. */
export interface SignInServer {
  readonly name: string
  readonly url: string
  readonly transport: Exclude<McpServerFields['transport'], 'stdio'>
  readonly oauth: McpOAuth
}

/** By name and address: a server that moves is another one. 32 hexadecimal digits. */
export function signInIdOf({ name, url }: Pick<SignInServer, 'name' | 'url'>): string {
  return createHash('sha256').update(`${name}\n${url}`).digest('hex').slice(0, 32)
}

/** Name of the token's placeholder in a request. */
export function tokenNameOf(server: Pick<SignInServer, 'name' | 'url'>): string {
  return `MCP_TOKEN_${signInIdOf(server).slice(0, 16).toUpperCase()}`
}

/**
 * A source of a key runs a program or reads a file of this machine. Servers of elsewhere, such as of a file of a workspace or
 * of an imported run, have none. The error shows no value.
 */
export function checkOwnOAuth(form: unknown): Result<void, string> {
  const oauth = readOAuth(form)
  const source = (['clientSecret', 'privateKey'] as const).find(
    (name) => oauth.ok && oauth.value?.[name] !== undefined,
  )
  return source === undefined
    ? { ok: true, value: undefined }
    : {
        ok: false,
        error: `oauth.${source}: only a server of the configuration file names where a key is; move the server there`,
      }
}

/** Whether any server may have `oauth`, and whether it is valid. The error shows no value. */
export function readOAuth(form: unknown): Result<McpOAuth | undefined, string> {
  if (typeof form !== 'object' || form === null || !('oauth' in form) || form.oauth === undefined)
    return { ok: true, value: undefined }
  const parsed = McpOAuth.safeParse(form.oauth, plainMessagesWithoutValues)
  if (!parsed.success) return { ok: false, error: describeIssues(parsed.error, { root: 'oauth' }) }
  const read = readMcpServer(form)
  if (read.ok && read.value?.url === undefined && read.value !== null)
    return { ok: false, error: 'oauth: a program has none; only a server with a url does' }
  if (
    read.ok &&
    Object.keys(read.value?.headers ?? {}).some((name) => name.toLowerCase() === 'authorization')
  )
    return { ok: false, error: 'oauth: headers.Authorization is given too; remove one of both' }
  return { ok: true, value: parsed.data }
}

/**
 * The servers with an https address and without an Authorization header of their own. Those of `own` go before those of
 * the configuration. Invalid ones are left out: another function names them.
 */
export function signInServersOf(
  configured: Readonly<Record<string, unknown>>,
  own: Readonly<Record<string, unknown>> = {},
): ReadonlyMap<string, SignInServer> {
  const servers = new Map<string, SignInServer>()
  for (const [name, form] of Object.entries({ ...configured, ...own })) {
    const read = readMcpServer(form)
    const oauth = readOAuth(form)
    if (!read.ok || read.value === null || !oauth.ok || !McpServerName.safeParse(name).success) continue
    if (Object.hasOwn(own, name) && !checkOwnOAuth(form).ok) continue
    const { url = '', transport, headers = {} } = read.value
    const hasOwn = Object.keys(headers).some((header) => header.toLowerCase() === 'authorization')
    if (transport === 'stdio' || hasOwn || URL.parse(url)?.protocol !== 'https:') continue
    servers.set(name, { name, url, transport, oauth: oauth.value ?? {} })
  }
  return servers
}
