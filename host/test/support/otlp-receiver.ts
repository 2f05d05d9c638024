/**
 * A collector for tests: real HTTP on loopback that reads OTLP traces in both encodings by the schema of
 * opentelemetry-proto, as the official library has it generated.
 */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'
import type { Attributes, TraceSpan } from '../../traces/span.ts'

/** The spans of one request. */
export interface ReceivedTraces {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly resource: Attributes
  readonly scope: { readonly name: string; readonly version: string }
  readonly spans: readonly TraceSpan[]
}

export interface OtlpAnswer {
  /** Default 200. */
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** Default: an empty response message. */
  readonly body?: Uint8Array | string
  /** Default: at once. `never`: the connection stays open. */
  readonly after?: number | 'never'
}

export interface OtlpReceiver extends AsyncDisposable {
  /** Such as `http://127.0.0.1:4318`. */
  readonly url: string
  /** One for each request that was read, in order. */
  readonly received: readonly ReceivedTraces[]
  /** All spans of the requests that were answered with success. */
  readonly spans: () => TraceSpan[]
}

/** @param answer to the request with this number, from 0 */
export async function startOtlpReceiver(
  answer: (index: number) => OtlpAnswer = () => ({}),
): Promise<OtlpReceiver> {
  const received: ReceivedTraces[] = []
  const taken: ReceivedTraces[] = []
  const server = createServer((request, response) => {
    response.on('error', () => undefined)
    serve(request, response).catch((error: unknown) => {
      response.writeHead(400).end(String(error))
    })
  })
  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const traces = await readTraces(request)
    const { status = 200, headers = {}, body = defaultBody(traces), after = 0 } = answer(received.length)
    received.push(traces)
    if (status >= 200 && status <= 299) taken.push(traces)
    if (after === 'never') return
    await new Promise((resolve) => setTimeout(resolve, after))
    response.writeHead(status, { 'content-type': traces.headers['content-type'] ?? '', ...headers }).end(body)
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    spans: () => taken.flatMap(({ spans }) => spans),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

const defaultBody = ({ headers }: ReceivedTraces): string =>
  headers['content-type'] === 'application/json' ? '{}' : ''

async function readTraces(request: IncomingMessage): Promise<ReceivedTraces> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  const { headers, url: path = '', method } = request
  if (method !== 'POST') throw new Error(`expected POST, got ${method}`)
  const sent = Buffer.concat(parts)
  const body = headers['content-encoding'] === 'gzip' ? gunzipSync(sent) : sent
  const message =
    headers['content-type'] === 'application/json'
      ? messageOfJson(JSON.parse(body.toString('utf8')))
      : decodeMessage(body)
  const [group, ...others] = message.resourceSpans ?? []
  const [scoped, ...otherScopes] = group?.scopeSpans ?? []
  if (scoped === undefined || others.length + otherScopes.length > 0)
    throw new Error('expected one resource with one scope')
  return {
    path,
    headers,
    resource: attributesOf(group?.resource?.attributes),
    scope: { name: scoped.scope?.name ?? '', version: scoped.scope?.version ?? '' },
    spans: (scoped.spans ?? []).map(spanOf),
  }
}

/** Bytes of a request, read by the generated code. */
function decodeMessage(body: Buffer): WireRequest {
  return toObject(schema.decode(body))
}

/**
 * A request in JSON: ids are hexadecimal, all else is the JSON mapping of Protocol Buffers. A field that the schema does
 * not have, or one of another form, is refused.
 */
function messageOfJson(value: unknown): WireRequest {
  const mapped = JSON.parse(
    JSON.stringify(value, (key, item: unknown) => {
      if (!/^(?:trace|span|parentSpan)Id$/.test(key)) return item
      if (!/^(?:[0-9a-f]{16}){1,2}$/.test(String(item))) throw new Error(`${key} is not hexadecimal`)
      return Buffer.from(String(item), 'hex').toString('base64')
    }),
  )
  const message = toObject(schema.fromObject(mapped))
  const [given, read] = [sorted(mapped), sorted(message)]
  if (given !== read) throw new Error(`the JSON is not of the schema:\n${given}\n${read}`)
  return message
}

/** With sorted names, and without empty lists, which are as good as absent. */
function sorted(value: unknown): string {
  return JSON.stringify(value, (_, item: unknown) => {
    if (typeof item !== 'object' || item === null || Array.isArray(item)) return item
    const entries = Object.entries(item).filter(([, inner]) => !Array.isArray(inner) || inner.length > 0)
    return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

interface GeneratedType {
  decode(bytes: Uint8Array): object
  fromObject(value: object): object
  toObject(message: object, options: object): WireRequest
}

const generated = createRequire(import.meta.url)(
  '@opentelemetry/otlp-transformer/build/src/generated/root.js',
) as { opentelemetry: { proto: { collector: { trace: { v1: Record<string, GeneratedType> } } } } }
const schema = generated.opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest as GeneratedType

function toObject(message: object): WireRequest {
  return schema.toObject(message, { longs: String, enums: Number, bytes: String })
}

interface WireValue {
  readonly stringValue?: string
  readonly boolValue?: boolean
  readonly intValue?: string
  readonly doubleValue?: number
  readonly arrayValue?: { readonly values?: readonly WireValue[] }
}
type WireAttributes = readonly { readonly key: string; readonly value: WireValue }[]
interface WireSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly flags: number
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes?: WireAttributes
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[]
  readonly status?: { readonly code?: number; readonly message?: string }
}
interface WireRequest {
  readonly resourceSpans?: readonly {
    readonly resource?: { readonly attributes?: WireAttributes }
    readonly scopeSpans?: readonly {
      readonly scope?: { readonly name?: string; readonly version?: string }
      readonly spans?: readonly WireSpan[]
    }[]
  }[]
}

function spanOf(span: WireSpan): TraceSpan {
  const { name, kind, status = {}, links = [], flags } = span
  if (kind !== 1 && kind !== 3) throw new Error(`unexpected kind ${kind}`)
  if (flags !== 0x101) throw new Error(`unexpected flags ${flags}`)
  return {
    traceId: hexOf(span.traceId),
    spanId: hexOf(span.spanId),
    ...(span.parentSpanId === undefined ? {} : { parentSpanId: hexOf(span.parentSpanId) }),
    name,
    kind: kind === 1 ? 'internal' : 'client',
    startMs: Number(BigInt(span.startTimeUnixNano) / 1_000_000n),
    endMs: Number(BigInt(span.endTimeUnixNano) / 1_000_000n),
    attributes: attributesOf(span.attributes),
    isError: status.code === 2,
    ...(status.message === undefined ? {} : { message: status.message }),
    links: links.map((link) => ({ traceId: hexOf(link.traceId), spanId: hexOf(link.spanId) })),
  }
}

const hexOf = (base64: string): string => Buffer.from(base64, 'base64').toString('hex')

function attributesOf(attributes: WireAttributes = []): Attributes {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, readValue(value)]))
}

function readValue(value: WireValue): Attributes[string] {
  if (value.stringValue !== undefined) return value.stringValue
  if (value.boolValue !== undefined) return value.boolValue
  if (value.intValue !== undefined) return Number(value.intValue)
  if (value.doubleValue !== undefined) return value.doubleValue
  if (value.arrayValue === undefined) throw new Error(`a value without a type: ${JSON.stringify(value)}`)
  return (value.arrayValue.values ?? []).map((item) => String(readValue(item)))
}
