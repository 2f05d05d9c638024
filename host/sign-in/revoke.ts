/** Tells an authorization server that tokens are not needed any more (RFC 7009). */
import type { FetchLike } from '@modelcontextprotocol/client'
import { isEndpoint } from './discovery.ts'
import type { SignInRecord } from './sign-in-records.ts'
import type { TokenSecrets } from './token-vault.ts'

/** @returns whether the server confirmed it; never rejects */
export async function revokeTokens(
  { endpoints: { revocation }, clientId }: SignInRecord,
  { accessToken, refreshToken, clientSecret }: TokenSecrets,
  fetch: FetchLike,
): Promise<boolean> {
  if (revocation === undefined || !isEndpoint(revocation)) return false
  const tokens = [
    ...(refreshToken === undefined ? [] : [['refresh_token', refreshToken]]),
    ['access_token', accessToken],
  ] as const
  try {
    for (const [hint = '', token = ''] of tokens) {
      const body = new URLSearchParams({ token, token_type_hint: hint, client_id: clientId })
      if (clientSecret !== undefined) body.set('client_secret', clientSecret)
      const headers = { 'content-type': 'application/x-www-form-urlencoded' }
      const response = await fetch(revocation, { method: 'POST', headers, body, redirect: 'manual' })
      if (!response.ok) return false
    }
    return true
  } catch {
    return false
  }
}
