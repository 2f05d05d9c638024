/**
 * Requests for tokens (RFC 6749, 7636, 8628, 8707): a code, a device, the client itself, a refresh token. Each goes to the
 * token endpoint of one authorization server, and asks for tokens of one resource.
 */
import {
  type AuthorizationServerMetadata,
  exchangeAuthorization,
  type FetchLike,
  fetchToken,
  type OAuthTokens,
  refreshAuthorization,
  type StoredOAuthClientInformation,
  validateAuthorizationResponseIssuer,
} from '@modelcontextprotocol/client'
import { type AuthenticatedClient, authenticationOf } from './client-authentication.ts'
import { type AuthorizationServer, refused } from './discovery.ts'
import type { SignInRecord } from './sign-in-records.ts'

export interface GrantParts extends AuthenticatedClient {
  readonly fetch: FetchLike
}

/** What came back to this machine, after state was checked. */
export interface AuthorizationResponse {
  readonly code: string
  readonly iss?: string
}

export async function exchangeCode(
  parts: GrantParts,
  { code, iss }: AuthorizationResponse,
  { codeVerifier, redirectUrl }: { readonly codeVerifier: string; readonly redirectUrl: string },
): Promise<OAuthTokens> {
  const { server, client, fetch } = parts
  return await exchangeAuthorization(server.url, {
    ...common(parts),
    clientInformation: client,
    authorizationCode: code,
    ...(iss === undefined ? {} : { iss }),
    codeVerifier,
    redirectUri: redirectUrl,
    fetchFn: fetch,
  })
}

/** Whether the answer is of the server that was asked (RFC 9207). @throws IssuerMismatchError */
export function checkIssuer(
  { metadata }: Pick<AuthorizationServer, 'metadata'>,
  iss: string | undefined,
): void {
  validateAuthorizationResponseIssuer({
    iss,
    expectedIssuer: metadata?.issuer,
    issParameterSupported: metadata?.authorization_response_iss_parameter_supported === true,
  })
}

/** For the client itself. @param scope absent: what the authorization server gives by itself */
export async function requestForClient(parts: GrantParts, scope: string | undefined): Promise<OAuthTokens> {
  const params = new URLSearchParams({ grant_type: 'client_credentials' })
  if (scope !== undefined) params.set('scope', scope)
  return await requestTokens(parts, params)
}

export async function requestForDevice(parts: GrantParts, deviceCode: string): Promise<OAuthTokens> {
  const grantType = 'urn:ietf:params:oauth:grant-type:device_code'
  return await requestTokens(parts, new URLSearchParams({ grant_type: grantType, device_code: deviceCode }))
}

/** @returns tokens with the old refresh token, if there is no new one */
export async function refresh(parts: GrantParts, refreshToken: string): Promise<OAuthTokens> {
  const { server, client, fetch } = parts
  return await refreshAuthorization(server.url, {
    ...common(parts),
    clientInformation: client,
    refreshToken,
    fetchFn: fetch,
  })
}

/** The parts of a sign-in that is stored: its own authorization server, and no other. */
export function partsOf(
  { endpoints, resource, clientId, clientAuthMethod }: SignInRecord,
  clientSecret: string | undefined,
): Pick<GrantParts, 'server' | 'client'> {
  const { url, issuer, token, authMethods } = endpoints
  // The library reads no other field for a request for tokens.
  const metadata = {
    issuer,
    token_endpoint: token,
    ...(authMethods === undefined ? {} : { token_endpoint_auth_methods_supported: authMethods }),
  } as unknown as AuthorizationServerMetadata
  return {
    server: { url, issuer, metadata, ...(resource === undefined ? {} : { resource }) },
    client: {
      client_id: clientId,
      issuer,
      ...(clientSecret === undefined ? {} : { client_secret: clientSecret }),
      ...(clientAuthMethod === undefined ? {} : { token_endpoint_auth_method: clientAuthMethod }),
    } as StoredOAuthClientInformation,
  }
}

async function requestTokens(parts: GrantParts, params: URLSearchParams): Promise<OAuthTokens> {
  const { server, client, fetch } = parts
  const misuse = (): never => {
    throw refused('a request for tokens does not lead to a browser')
  }
  const provider = {
    redirectUrl: undefined,
    clientMetadata: { redirect_uris: [] },
    clientInformation: () => client,
    tokens: () => undefined,
    saveTokens: misuse,
    redirectToAuthorization: misuse,
    saveCodeVerifier: misuse,
    codeVerifier: misuse,
    prepareTokenRequest: () => params,
    addClientAuthentication: authenticationOf(parts),
  }
  return await fetchToken(provider, server.url, { ...common(parts), fetchFn: fetch })
}

function common(parts: GrantParts) {
  const { metadata, resource } = parts.server
  return {
    addClientAuthentication: authenticationOf(parts),
    ...(metadata === undefined ? {} : { metadata }),
    ...(resource === undefined ? {} : { resource }),
  }
}
