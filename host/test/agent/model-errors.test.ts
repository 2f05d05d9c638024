// What the gateway refuses, as the agent's client understands it: every code on either side of the boundary.
import { describe, expect, it } from 'vitest'
import { errorFromResponse, errorFromStream } from '#runtime/llm/dialects.ts'
import type { ModelErrorCode } from '#runtime/llm/errors.ts'
import { errorBody, gatewayError, gatewayErrorCodes } from '../../gateway/gateway-error.ts'

/** Refusals that asking again may mend. */
const passing: Readonly<Record<string, ModelErrorCode>> = {
  limit_concurrency: 'rate_limited',
  upstream_unreachable: 'bad_gateway',
  upstream_timeout: 'timed_out',
  upstream_broken: 'truncated',
  upstream_pending: 'pending',
  upstream_busy: 'rate_limited',
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
