/**
 * Which authorization server an MCP server names, and what both say of themselves (RFC 9728, RFC 8414, OpenID Connect
 * Discovery). Refuses metadata of another resource, of another issuer, and endpoints that are not https.
 */
import {
  type AuthorizationServerMetadata,
  checkResourceAllowed,
  discoverOAuthServerInfo,
  extractWWWAuthenticateParams,
  type FetchLike,
  resourceUrlFromServerUrl,
} from '@modelcontextprotocol/client'
import { CaissonError } from '#specs/errors.ts'

/** What a server says in a 401 or 403. */
export interface Challenge {
  readonly error?: string
  readonly scope?: string
  readonly resourceMetadataUrl?: string
}

export interface AuthorizationServer {
  /** As the MCP server names it; without metadata its origin. */
  readonly url: string
  readonly issuer: string
  /** Absent: a server of 2025-03-26, with the usual paths. */
  readonly metadata?: AuthorizationServerMetadata
  /** Sent as `resource` (RFC 8707), so that the token is for this server alone. Absent: the server has no metadata. */
  readonly resource?: string
  /** What the MCP server lists. */
  readonly scopes?: string
}

const scopeMaxChars = 2_000
const scopePattern = /^[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/

/** @param header `WWW-Authenticate` @param serverUrl whose origin has to have the metadata */
export function readChallenge(header: string | null | undefined, serverUrl: string): Challenge {
  if (header === null || header === undefined || header.length > 8_192) return {}
  const response = new Response(null, { headers: { 'www-authenticate': header } })
  const { error, scope, resourceMetadataUrl } = extractWWWAuthenticateParams(response)
  const isOwn = resourceMetadataUrl?.origin === new URL(serverUrl).origin
  return {
    ...(error !== undefined && /^[a-z_]{1,64}$/.test(error) ? { error } : {}),
    ...(isScope(scope) ? { scope } : {}),
    ...(isOwn ? { resourceMetadataUrl: resourceMetadataUrl.href } : {}),
  }
}

/** @throws {CaissonError} `not_possible_now`, and the library's errors */
export async function discoverAuthorizationServer(
  serverUrl: string,
  { resourceMetadataUrl }: Challenge,
  fetch: FetchLike,
): Promise<AuthorizationServer> {
  const found = await discoverOAuthServerInfo(serverUrl, {
    fetchFn: fetch,
    ...(resourceMetadataUrl === undefined ? {} : { resourceMetadataUrl: new URL(resourceMetadataUrl) }),
  })
  const { authorizationServerUrl: url, authorizationServerMetadata: metadata, resourceMetadata } = found
  if (resourceMetadata !== undefined && !isFor(serverUrl, resourceMetadata.resource))
    throw refused(
      `the server's metadata is for another resource; expected that of ${new URL(serverUrl).origin}`,
    )
  if (metadata !== undefined) checkMetadata(metadata)
  const scopes = resourceMetadata?.scopes_supported?.join(' ')
  return {
    url,
    issuer: metadata?.issuer ?? url,
    ...(metadata === undefined ? {} : { metadata }),
    ...(resourceMetadata === undefined ? {} : { resource: resourceMetadata.resource }),
    ...(isScope(scopes) ? { scopes } : {}),
  }
}

function isFor(serverUrl: string, configuredResource: string): boolean {
  const requestedResource = resourceUrlFromServerUrl(serverUrl)
  return URL.canParse(configuredResource) && checkResourceAllowed({ requestedResource, configuredResource })
}

function checkMetadata(metadata: AuthorizationServerMetadata): void {
  for (const field of ['authorization_endpoint', 'token_endpoint', 'registration_endpoint'] as const) {
    const url = metadata[field]
    if (url !== undefined && !isEndpoint(url))
      throw refused(`${field} of the authorization server is neither https nor on this machine`)
  }
  if (metadata.code_challenge_methods_supported?.includes('S256') === false)
    throw refused('the authorization server does not do PKCE with S256')
}

/** https, or http of this machine, which a rule of the egress policy has to allow. */
export function isEndpoint(text: string): boolean {
  const url = URL.parse(text)
  if (url === null || url.username !== '' || url.password !== '') return false
  return (
    url.protocol === 'https:' ||
    (url.protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname))
  )
}

export function isScope(text: string | undefined): text is string {
  return text !== undefined && text.length <= scopeMaxChars && scopePattern.test(text)
}

export function refused(message: string): CaissonError {
  return new CaissonError('not_possible_now', message)
}
