/** Tells an authorization server that tokens are not needed any more (RFC 7009), as the client that they are of. */
import { selectClientAuthMethod } from '@modelcontextprotocol/client'
import { isEndpoint } from './discovery.ts'
import type { GrantParts } from './grants.ts'
import type { SignInRecord } from './sign-in-records.ts'
import type { TokenSecrets } from './token-vault.ts'

/** @returns whether the server confirmed it; never rejects */
export async function revokeTokens(
  { endpoints: { revocation, authMethods } }: SignInRecord,
  { accessToken, refreshToken }: TokenSecrets,
  parts: GrantParts,
): Promise<boolean> {
  if (revocation === undefined || !isEndpoint(revocation)) return false
  const tokens = [
    ...(refreshToken === undefined ? [] : [['refresh_token', refreshToken]]),
    ['access_token', accessToken],
  ] as const
  try {
    const answers: boolean[] = []
    for (const [hint = '', token = ''] of tokens) {
      const body = new URLSearchParams({ token, token_type_hint: hint })
      const headers = new Headers({ 'content-type': 'application/x-www-form-urlencoded' })
      await authenticate(parts, authMethods ?? [], { headers, body, url: revocation })
      const response = await parts.fetch(revocation, { method: 'POST', headers, body, redirect: 'manual' })
      answers.push(response.ok)
    }
    return answers.every((isDone) => isDone)
  } catch {
    return false
  }
}

/** As requests for tokens do it (RFC 6749, 2.3). */
async function authenticate(
  { client, signer, server }: GrantParts,
  authMethods: readonly string[],
  { headers, body, url }: { readonly headers: Headers; readonly body: URLSearchParams; readonly url: string },
): Promise<void> {
  if (signer !== undefined) return await signer(headers, body, url, server.metadata)
  const { client_id: id, client_secret: secret } = client
  const method = selectClientAuthMethod(client, [...authMethods])
  if (method === 'client_secret_basic' && secret !== undefined) {
    const credentials = Buffer.from(`${encodeURIComponent(id)}:${encodeURIComponent(secret)}`)
    headers.set('authorization', `Basic ${credentials.toString('base64')}`)
    return
  }
  body.set('client_id', id)
  if (method === 'client_secret_post' && secret !== undefined) body.set('client_secret', secret)
}
