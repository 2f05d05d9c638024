/**
 * One sign-in to an MCP server: asks the server who may give tokens for it, becomes a client there, lets the person agree,
 * and gets the tokens. Stores nothing.
 */
import { randomBytes } from 'node:crypto'
import {
  computeScopeUnion,
  type FetchLike,
  type OAuthTokens,
  type StoredOAuthClientInformation,
  startAuthorization,
} from '@modelcontextprotocol/client'
import type { SignInServer } from '../mcp/oauth-settings.ts'
import { type DeviceCode, signInByDevice } from './device.ts'
import {
  type AuthorizationServer,
  type Challenge,
  discoverAuthorizationServer,
  isEndpoint,
  isScope,
  readChallenge,
  refused,
} from './discovery.ts'
import { checkIssuer, exchangeCode, type GrantParts, requestForClient } from './grants.ts'
import { openCallback } from './loopback.ts'
import { type ClientSecrets, findClient, signerOf } from './oauth-client.ts'

/** What the person at the terminal sees and does. */
export interface SignInPerson {
  /** An address to open in a browser. It has no secret, but state and challenge of this sign-in. */
  openUrl(url: string, issuer: string): void | Promise<void>
  showCode(shown: DeviceCode, issuer: string): void
}

export interface SignInRequest {
  readonly server: SignInServer
  readonly secrets: ClientSecrets
  readonly person: SignInPerson
  readonly fetch: FetchLike
  readonly signal: AbortSignal
  /** Of an earlier sign-in, with what the server asked for since. */
  readonly earlierScope?: string | undefined
}

export interface SignedIn {
  readonly authorization: AuthorizationServer
  readonly client: StoredOAuthClientInformation
  readonly tokens: OAuthTokens
  readonly scope: string | undefined
}

/** A person's time to sign in. */
const personMs = 10 * 60_000

/** @throws {CaissonError} `not_possible_now`, and the library's errors, which `explainFailure` puts into words */
export async function signIn(request: SignInRequest): Promise<SignedIn> {
  const { server, fetch, earlierScope } = request
  const challenge = await askServer(server.url, fetch)
  const authorization = await discoverAuthorizationServer(server.url, challenge, fetch)
  const scope = chooseScope(server, authorization, challenge, earlierScope)
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(personMs)])
  const flows = { code: byCode, device: byDevice, 'client-credentials': byClient }
  const { tokens, client } = await flows[server.oauth.flow ?? 'code'](
    { ...request, signal },
    authorization,
    scope,
  )
  if (!/^bearer$/i.test(tokens.token_type))
    throw refused('the authorization server gave no bearer token, and this client sends no other')
  return { authorization, client, tokens, scope: isScope(tokens.scope) ? tokens.scope : scope }
}

/** The 401 of a request without a token. A server that sends none may have its metadata in the usual place. */
async function askServer(url: string, fetch: FetchLike): Promise<Challenge> {
  const clientInfo = { name: 'caisson', version: '1' }
  const hello = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo }
  // Some servers let anybody begin, and guard only what follows.
  for (const [method, params] of [
    ['initialize', hello],
    ['tools/list', {}],
  ] as const) {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
      redirect: 'manual',
    })
    await response.body?.cancel()
    if (response.status === 401) return readChallenge(response.headers.get('www-authenticate'), url)
  }
  return {}
}

function chooseScope(
  { oauth }: SignInServer,
  { scopes, metadata }: AuthorizationServer,
  challenge: Challenge,
  earlierScope: string | undefined,
): string | undefined {
  const asked =
    oauth.scopes?.join(' ') ?? challenge.scope ?? (earlierScope === undefined ? scopes : undefined)
  const scope = computeScopeUnion(asked, earlierScope)
  const isOffline = metadata?.scopes_supported?.includes('offline_access') === true
  const isPersons = oauth.flow !== 'client-credentials'
  return scope !== undefined && isOffline && isPersons ? computeScopeUnion(scope, 'offline_access') : scope
}

type Flow = (
  request: SignInRequest,
  authorization: AuthorizationServer,
  scope: string | undefined,
) => Promise<{ readonly tokens: OAuthTokens; readonly client: StoredOAuthClientInformation }>

const byCode: Flow = async ({ server, secrets, person, fetch, signal }, authorization, scope) => {
  await using callback = await openCallback(server.oauth.callbackPort)
  const { redirectUrl } = callback
  const known = { redirectUrl, fetch, ...(scope === undefined ? {} : { scope }) }
  const client = await findClient(authorization, server.oauth, secrets, known)
  const { url, metadata, resource, issuer } = authorization
  const state = randomBytes(32).toString('base64url')
  const started = await startAuthorization(url, {
    clientInformation: client,
    redirectUrl,
    state,
    ...(metadata === undefined ? {} : { metadata }),
    ...(scope === undefined ? {} : { scope }),
    ...(resource === undefined ? {} : { resource: resource as unknown as URL }),
  })
  if (!isEndpoint(started.authorizationUrl.href))
    throw refused('the page to sign in is neither https nor on this machine')
  const waiting = callback.wait(state, signal)
  await person.openUrl(started.authorizationUrl.href, issuer)
  const params = await waiting
  const iss = params.get('iss') ?? undefined
  // Before anything else is believed, also an error.
  checkIssuer(authorization, iss)
  const code = params.get('code')
  if (code === null || params.has('error')) {
    const error = params.get('error') ?? ''
    throw refused(`the sign-in was not agreed to (${/^[a-z_]{1,64}$/.test(error) ? error : 'no code'})`)
  }
  const { codeVerifier } = started
  const answer = { code, ...(iss === undefined ? {} : { iss }) }
  const parts: GrantParts = { server: authorization, client, fetch }
  return { client, tokens: await exchangeCode(parts, answer, { codeVerifier, redirectUrl }) }
}

const byDevice: Flow = async ({ server, secrets, person, fetch, signal }, authorization, scope) => {
  const known = { fetch, ...(scope === undefined ? {} : { scope }) }
  const client = await findClient(authorization, server.oauth, secrets, known)
  const onCode = (shown: DeviceCode): void => person.showCode(shown, authorization.issuer)
  const parts: GrantParts = { server: authorization, client, fetch }
  return { client, tokens: await signInByDevice(parts, { scope, signal, onCode }) }
}

const byClient: Flow = async ({ server, secrets, fetch }, authorization, scope) => {
  const client = await findClient(authorization, server.oauth, secrets, { fetch })
  const signer = signerOf(server.oauth, secrets)
  return { client, tokens: await requestForClient({ server: authorization, client, signer, fetch }, scope) }
}
