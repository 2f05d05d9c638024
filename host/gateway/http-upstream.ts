/**
 * Sends chat requests to one model server. The request is built anew: path, headers and body are the host's own;
 * the key goes to the provider's origin only, and no redirect is followed.
 */
import { Agent, type Dispatcher, request as send } from 'undici'
import { buildProviderBody, type ChatRequest } from './chat-request.ts'
import { gatewayError, type WireError } from './gateway-error.ts'
import type { Provider } from './providers.ts'
import { redactText } from './redact.ts'
import { type Upstream, type UpstreamAnswer, UpstreamBreak } from './upstream.ts'
import { errorBodyMaxBytes, readUpstreamError } from './upstream-error.ts'

export interface UpstreamTimeouts {
  /** From the request to the first byte of an answer. Long prompts take minutes on shared servers. */
  readonly firstByteTimeoutMs: number
  /** Between two chunks of an answer. */
  readonly idleTimeoutMs: number
}

const userAgent = 'caisson/0.1 (+model-gateway)'
const connectTimeoutMs = 15_000
const responseHeaderMaxBytes = 32 * 1024
/** Headers of an answer that the guest may see. */
const shownHeaders = ['retry-after', 'x-request-id', 'nvcf-reqid'] as const

/** @param options.baseUrl,options.key as a provider has them */
export function createHttpUpstream(options: {
  provider: Provider & { readonly baseUrl: string }
  timeouts: UpstreamTimeouts
}): Upstream {
  const { provider, timeouts } = options
  const key = provider.key?.reveal() ?? null
  const dispatcher = new Agent({
    connect: { timeout: connectTimeoutMs },
    headersTimeout: timeouts.firstByteTimeoutMs,
    bodyTimeout: 0,
    maxHeaderSize: responseHeaderMaxBytes,
    // A connection for each request: llama-server was seen to close a kept one without a word after a stream, and the
    // request that then meets the closed connection cannot be told from one that was acted on.
    pipelining: 0,
  })
  /** Some servers refuse `stream_options`; they are asked once, then never again. */
  let askUsage = true

  async function attempt(request: ChatRequest, maxTokens: number, signal: AbortSignal): Promise<Attempt> {
    const body = buildProviderBody(request, { model: provider.model, maxTokens, askUsage })
    const response = await send(`${provider.baseUrl}/chat/completions`, {
      dispatcher,
      method: 'POST',
      headers: requestHeaders(provider.name, key, request.stream === true),
      body,
      signal,
    })
    return { response, requestBytes: Buffer.byteLength(body) }
  }

  return {
    async send(request, { maxTokens, signal }) {
      try {
        let tried = await attempt(request, maxTokens, signal)
        let failure = await readFailure(tried.response, provider.name, key, timeouts)
        if (failure !== null && askUsage && request.stream === true && refusesUsage(failure)) {
          askUsage = false
          tried = await attempt(request, maxTokens, signal)
          failure = await readFailure(tried.response, provider.name, key, timeouts)
          // Refused all the same: the reason was another one.
          if (failure !== null && failure.status === 400) askUsage = true
        }
        if (failure !== null) return { ok: false, error: failure }
        return { ok: true, value: toAnswer(tried, key, timeouts) }
      } catch (cause) {
        return { ok: false, error: describeFailure(cause, provider.baseUrl, timeouts) }
      }
    },
    close: () => dispatcher.destroy(),
  }
}

interface Attempt {
  readonly response: Dispatcher.ResponseData
  readonly requestBytes: number
}

function requestHeaders(
  name: Provider['name'],
  key: string | null,
  streamed: boolean,
): Record<string, string> {
  return {
    'content-type': 'application/json',
    accept: streamed ? 'text/event-stream' : 'application/json',
    'user-agent': userAgent,
    ...(key === null ? {} : { authorization: `Bearer ${key}` }),
    // Holds a queued request open instead of a 202 with an address to poll.
    ...(name === 'nvidia' ? { 'nvcf-poll-seconds': '300' } : {}),
  }
}

/** What is wrong with an answer by its head; null when its body is the answer. Reads the body of a failure, bounded. */
async function readFailure(
  response: Dispatcher.ResponseData,
  provider: Provider['name'],
  key: string | null,
  timeouts: UpstreamTimeouts,
): Promise<WireError | null> {
  const status = response.statusCode
  if (status === 200) {
    if (contentTypeOf(response) !== null) return null
    const shown = redactText(headerText(response.headers['content-type']) ?? 'no content type', key).slice(
      0,
      100,
    )
    discard(response)
    return gatewayError(
      'upstream_broken',
      `The model server answered 200 with ${shown} instead of a model's answer.`,
    )
  }
  if (status >= 400 && status <= 599) {
    const body = await readBounded(response, timeouts.idleTimeoutMs)
    return readUpstreamError(status, body, key, provider)
  }
  discard(response)
  if (status >= 300 && status <= 399) {
    return gatewayError(
      'upstream_redirect',
      `The model server answered with a redirect (${status}), which is not followed, so that the key goes nowhere else.` +
        ' Set the final address in CAISSON_LLM_URL.',
    )
  }
  if (status === 202) {
    return gatewayError(
      'upstream_pending',
      'The model server put the request into a queue (202). Try again later.',
    )
  }
  return gatewayError(
    'upstream_broken',
    `The model server answered with the status ${status}, which has no meaning here.`,
  )
}

function toAnswer(
  { response, requestBytes }: Attempt,
  key: string | null,
  timeouts: UpstreamTimeouts,
): UpstreamAnswer {
  const headers: Record<string, string> = {}
  for (const name of shownHeaders) {
    const value = headerText(response.headers[name])
    if (value !== undefined && /^[\x20-\x7e]{1,200}$/.test(value)) headers[name] = redactText(value, key)
  }
  const streamed = contentTypeOf(response) === 'text/event-stream'
  return { streamed, headers, requestBytes, body: watchBody(response, timeouts.idleTimeoutMs) }
}

/** The body with the time-out between chunks; only the time spent waiting for the server counts. */
async function* watchBody(
  response: Dispatcher.ResponseData,
  idleTimeoutMs: number,
): AsyncGenerator<Uint8Array> {
  const stalled = gatewayError(
    'upstream_timeout',
    `The model server was silent for ${idleTimeoutMs / 1000} s.`,
  )
  const chunks = response.body[Symbol.asyncIterator]()
  try {
    for (;;) {
      const timer = setTimeout(() => response.body.destroy(new UpstreamBreak(stalled)), idleTimeoutMs)
      const next = await chunks.next().finally(() => clearTimeout(timer))
      if (next.done === true) return
      yield next.value as Uint8Array
    }
  } catch (cause) {
    if (cause instanceof UpstreamBreak) throw cause
    const reason = reasonOf(cause)
    throw new UpstreamBreak(
      gatewayError(
        'upstream_broken',
        `The connection to the model server ended in the middle of the answer (${reason}).`,
      ),
    )
  } finally {
    discard(response)
  }
}

async function readBounded(response: Dispatcher.ResponseData, idleTimeoutMs: number): Promise<string> {
  const parts: Uint8Array[] = []
  let size = 0
  try {
    for await (const chunk of watchBody(response, idleTimeoutMs)) {
      parts.push(chunk)
      size += chunk.byteLength
      if (size >= errorBodyMaxBytes) break
    }
  } catch {
    // The status is known; what came of the reason is enough.
  }
  return Buffer.concat(parts).subarray(0, errorBodyMaxBytes).toString('utf8')
}

function contentTypeOf(response: Dispatcher.ResponseData): 'text/event-stream' | 'application/json' | null {
  const type = headerText(response.headers['content-type'])?.split(';')[0]?.trim().toLowerCase()
  return type === 'text/event-stream' || type === 'application/json' ? type : null
}

function refusesUsage(failure: WireError): boolean {
  if (failure.status !== 400 && failure.status !== 422) return false
  return /stream_options|include_usage|extra (inputs|fields)|unrecogni[sz]ed|unknown (field|parameter|argument)|not permitted/i.test(
    failure.message,
  )
}

function describeFailure(cause: unknown, baseUrl: string, timeouts: UpstreamTimeouts): WireError {
  const code = codeOf(cause)
  if (code === 'UND_ERR_HEADERS_TIMEOUT') {
    const seconds = timeouts.firstByteTimeoutMs / 1000
    return gatewayError('upstream_timeout', `The model server did not begin to answer within ${seconds} s.`)
  }
  if (code === 'UND_ERR_HEADERS_OVERFLOW' || code.startsWith('HPE_')) {
    return gatewayError('upstream_broken', `The model server's answer is not proper HTTP (${code}).`)
  }
  const { origin } = new URL(baseUrl)
  return gatewayError(
    'upstream_unreachable',
    `The model server ${origin} cannot be reached (${reasonOf(cause)}). Check the network and the address.`,
  )
}

function codeOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : ''
}

/** A short word for a network failure; never the whole message, which may quote what was sent or received. */
function reasonOf(cause: unknown): string {
  const code = codeOf(cause) || (cause instanceof Error ? codeOf(cause.cause) : '')
  return code || (cause instanceof Error ? cause.name : 'unknown')
}

function headerText(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value
}

/** Lets go of a body that nobody reads; the connection is closed with it. */
function discard(response: Dispatcher.ResponseData): void {
  response.body.on('error', () => {})
  response.body.destroy()
}
