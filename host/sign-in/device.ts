/** The flow for machines without a browser (RFC 8628): the person types a code on another device, and this one asks. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { OAuthTokens } from '@modelcontextprotocol/client'
import * as z from 'zod'
import { parseJson } from '../files/json.ts'
import { authenticationOf } from './client-authentication.ts'
import { isEndpoint, refused } from './discovery.ts'
import { type GrantParts, requestForDevice } from './grants.ts'
import { LostRequestError } from './judged-fetch.ts'
import { isOverloaded, oauthCodeOf } from './oauth-error.ts'

/** What the person is shown. */
export interface DeviceCode {
  readonly url: string
  readonly code: string
  readonly expiresInMs: number
}

const DeviceAnswer = z.object({
  device_code: z.string().min(1).max(4_096),
  user_code: z.string().regex(/^[\x21-\x7e]{1,64}$/),
  verification_uri: z.string().max(2_000),
  expires_in: z
    .number()
    .positive()
    .max(24 * 3_600),
  interval: z.number().positive().max(120).optional(),
})

const defaultIntervalMs = 5_000
const slowerMs = 5_000
const longestIntervalMs = 60_000

interface DeviceOptions {
  readonly scope: string | undefined
  readonly signal: AbortSignal
  onCode(shown: DeviceCode): void
  /** Absent: as the server says. */
  readonly intervalMs?: number
}

/** @throws {CaissonError} `not_possible_now` */
export async function signInByDevice(parts: GrantParts, options: DeviceOptions): Promise<OAuthTokens> {
  const { signal } = options
  const asked = await askForCode(parts, options)
  const { device_code: deviceCode, user_code: code, verification_uri: url, expires_in: seconds } = asked
  options.onCode({ url, code, expiresInMs: seconds * 1_000 })
  const over = AbortSignal.any([signal, AbortSignal.timeout(seconds * 1_000)])
  let intervalMs =
    options.intervalMs ?? (asked.interval === undefined ? defaultIntervalMs : asked.interval * 1_000)
  while (true) {
    await sleep(intervalMs, undefined, { signal: over }).catch(() => {
      throw refused('nobody signed in within the time for it')
    })
    try {
      return await requestForDevice(parts, deviceCode)
    } catch (cause) {
      const error = oauthCodeOf(cause)
      if (error === 'slow_down') intervalMs += slowerMs
      // A poll that was lost says nothing of the code; RFC 8628, 3.5 asks for longer intervals then.
      else if (cause instanceof LostRequestError || isOverloaded(cause))
        intervalMs = Math.max(intervalMs, Math.min(intervalMs * 2, longestIntervalMs))
      else if (error !== 'authorization_pending') throw cause
    }
  }
}

async function askForCode(
  parts: GrantParts,
  { scope }: DeviceOptions,
): Promise<z.infer<typeof DeviceAnswer>> {
  const { server, fetch } = parts
  const endpoint = (server.metadata as Record<string, unknown> | undefined)?.device_authorization_endpoint
  if (typeof endpoint !== 'string' || !isEndpoint(endpoint))
    throw refused('the authorization server has no flow for devices; sign in with the flow "code"')
  const body = new URLSearchParams()
  if (scope !== undefined) body.set('scope', scope)
  if (server.resource !== undefined) body.set('resource', server.resource)
  const headers = new Headers({
    'content-type': 'application/x-www-form-urlencoded',
    accept: 'application/json',
  })
  await authenticationOf(parts)(headers, body, endpoint, server.metadata)
  const response = await fetch(endpoint, { method: 'POST', headers, body, redirect: 'manual' })
  if (!response.ok)
    throw refused(`the authorization server gave no code for a device (HTTP ${response.status})`)
  const parsed = DeviceAnswer.safeParse(parseJson(await response.text()))
  if (!parsed.success || !isEndpoint(parsed.data.verification_uri))
    throw refused('the authorization server gave no code for a device in the form of RFC 8628')
  return parsed.data
}
