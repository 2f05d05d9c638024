// Failures as servers word them: the table of statuses row by row, in every dialect, and the words that mean more.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  errorFromResponse,
  errorFromStream,
  gatewayCodes,
  type ModelErrorCode,
  modelError,
  modelFailures,
  reasonOf,
} from '#specs/node/model-protocols/model-error.ts'
import { statusFailures } from '#specs/node/provider-quirks/error-words.ts'
import { type ErrorDialect, errorDialects } from '#specs/testing/model-replies.ts'
import { providerErrors } from '#specs/testing/provider-errors.ts'

const dialects = Object.keys(errorDialects) as ErrorDialect[]

/** Status, code, and whether asking again may help: what is promised, apart from the tables that keep it. */
const rows: [number, ModelErrorCode, boolean][] = [
  [202, 'pending', true],
  [204, 'not_a_model', false],
  [302, 'not_a_model', false],
  [400, 'invalid_request', false],
  [401, 'unauthorized', false],
  [402, 'payment_required', false],
  [403, 'forbidden', false],
  [404, 'not_found', false],
  [405, 'refused', false],
  [408, 'timed_out', true],
  [409, 'conflict', true],
  [410, 'gone', false],
  [413, 'request_too_large', false],
  [418, 'refused', false],
  [422, 'unprocessable', false],
  [425, 'conflict', true],
  [429, 'rate_limited', true],
  [500, 'server_error', true],
  [501, 'unsupported', false],
  [502, 'bad_gateway', true],
  [503, 'overloaded', true],
  [504, 'timed_out', true],
  [505, 'unsupported', false],
  [507, 'server_error', true],
  [520, 'bad_gateway', true],
  [522, 'timed_out', true],
  [524, 'timed_out', true],
  [529, 'overloaded', true],
]

describe('statuses', () => {
  it.each(rows)(
    'gives %i the code %s and its own rule, in every dialect [G.05]',
    (status, code, retryable) => {
      for (const dialect of dialects) {
        const error = errorFromResponse(status, errorDialects[dialect](status, 'the reason'), null)
        expect(error).toMatchObject({ status, code, retryable })
        expect(error.message).toContain('the reason')
      }
      expect(errorFromResponse(status, '', null)).toMatchObject({
        code,
        message: expect.stringContaining(`${status}`),
      })
    },
  )

  it('ends a run with the very limit that the host keeps [G.05]', () => {
    for (const code of ['limit_tokens', 'limit_requests', 'limit_cost'] as const)
      expect(reasonOf(modelError(code, 'spent'))).toBe(code)
  })

  it('has a row above for every status of the table [G.05]', () => {
    const promised = Object.fromEntries(rows.map(([status, code]) => [status, code]))
    expect(promised).toMatchObject(statusFailures)
  })

  it('ends a run for every code with a reason, and never repeats what people must fix [G.05]', () => {
    const codes = Object.keys(modelFailures) as ModelErrorCode[]
    const final = codes.filter((code) => !modelError(code, 'x').retryable)
    expect(codes.map((code) => reasonOf(modelError(code, 'x')))).not.toContain('completed')
    expect(final).toEqual(
      expect.arrayContaining([
        'unauthorized',
        'payment_required',
        'forbidden',
        'gone',
        'cancelled',
        'limit_cost',
      ]),
    )
  })
})

describe('words', () => {
  it.each<[number, string, ModelErrorCode]>([
    // NVIDIA's cloud functions: the backend is down, whatever the status says.
    [400, '{"status":400,"detail":"Function id \'x\': DEGRADED function cannot be invoked"}', 'overloaded'],
    [
      404,
      '{"status":404,"title":"Not Found","detail":"Function \'u\': Not found for account \'a\'"}',
      'not_found',
    ],
    [404, '404 page not found', 'not_found'],
    [402, '{"status":402,"title":"Payment Required","detail":"Cloud credits expired"}', 'payment_required'],
    [410, '{"type":"about:blank","title":"Gone","detail":"has reached its end of life"}', 'gone'],
    [429, '{"detail":"You exceeded your current quota"}', 'payment_required'],
    [429, '{"error":{"message":"x","code":"insufficient_quota"}}', 'payment_required'],
    [
      422,
      '{"detail":"body -> n\\n  Extra inputs are not permitted (type=extra_forbidden)"}',
      'unprocessable',
    ],
    [400, '{"error":{"message":"x","type":"exceed_context_size_error","code":400}}', 'context_exceeded'],
    [400, '{"error":{"message":"This model\'s maximum context length is 8192 tokens"}}', 'context_exceeded'],
    [400, '{"message":"Streaming is not supported with tools"}', 'stream_refused'],
    [422, '{"detail":"stream: Extra inputs are not permitted"}', 'stream_refused'],
    [501, 'streaming not implemented', 'stream_refused'],
    [400, '{"error":{"message":"This model only supports streaming"}}', 'stream_required'],
    [400, '{"error":{"message":"parameter stream must be true"}}', 'stream_required'],
    [400, '{"error":{"message":"stream_options is not supported"}}', 'invalid_request'],
    [400, '{"error":{"message":"the upstream is not supported"}}', 'invalid_request'],
  ])('reads status %i with %s as %s [G.05]', (status, body, code) => {
    expect(errorFromResponse(status, body, null)).toMatchObject({ code, status })
  })

  it.each(Object.entries(gatewayCodes))(
    "knows the gateway's %s as %s, also in a stream [G.05]",
    (word, code) => {
      const error = { message: 'why', type: 'gateway_error', code: word }
      expect(errorFromResponse(429, JSON.stringify({ error }), null)).toMatchObject({ code })
      expect(errorFromStream(error)).toMatchObject({ code, status: null })
    },
  )

  it.each<[unknown, ModelErrorCode]>([
    [{ message: 'x', code: 429 }, 'rate_limited'],
    [{ message: 'x', code: '503' }, 'overloaded'],
    [{ message: 'x', code: 'rate_limit_exceeded' }, 'rate_limited'],
    [{ message: 'x', type: 'invalid_request_error' }, 'invalid_request'],
    [
      { message: 'Worker local total request limit reached (33/32)', type: 'ResourceExhausted' },
      'overloaded',
    ],
    [{ error: { error: { message: 'x', code: 401 } } }, 'unauthorized'],
    ['words alone', 'server_error'],
    [{}, 'server_error'],
    [{ message: 'x', code: 'constructor', type: '__proto__' }, 'server_error'],
  ])('reads the error %j within a stream as %s [G.05] [G.07]', (said, code) => {
    expect(errorFromStream(said)).toMatchObject({ code, status: null })
  })

  it.each(providerErrors.map((one) => [one.provider, one.status ?? 'a stream', one.body, one] as const))(
    "reads %s's error within %s, %j, as what it means [G.05] [S1.07]",
    (_provider, _status, _body, { status, body, failure, retryAfterMs = null }) => {
      const text = typeof body === 'string' ? body : JSON.stringify(body)
      const error = status === null ? errorFromStream(body) : errorFromResponse(status, text, null)
      expect(error).toMatchObject({ code: failure, retryAfterMs })
    },
  )

  it('names a web page by its title and says what to check [S1.07]', () => {
    const page = '<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head></html>'
    const { message } = errorFromResponse(502, page, null)
    expect(message).toBe(
      '502: an HTML page ("502 Bad Gateway"), not a model\'s answer; check the address of the model\'s server',
    )
  })

  it.each([
    ['7', 7_000],
    ['0.5', 500],
    ['Thu, 01 Jan 1970 00:00:30 GMT', 20_000],
    ['Thu, 01 Jan 1970 00:00:01 GMT', 0],
    ['86400', 600_000],
    ['soon', null],
    ['', null],
  ])('reads Retry-After %j as %j ms [G.05]', (header, wait) => {
    expect(errorFromResponse(429, '', header, 10_000).retryAfterMs).toBe(wait)
  })

  it('makes a bounded value of any body whatever, in time that does not explode [G.07]', () => {
    const long = fc.constantFrom('<title', 'exceed', 'stream ', 'context length ', '"error":{', '[', ' ')
    fc.assert(
      fc.property(
        fc.integer({ min: 100, max: 599 }),
        fc.oneof(fc.string(), fc.json(), long),
        (status, piece) => {
          const body = piece.repeat(Math.ceil(60_000 / Math.max(1, piece.length)))
          for (const said of [piece, body]) {
            const error = errorFromResponse(status, said, said)
            expect(error.message.length).toBeLessThanOrEqual(1_000)
          }
        },
      ),
      { seed: 5, numRuns: 100 },
    )
  })
})
