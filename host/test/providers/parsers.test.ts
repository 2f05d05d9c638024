import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import { CompletionRequest, parseCompletionRequest } from '#specs/protocol/completion-request.ts'
import { Secret } from '../../keys/secret.ts'
import { readUpstreamError } from '../../providers/http-exchange.ts'
import { createStreamTap, readWholeAnswer } from '../../providers/upstream.ts'

const keys = fc.constantFrom(
  'messages',
  'role',
  'content',
  'model',
  'tools',
  'stream',
  'type',
  '__proto__',
  'max_tokens',
  'usage',
  'error',
)
const json = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    fc.constantFrom('user', 'assistant', 'tool', 'function', '', null, true, 1, -1, 1e300),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(keys, tie('value'), { maxKeys: 5 }),
  ),
})).value
const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 200 }).map((part) => Buffer.from(part)),
  json.map((value) => Buffer.from(JSON.stringify(value))),
)

it('whatever bytes a guest sends, the request is refused with words or made of known fields alone [S0.07]', () => {
  fc.assert(
    fc.property(bytes, (body) => {
      const parsed = parseCompletionRequest(body)
      if (!parsed.ok) {
        expect(parsed.error.length).toBeGreaterThan(0)
        return
      }
      const sent: unknown = JSON.parse(new Adaptation('meta/llama-3.1').build(parsed.value, 9).body)
      expect(CompletionRequest.safeParse(sent).success).toBe(true)
      expect(sent).toMatchObject({ model: 'meta/llama-3.1', max_tokens: expect.any(Number) })
    }),
    { numRuns: 3_000, seed: 4 },
  )
})

it('whatever an upstream answers, its error is one bounded form [S0.06]', () => {
  fc.assert(
    fc.property(bytes, fc.integer({ min: 400, max: 599 }), (body, status) => {
      const error = readUpstreamError(status, body.toString('utf8'), {
        key: new Secret('key'),
      })
      expect(error).toMatchObject({ status, type: expect.any(String), code: expect.any(String) })
      expect(error.message.length).toBeLessThanOrEqual(2_000)
    }),
    { numRuns: 2_000, seed: 5 },
  )
})

it('whatever an upstream streams, the usage is a count, and does not depend on where chunks are cut [G.05]', () => {
  const event = fc.oneof(
    json.map((value) => `data: ${JSON.stringify(value)}\n\n`),
    fc
      .record({ p: fc.nat(1e6), c: fc.nat(1e6) })
      .map(
        ({ p, c }) => `data: {"choices":[],"usage":{"prompt_tokens":${p},"completion_tokens":${c}}}\r\n\r\n`,
      ),
    fc.constantFrom(
      'data: [DONE]\n\n',
      ': comment\n\n',
      'data: {"error":{}}\n\n',
      '\ufeff',
      'data: {broken\n\n',
    ),
  )
  fc.assert(
    fc.property(fc.array(event, { maxLength: 8 }), fc.integer({ min: 1, max: 9 }), (events, size) => {
      const whole = Buffer.from(events.join(''))
      const [once, pieces] = [createStreamTap(40), createStreamTap(40)]
      once.push(whole)
      for (let at = 0; at < whole.length; at += size) pieces.push(whole.subarray(at, at + size))
      expect(pieces.read()).toEqual(once.read())
      for (const count of Object.values(once.read().usage)) expect(count).toBeGreaterThanOrEqual(0)
      expect(readWholeAnswer(whole, 40).usage.requests).toBe(1)
    }),
    { numRuns: 1_000, seed: 6 },
  )
})
