/** Tells an authorization server that tokens are not needed any more (RFC 7009), as the client that they are of. */
import { authenticationOf } from './client-authentication.ts'
import { isEndpoint } from './discovery.ts'
import type { GrantParts } from './grants.ts'
import type { SignInRecord } from './sign-in-records.ts'
import type { TokenSecrets } from './token-vault.ts'

/** @returns whether the server confirmed it; never rejects */
export async function revokeTokens(
  { endpoints: { revocation } }: SignInRecord,
  { accessToken, refreshToken }: TokenSecrets,
  parts: GrantParts,
): Promise<boolean> {
  if (revocation === undefined || !isEndpoint(revocation)) return false
  const tokens = [
    ...(refreshToken === undefined ? [] : [['refresh_token', refreshToken]]),
    ['access_token', accessToken],
  ] as const
  const authenticate = authenticationOf(parts)
  try {
    const answers: boolean[] = []
    for (const [hint = '', token = ''] of tokens) {
      const body = new URLSearchParams({ token, token_type_hint: hint })
      const headers = new Headers({ 'content-type': 'application/x-www-form-urlencoded' })
      await authenticate(headers, body, revocation, parts.server.metadata)
      const response = await parts.fetch(revocation, { method: 'POST', headers, body, redirect: 'manual' })
      answers.push(response.ok)
    }
    return answers.every((isDone) => isDone)
  } catch {
    return false
  }
}
