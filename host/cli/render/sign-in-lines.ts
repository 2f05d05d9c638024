/** Words for a sign-in to an MCP server, without its secrets. */
import { formatTime } from '../../files/format.ts'
import type { SignInRecord } from '../../sign-in/sign-in-records.ts'
import { sanitizeLine } from './sanitize.ts'

/** For `mcp list`. @param now ms since 1970 */
export function describeSignIn(record: SignInRecord, now: number): object {
  const { server, url, flow, endpoints, scope, expiresAt, signedInAt, place, wanted } = record
  return {
    ...{ server, url, flow, issuer: endpoints.issuer, signedInAt, place },
    state: isUsable(record, now) ? 'signed-in' : 'expired',
    ...(scope === undefined ? {} : { scope }),
    ...(expiresAt === undefined ? {} : { expiresAt }),
    ...(wanted === undefined ? {} : { wanted }),
  }
}

/** For people: name, time of the sign-in, address, and how long it is valid. */
export function signInLine(record: SignInRecord, now: number): string {
  const { server, url, endpoints } = record
  return `${sanitizeLine(server)}  ${formatTime(record.signedInAt)}  ${sanitizeLine(url, 120)}, signed in by ${sanitizeLine(endpoints.issuer, 120)}: ${stateOf(record, now)}`
}

function isUsable({ isOver, expiresAt, hasRefreshToken, flow }: SignInRecord, now: number): boolean {
  if (flow === 'client-credentials') return true
  return !isOver && (hasRefreshToken || expiresAt === undefined || expiresAt > now)
}

export function stateOf(record: SignInRecord, now: number): string {
  if (!isUsable(record, now)) return `expired; sign in again: caisson mcp login ${record.server}`
  if (record.wanted !== undefined)
    return `the server demands more rights; sign in again: caisson mcp login ${record.server}`
  const { expiresAt, hasRefreshToken } = record
  if (hasRefreshToken) return 'the host renews the token by itself'
  return expiresAt === undefined ? 'the token has no end' : `valid until ${formatTime(expiresAt)}`
}
