/**
 * Spans as a request of OTLP/HTTP, in both of its encodings: `ExportTraceServiceRequest` of opentelemetry-proto 1.x,
 * whose field numbers are stable.
 */
import type { Attributes, AttributeValue, TraceSpan } from './span.ts'

/** What all spans of a request share. */
export interface SpanSource {
  /** Attributes of the process. */
  readonly resource: Attributes
  /** The library that makes the spans. */
  readonly scope: { readonly name: string; readonly version: string }
}

export const contentTypes = {
  'http/protobuf': 'application/x-protobuf',
  'http/json': 'application/json',
} as const
export type OtlpProtocol = keyof typeof contentTypes

const kinds = { internal: 1, client: 3 } as const
const errorStatus = 2
/** Sampled; and it is known that the parent, if any, is of this process. */
const spanFlags = 0x101

export function encodeSpans(spans: readonly TraceSpan[], source: SpanSource, protocol: OtlpProtocol): Buffer {
  return protocol === 'http/json'
    ? Buffer.from(JSON.stringify(jsonRequest(spans, source)))
    : binaryRequest(spans, source)
}

function nanoseconds(ms: number): bigint {
  return BigInt(Math.round(ms)) * 1_000_000n
}

// JSON: names in lower camel case, ids in hexadecimal, 64-bit integers as strings, enums as numbers.

function jsonRequest(spans: readonly TraceSpan[], { resource, scope }: SpanSource): object {
  const scopeSpans = [{ scope, spans: spans.map(jsonSpan) }]
  return { resourceSpans: [{ resource: { attributes: jsonAttributes(resource) }, scopeSpans }] }
}

function jsonSpan(span: TraceSpan): object {
  const { traceId, spanId, parentSpanId, name, kind, startMs, endMs, attributes, links } = span
  return {
    traceId,
    spanId,
    ...(parentSpanId === undefined ? {} : { parentSpanId }),
    flags: spanFlags,
    name,
    kind: kinds[kind],
    startTimeUnixNano: `${nanoseconds(startMs)}`,
    endTimeUnixNano: `${nanoseconds(endMs)}`,
    attributes: jsonAttributes(attributes),
    ...(links.length === 0 ? {} : { links }),
    status: span.isError
      ? { code: errorStatus, ...(span.message === undefined ? {} : { message: span.message }) }
      : {},
  }
}

function jsonAttributes(attributes: Attributes): object[] {
  return Object.entries(attributes).map(([key, value]) => ({ key, value: jsonValue(value) }))
}

function jsonValue(value: AttributeValue): object {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (typeof value !== 'number') return { arrayValue: { values: value.map(jsonValue) } }
  return Number.isSafeInteger(value) ? { intValue: `${value}` } : { doubleValue: value }
}

// Protocol Buffers: fields by the numbers of trace.proto, resource.proto and common.proto.

function binaryRequest(spans: readonly TraceSpan[], { resource, scope }: SpanSource): Buffer {
  const scopeSpans = [
    message(1, [text(1, scope.name), text(2, scope.version)]),
    ...spans.map((span) => message(2, binarySpan(span))),
  ]
  return message(1, [message(1, binaryAttributes(1, resource)), message(2, scopeSpans)])
}

function binarySpan(span: TraceSpan): Buffer[] {
  const { traceId, spanId, parentSpanId, name, kind, startMs, endMs, attributes, links } = span
  return [
    hex(1, traceId),
    hex(2, spanId),
    ...(parentSpanId === undefined ? [] : [hex(4, parentSpanId)]),
    text(5, name),
    integer(6, kinds[kind]),
    fixed64(7, nanoseconds(startMs)),
    fixed64(8, nanoseconds(endMs)),
    ...binaryAttributes(9, attributes),
    ...links.map((link) => message(13, [hex(1, link.traceId), hex(2, link.spanId)])),
    message(15, span.isError ? [text(2, span.message ?? ''), integer(3, errorStatus)] : []),
    fixed32(16, spanFlags),
  ]
}

function binaryAttributes(field: number, attributes: Attributes): Buffer[] {
  return Object.entries(attributes).map(([key, value]) =>
    message(field, [text(1, key), message(2, [binaryValue(value)])]),
  )
}

/** An `AnyValue`. Its field is written even for an empty value, which says of what type it is. */
function binaryValue(value: AttributeValue): Buffer {
  if (typeof value === 'string') return bytes(1, Buffer.from(value))
  if (typeof value === 'boolean') return Buffer.concat([tag(2, 0), varint(value ? 1n : 0n)])
  if (typeof value !== 'number')
    return message(
      5,
      value.map((item) => message(1, [binaryValue(item)])),
    )
  if (Number.isSafeInteger(value))
    return Buffer.concat([tag(3, 0), varint(BigInt.asUintN(64, BigInt(value)))])
  const double = Buffer.alloc(8)
  double.writeDoubleLE(value)
  return Buffer.concat([tag(4, 1), double])
}

function tag(field: number, wireType: 0 | 1 | 2 | 5): Buffer {
  return varint(BigInt((field << 3) | wireType))
}

function varint(value: bigint): Buffer {
  const digits: number[] = []
  let rest = value
  for (; rest > 0x7fn; rest >>= 7n) digits.push(Number(rest & 0x7fn) | 0x80)
  return Buffer.from([...digits, Number(rest)])
}

function bytes(field: number, value: Buffer): Buffer {
  return Buffer.concat([tag(field, 2), varint(BigInt(value.length)), value])
}

function message(field: number, fields: readonly Buffer[]): Buffer {
  return bytes(field, Buffer.concat(fields))
}

/** An empty text is the default, which is not written. */
function text(field: number, value: string): Buffer {
  return value === '' ? Buffer.alloc(0) : bytes(field, Buffer.from(value))
}

function hex(field: number, digits: string): Buffer {
  return bytes(field, Buffer.from(digits, 'hex'))
}

function integer(field: number, value: number): Buffer {
  return Buffer.concat([tag(field, 0), varint(BigInt(value))])
}

function fixed64(field: number, value: bigint): Buffer {
  const eight = Buffer.alloc(8)
  eight.writeBigUInt64LE(value)
  return Buffer.concat([tag(field, 1), eight])
}

function fixed32(field: number, value: number): Buffer {
  const four = Buffer.alloc(4)
  four.writeUInt32LE(value)
  return Buffer.concat([tag(field, 5), four])
}
