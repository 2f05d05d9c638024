/**
 * How a client shows an authorization server who it is (RFC 6749, 2.3). The library puts identifier and secret into Basic
 * credentials as they are; servers decode them as a form, so that a secret with `+`, `%` or `:` was another one.
 */
import {
  type AddClientAuthentication,
  type StoredOAuthClientInformation,
  selectClientAuthMethod,
} from '@modelcontextprotocol/client'
import type { AuthorizationServer } from './discovery.ts'

/** A client, as it shows itself to one server. */
export interface AuthenticatedClient {
  readonly server: Pick<AuthorizationServer, 'url' | 'issuer' | 'metadata' | 'resource'>
  readonly client: StoredOAuthClientInformation
  readonly signer?: AddClientAuthentication | undefined
}

/** For each request of the client: to the token endpoint, for a device, and to revoke. */
export function authenticationOf({ client, signer, server }: AuthenticatedClient): AddClientAuthentication {
  if (signer !== undefined) return signer
  const { client_id: id, client_secret: secret } = client
  const method = selectClientAuthMethod(client, server.metadata?.token_endpoint_auth_methods_supported ?? [])
  return (headers, body) => {
    if (method === 'client_secret_basic' && secret !== undefined) {
      const credentials = Buffer.from(`${formEncoded(id)}:${formEncoded(secret)}`)
      headers.set('authorization', `Basic ${credentials.toString('base64')}`)
      return
    }
    body.set('client_id', id)
    if (method === 'client_secret_post' && secret !== undefined) body.set('client_secret', secret)
  }
}

/** As `application/x-www-form-urlencoded` (RFC 6749, 2.3.1). */
function formEncoded(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1)
}
