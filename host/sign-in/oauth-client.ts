/**
 * Who this client is to an authorization server: the client of the settings, one described by a document at an address,
 * or one that is registered for this sign-in (RFC 7591).
 */
import {
  createPrivateKeyJwtAuth,
  type FetchLike,
  registerClient,
  type StoredOAuthClientInformation,
} from '@modelcontextprotocol/client'
import { parseJson } from '../files/json.ts'
import type { Secret } from '../keys/secret.ts'
import type { McpOAuth } from '../mcp/oauth-settings.ts'
import { type AuthorizationServer, refused } from './discovery.ts'

/** Secrets of the settings, as they are when they are needed. */
export interface ClientSecrets {
  readonly clientSecret?: Secret
  readonly privateKey?: Secret
}

const grantTypes = {
  code: ['authorization_code', 'refresh_token'],
  device: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
  'client-credentials': ['client_credentials'],
} as const

/** @param redirectUrl for `code` @throws {CaissonError} `not_possible_now` when there is no way to be a client */
export async function findClient(
  server: AuthorizationServer,
  oauth: McpOAuth,
  secrets: ClientSecrets,
  {
    redirectUrl,
    scope,
    fetch,
  }: { readonly redirectUrl?: string; readonly scope?: string; readonly fetch: FetchLike },
): Promise<StoredOAuthClientInformation> {
  const { metadata, url, issuer } = server
  const { flow = 'code', clientId, clientMetadataUrl } = oauth
  if (clientId !== undefined) {
    const secret = secrets.clientSecret?.reveal()
    return { client_id: clientId, issuer, ...(secret === undefined ? {} : { client_secret: secret }) }
  }
  if (clientMetadataUrl !== undefined && metadata?.client_id_metadata_document_supported === true)
    return { client_id: clientMetadataUrl, issuer }
  if (metadata !== undefined && metadata.registration_endpoint === undefined)
    throw refused(
      'the authorization server registers no clients by itself; register one there and set oauth.clientId',
    )
  const methods = metadata?.token_endpoint_auth_methods_supported
  const registered = await registerClient(url, {
    ...(metadata === undefined ? {} : { metadata }),
    clientMetadata: {
      client_name: 'Caisson',
      redirect_uris: redirectUrl === undefined ? [] : [redirectUrl],
      grant_types: [...grantTypes[flow]],
      response_types: flow === 'code' ? ['code'] : [],
      application_type: 'native',
      // A secret on many machines is none.
      ...(methods === undefined || methods.includes('none') ? { token_endpoint_auth_method: 'none' } : {}),
    },
    ...(scope === undefined ? {} : { scope }),
    fetchFn: fetch,
  })
  return { ...registered, issuer }
}

/** How a client with a private key shows that it is one; undefined without such a key. */
export function signerOf(
  { clientId = '', algorithm = 'ES256' }: McpOAuth,
  { privateKey }: ClientSecrets,
): ReturnType<typeof createPrivateKeyJwtAuth> | undefined {
  if (privateKey === undefined) return undefined
  const jwk = parseJson(privateKey.reveal())
  if (typeof jwk !== 'object' || jwk === null)
    throw refused('oauth.privateKey is no JWK; expected one in JSON, in one line')
  return createPrivateKeyJwtAuth({
    issuer: clientId,
    subject: clientId,
    privateKey: jwk as Record<string, unknown>,
    alg: algorithm,
  })
}
