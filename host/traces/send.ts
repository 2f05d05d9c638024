/** One request to the collector: bounded in time and in what is read of the answer, no redirects. Failures are values. */
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { type Dispatcher, request } from 'undici'
import { parseRetryAfter } from '#specs/node/provider-quirks/provider-error.ts'
import { parseJson } from '../files/json.ts'
import { ProxyError } from '../net/user-proxy.ts'
import { contentTypes, encodeSpans, type SpanSource } from './otlp.ts'
import type { TraceSpan } from './span.ts'
import type { TraceSettings } from './trace-settings.ts'

export type SendResult =
  /** `rejected`: spans that the collector refused although it took the request. */
  | { readonly isSent: true; readonly rejected: number }
  | { readonly isSent: false; readonly failure: SendFailure }

export interface SendFailure {
  /** For people: what was seen and what to do. Has no words of the collector. */
  readonly text: string
  /** Whether the same request may succeed later. */
  readonly isRetryable: boolean
  /** The pause that the collector demands; null: none. */
  readonly retryAfterMs: number | null
}

/** By the OTLP specification; every other status is final. */
const retryableStatus: ReadonlySet<number> = new Set([429, 502, 503, 504])
const answerMaxBytes = 64 * 1024
const compress = promisify(gzip)

export interface Sender {
  send(spans: readonly TraceSpan[], signal: AbortSignal): Promise<SendResult>
}

/** @param dispatcher opened at the first request */
export function createSender(
  settings: TraceSettings,
  source: SpanSource,
  dispatcher: () => Dispatcher,
): Sender {
  const { url, protocol, isCompressed, timeoutMs } = settings
  return {
    async send(spans, signal) {
      const encoded = encodeSpans(spans, source, protocol)
      const body = isCompressed ? await compress(encoded) : encoded
      const ends = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
      try {
        const response = await request(url, {
          dispatcher: dispatcher(),
          method: 'POST',
          headers: headersOf(settings),
          body,
          signal: ends,
        })
        const answer = await readAnswer(response.body)
        const { statusCode } = response
        if (statusCode >= 200 && statusCode <= 299)
          return { isSent: true, rejected: rejectedSpans(answer, protocol) }
        return {
          isSent: false,
          failure: statusFailure(statusCode, response.headers['retry-after'], settings),
        }
      } catch (cause) {
        return { isSent: false, failure: unreachable(cause, settings) }
      }
    },
  }
}

/** The address as it may be shown: a query may hold a key. */
export function shownUrl(url: string): string {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname}`
}

function headersOf({ headers, protocol, isCompressed, resource }: TraceSettings): Record<string, string> {
  const given = [...headers].map(([name, value]) => [name, value.reveal()] as const)
  return {
    'user-agent': `caisson/${resource['service.version']} (+traces)`,
    ...Object.fromEntries(given),
    'content-type': contentTypes[protocol],
    ...(isCompressed ? { 'content-encoding': 'gzip' } : {}),
  }
}

async function readAnswer(body: Dispatcher.ResponseData['body']): Promise<Buffer> {
  const parts: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    parts.push(chunk as Buffer)
    size += (chunk as Buffer).length
    if (size > answerMaxBytes) break
  }
  return Buffer.concat(parts).subarray(0, answerMaxBytes)
}

function statusFailure(
  status: number,
  retryAfter: string | string[] | undefined,
  { url, urlSetting }: TraceSettings,
): SendFailure {
  const remedies: Readonly<Record<number, string>> = {
    401: 'Check OTEL_EXPORTER_OTLP_HEADERS.',
    403: 'Check OTEL_EXPORTER_OTLP_HEADERS.',
    404: `Check the path of ${urlSetting}; OTEL_EXPORTER_OTLP_ENDPOINT is without /v1/traces.`,
  }
  return {
    text: `${shownUrl(url)} answered ${status}. ${remedies[status] ?? 'See the log of the collector.'}`,
    isRetryable: retryableStatus.has(status),
    retryAfterMs: parseRetryAfter(Array.isArray(retryAfter) ? retryAfter[0] : retryAfter),
  }
}

function unreachable(cause: unknown, { url, urlSetting, timeoutMs }: TraceSettings): SendFailure {
  return {
    text: `${shownUrl(url)} cannot be reached (${causeOf(cause, timeoutMs)}). Start the collector, or correct or unset ${urlSetting}.`,
    isRetryable: true,
    retryAfterMs: null,
  }
}

function causeOf(cause: unknown, timeoutMs: number): string {
  if (cause instanceof ProxyError) return cause.message
  if (!(cause instanceof Error)) return 'unknown'
  if (cause.name === 'TimeoutError') return `no answer in ${timeoutMs / 1000} s`
  // With several addresses of a name, the first failure is as good as any.
  const first = cause instanceof AggregateError ? cause.errors[0] : cause
  return 'code' in first && typeof first.code === 'string' ? first.code : cause.name
}

/** Exported for tests: `partialSuccess.rejectedSpans` of an `ExportTraceServiceResponse`; 0 for what cannot be read. */
export function rejectedSpans(answer: Buffer, protocol: TraceSettings['protocol']): number {
  if (protocol === 'http/json') {
    const read = parseJson(answer.toString('utf8')) as { partialSuccess?: { rejectedSpans?: unknown } } | null
    const count = Number(read?.partialSuccess?.rejectedSpans ?? 0)
    return Number.isSafeInteger(count) ? count : 0
  }
  // Field 1, a message, whose field 1 is a varint. A default of 0 is not written.
  if (answer[0] !== 0x0a || answer[2] !== 0x08) return 0
  let count = 0
  for (let at = 3, factor = 1; at < Math.min(answer.length, 10); at += 1, factor *= 128) {
    const digit = answer[at] ?? 0
    count += (digit & 0x7f) * factor
    if (digit < 0x80) break
  }
  return count
}
