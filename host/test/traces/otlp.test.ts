import { request } from 'undici'
import { describe, expect, it } from 'vitest'
import { contentTypes, encodeSpans, type OtlpProtocol } from '../../traces/otlp.ts'
import { rootSpanIdOf, type TraceSpan, traceIdOf } from '../../traces/span.ts'
import { type ReceivedTraces, startOtlpReceiver } from '../support/otlp-receiver.ts'
import { runId, startedAt } from './support.ts'

const traceId = traceIdOf(runId)
const span: TraceSpan = {
  traceId,
  spanId: rootSpanIdOf(runId),
  name: 'invoke_agent caisson',
  kind: 'internal',
  startMs: startedAt,
  endMs: startedAt + 1_234,
  attributes: {},
  isError: false,
  links: [],
}
const source = { resource: { 'service.name': 'caisson' }, scope: { name: 'caisson', version: '1.2.3' } }
const protocols = Object.keys(contentTypes) as OtlpProtocol[]

/** What a collector reads of the spans. */
async function received(spans: readonly TraceSpan[], protocol: OtlpProtocol): Promise<ReceivedTraces> {
  await using receiver = await startOtlpReceiver()
  const { statusCode, body } = await request(receiver.url, {
    method: 'POST',
    headers: { 'content-type': contentTypes[protocol] },
    body: encodeSpans(spans, source, protocol),
  })
  expect([statusCode, await body.text()]).toEqual([200, protocol === 'http/json' ? '{}' : ''])
  const [first] = receiver.received
  if (first === undefined) throw new Error('nothing was received')
  return first
}

describe.each(protocols)('a request in %s', (protocol) => {
  it('is read by the schema of OTLP as the spans that it was made of [R.04]', async () => {
    const child: TraceSpan = {
      ...span,
      spanId: '00000000000000ff',
      parentSpanId: span.spanId,
      name: 'chat größe 🙂',
      kind: 'client',
      isError: true,
      message: 'failed',
      links: [{ traceId: 'f'.repeat(32), spanId: '0123456789abcdef' }],
    }
    const { spans, resource, scope } = await received([span, child, { ...child, message: '' }], protocol)
    const { message: _, ...plain } = child
    expect(spans[0]).toEqual(span)
    expect(spans[1]).toEqual(child)
    expect(spans[2]).toMatchObject(plain)
    expect({ resource, scope }).toEqual(source)
  })

  it.each([
    ['texts', ['', 'a', 'ä🙂', 'x'.repeat(70_000)]],
    ['integers', [0, 1, -1, 127, 128, 300, 2 ** 31, -(2 ** 40), Number.MAX_SAFE_INTEGER]],
    ['numbers', [0.1, -2.5, 1e-9, 2 ** 60]],
    ['truth values', [true, false]],
    ['lists', [[], ['stop'], ['', 'length']]],
  ])('keeps %s [R.04]', async (_, values) => {
    const attributes = Object.fromEntries(values.map((value, at) => [`key.${at}`, value]))
    const { spans } = await received([{ ...span, attributes }], protocol)
    expect(spans[0]?.attributes).toEqual(attributes)
  })

  it('keeps times to the millisecond, and hundreds of spans [R.04]', async () => {
    const many = Array.from({ length: 300 }, (_, at) => ({
      ...span,
      spanId: at.toString(16).padStart(16, '0'),
      endMs: span.endMs + at,
    }))
    expect((await received(many, protocol)).spans).toEqual(many)
  })
})
