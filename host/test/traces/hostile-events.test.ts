// Any order of events that a guest can bring about, and any answer of a collector.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { rejectedSpans } from '../../traces/send.ts'
import { rootSpanIdOf, traceIdOf } from '../../traces/span.ts'
import {
  agentEnd,
  agentStart,
  modelEnd,
  modelStart,
  runEnd,
  runId,
  runStart,
  type Step,
  spansOf,
  toolEnd,
  toolStart,
  turnEnd,
} from './support.ts'

const options = { seed: 20_261_123, numRuns: perTier(150, 5_000) }
const agentPath = fc.constantFrom('root', 'root/a', 'root/a/b', 'root/c')
const few = fc.constantFrom('1', '2', '3')
const turnRetry = { type: 'turn-retry', stepId: 'task', code: 'timeout', message: '', delayMs: 0 }
const stepEnd = { type: 'step-end', stepId: 'task', state: 'completed', text: '' }

/** One event of the guest or about its requests, at any time, in any place. */
const step: fc.Arbitrary<Step> = fc
  .tuple(fc.nat(1_000), agentPath, few, fc.nat(10))
  .map(([at, path, id, kind]): Step => {
    const ofAgent: readonly Step[1][] = [
      agentStart(),
      agentEnd(),
      agentEnd({ state: 'failed', reason: 'limit_turns' }),
      toolStart(id, 'math'),
      toolEnd(id, 'math'),
      turnEnd(Number(id)),
      turnRetry,
      stepEnd,
    ]
    const ofHost: readonly Step[1][] = [
      modelStart(`model-${id}`, Number(id), { agentPath: path }),
      modelEnd(`model-${id}`),
      { type: 'model-retry', requestId: `model-${id}`, attempt: 2, status: 429, cause: 'busy', delayMs: 0 },
    ]
    const event = ofAgent[kind]
    return event === undefined ? [at, ofHost[kind - ofAgent.length] ?? stepEnd] : [at, event, path]
  })

describe('events in any order', () => {
  it('become one tree of spans, each with an id of its own and an end behind its start [R.04]', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), fc.boolean(), (steps, isWhole) => {
        const last: Step[] = isWhole ? [[2_000, runEnd()]] : []
        const spans = spansOf([[0, runStart()], ...steps, ...last], { isWhole })
        const ids = new Set(spans.map(({ spanId }) => spanId))
        expect(ids.size).toBe(spans.length)
        expect(spans.at(-1)?.spanId).toBe(rootSpanIdOf(runId))
        for (const span of spans) {
          expect(span.traceId).toBe(traceIdOf(runId))
          expect(span.endMs).toBeGreaterThanOrEqual(span.startMs)
          if (span !== spans.at(-1)) expect(ids).toContain(span.parentSpanId)
        }
      }),
      options,
    )
  })
})

describe('an answer of the collector', () => {
  it('of any bytes is read as a number of spans [R.04]', () => {
    const bytes = fc.uint8Array({ maxLength: 40 }).map((given) => Buffer.from(given))
    const nearly = bytes.map((given) => Buffer.concat([Buffer.from('0a0708', 'hex'), given]))
    fc.assert(
      fc.property(fc.oneof(bytes, nearly), fc.string(), (answer, text) => {
        expect(Number.isFinite(rejectedSpans(answer, 'http/protobuf'))).toBe(true)
        expect(Number.isFinite(rejectedSpans(Buffer.from(text), 'http/json'))).toBe(true)
      }),
      options,
    )
  })
})
