// What the gateway refuses, as the agent's client understands it: every code on either side of the boundary.
import { describe, expect, it } from 'vitest'
import {
  errorFromResponse,
  errorFromStream,
  type ModelErrorCode,
} from '#specs/node/model-protocols/model-error.ts'
import { errorWithin } from '#specs/node/provider-quirks/provider-error.ts'
import { providerErrors } from '#specs/testing/provider-errors.ts'
import { errorBody, gatewayError, gatewayErrorCodes } from '../../host/net/gateway-error.ts'
import { readUpstreamError } from '../../host/providers/http-exchange.ts'
import { createStreamTap } from '../../host/providers/upstream.ts'

/** Refusals that asking again may fix. */
const passing: Readonly<Record<string, ModelErrorCode>> = {
  limit_concurrency: 'rate_limited',
  upstream_unreachable: 'bad_gateway',
  upstream_timeout: 'timed_out',
  upstream_broken: 'truncated',
  upstream_pending: 'pending',
  upstream_busy: 'rate_limited',
  token_renewed: 'conflict',
}

describe('refusals of the gateway', () => {
  it.each(gatewayErrorCodes)('make the client ask again for %s only where that can help [G.05]', (code) => {
    const error = gatewayError(code, 'why')
    const seen = errorFromResponse(error.status, errorBody(error), null)
    expect(seen.retryable).toBe(Object.hasOwn(passing, code))
    expect(seen).toMatchObject({
      status: error.status,
      ...(passing[code] === undefined ? {} : { code: passing[code] }),
    })
    expect(seen.message).toContain('why')
  })

  it.each(['upstream_broken', 'upstream_timeout', 'response_too_large'] as const)(
    'are the same failure when %s comes in the midst of a stream [G.05]',
    (code) => {
      const error = gatewayError(code, 'why')
      const { error: within } = JSON.parse(errorBody(error)) as { error: unknown }
      expect(errorFromStream(within).code).toBe(errorFromResponse(error.status, errorBody(error), null).code)
    },
  )

  it.each(['limit_tokens', 'limit_requests', 'limit_cost'] as const)(
    'end a run for %s by that name [G.05]',
    (code) => {
      const error = gatewayError(code, 'spent')
      expect(errorFromResponse(error.status, errorBody(error), null).code).toBe(code)
    },
  )
})

describe('errors of providers', () => {
  const textOf = (body: unknown) => (typeof body === 'string' ? body : JSON.stringify(body))

  it.each(
    providerErrors.flatMap(({ provider, status, body, failure }) =>
      status === null ? [] : [[provider, status, textOf(body), failure] as const],
    ),
  )("mean the same behind the gateway: %s's %i %s [G.05]", (_provider, status, body, failure) => {
    const forwarded = readUpstreamError(status, body, { key: null })
    expect(errorFromResponse(forwarded.status, errorBody(forwarded), null).code).toBe(failure)
  })

  it.each(
    providerErrors.flatMap(({ provider, status, body, failure, retryAfterMs = null }) =>
      status === null ? [[provider, textOf(body), failure, retryAfterMs] as const] : [],
    ),
  )("are seen by the host inside a stream: %s's %s [G.05]", (_provider, body, failure, retryAfterMs) => {
    const events = [
      `event: error\ndata: ${body.replaceAll('\n', ' ')}\n\n`,
      ...(body.startsWith('{') && errorWithin(JSON.parse(body)) !== undefined ? [`data: ${body}\n\n`] : []),
    ]
    for (const event of events) {
      const tap = createStreamTap(10)
      tap.push(Buffer.from(event))
      expect(tap.failure).toEqual({ failure, retryAfterMs })
      expect(tap.read().error).toContain(failure)
    }
  })
})
