/** The token of one MCP server, as requests of a run may carry it: to that server's address alone. */
import type { Result } from '#specs/protocol/error.ts'
import type { McpServer } from '#specs/protocol/extension.ts'
import type { Secret } from '../keys/secret.ts'
import { type SignInServer, tokenNameOf } from '../mcp/oauth-settings.ts'
import { parseTarget, type Target } from '../net/target.ts'
import { placeholderOf } from '../secrets/placeholders.ts'
import type { TokenSource } from '../secrets/token-source.ts'
import type { McpSignIns } from './mcp-sign-ins.ts'

export class ServerToken implements TokenSource {
  readonly host: string
  readonly #signIns: McpSignIns
  readonly #server: SignInServer
  readonly #target: Target

  /** @param server with an address that can be used */
  constructor(signIns: McpSignIns, server: SignInServer) {
    const target = parseTarget(server.url, 'POST')
    if (!target.ok) throw new TypeError(target.error)
    this.#signIns = signIns
    this.#server = server
    this.#target = target.value
    this.host = target.value.host
  }

  whyNot({ scheme, host, port, path }: Target): string | null {
    const own = this.#target
    const isOrigin = scheme === own.scheme && host === own.host && port === own.port
    // The old transport learns from the server where to write to.
    const isPath = this.#server.transport === 'sse' || pathOf(path) === pathOf(own.path)
    return isOrigin && isPath
      ? null
      : `the token of the MCP server ${this.#server.name} goes to that server's own address alone`
  }

  async read(): Promise<Result<Secret, string>> {
    return await (await this.#signIns.load()).token(this.#server)
  }

  async refused(
    status: number,
    challenge: string | undefined,
    token: string,
  ): Promise<'renewed' | { readonly words: string } | null> {
    return await (await this.#signIns.load()).refused(this.#server, status, challenge, token)
  }
}

/**
 * The servers of a run, with the placeholder of a token where the user is signed in, and the tokens of all that take one.
 * A server of a run has no other server's token.
 */
export async function withTokens(
  servers: Readonly<Record<string, McpServer>>,
  candidates: ReadonlyMap<string, SignInServer>,
  signIns: McpSignIns,
): Promise<{
  readonly servers: Readonly<Record<string, McpServer>>
  readonly tokens: ReadonlyMap<string, TokenSource>
}> {
  const tokens = new Map<string, TokenSource>()
  const entries = Object.entries(servers).map(async ([name, server]) => {
    const candidate = candidates.get(name)
    if (candidate === undefined || candidate.url !== server.url) return [name, server] as const
    const token = tokenNameOf(candidate)
    // Without a sign-in too: a run that began with one has the placeholder still, and this says what is missing.
    tokens.set(token, new ServerToken(signIns, candidate))
    if (!(await signIns.isReady(candidate))) return [name, server] as const
    const headers = { ...server.headers, Authorization: `Bearer ${placeholderOf(token)}` }
    return [name, { ...server, headers }] as const
  })
  return { servers: Object.fromEntries(await Promise.all(entries)), tokens }
}

function pathOf(path: string | null): string {
  return (path ?? '/').split('?', 1)[0] ?? '/'
}
