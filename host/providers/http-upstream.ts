/**
 * Sends chat requests to one model server: waits for a turn at the key, adapts the request to the server, and retries
 * only if the server certainly did nothing: too many requests, or an unsupported field.
 */
import { Adaptation, type AdaptedRequest } from '#specs/node/provider-quirks/adaptation.ts'
import type { ServerReport } from '#specs/node/provider-quirks/capabilities.ts'
import { classifyProviderError, readErrorBody } from '#specs/node/provider-quirks/provider-error.ts'
import type { RequestRejection } from '#specs/node/provider-quirks/rejection.ts'
import { outputMaxTokens } from '#specs/protocol/completion-request.ts'
import type { Result } from '#specs/protocol/error.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import { directNetwork, type Network } from '../net/network.ts'
import { createKeyRedaction } from '../secrets/redaction.ts'
import { CapabilityCache } from './capability-cache.ts'
import {
  type ExchangeFailure,
  type ExchangeTimeouts,
  exchange,
  headerText,
  watchBody,
} from './http-exchange.ts'
import type { Provider } from './providers.ts'
import { type QueueTurn, sharedQueue, type TurnRequest } from './queue.ts'
import type { SendOptions, Upstream, UpstreamAnswer, UpstreamRetry } from './upstream.ts'
import { modelRemedy, toolsRemedy } from './upstream-error.ts'
import type { ReportedFailure } from './usage-tap.ts'

export interface UpstreamTimeouts extends ExchangeTimeouts {
  /** For a turn at the key, including pauses that the server asked for. */
  readonly queueTimeoutMs: number
}

export interface HttpUpstreamOptions {
  readonly provider: Provider & { readonly baseUrl: string }
  readonly timeouts: UpstreamTimeouts
  /** Shares the key with other runs. */
  readonly runId: string
  readonly network?: Network
  /** Absent: reports are remembered for this run only. */
  readonly capabilityCache?: CapabilityCache
  /** Called for pauses and unsupported fields, which a user may wonder about. */
  readonly log?: (fields: object, text: string) => void
}

const responseHeaderMaxBytes = 32 * 1024
/** Response headers that the guest may see. */
const shownHeaders = ['retry-after', 'x-request-id', 'nvcf-reqid'] as const
/** Maximum open requests per key, unless configured. */
export const defaultMaxConcurrent = 4

export function createHttpUpstream(options: HttpUpstreamOptions): Upstream {
  const {
    provider,
    timeouts,
    runId,
    network = directNetwork,
    capabilityCache = new CapabilityCache(null),
    log,
  } = options
  const { baseUrl, model } = provider
  const key = provider.key?.reveal() ?? null
  const redaction = createKeyRedaction(key)
  const queue = sharedQueue(baseUrl, key, {
    maxConcurrent: provider.maxConcurrent ?? defaultMaxConcurrent,
    requestsPerMinute: provider.requestsPerMinute ?? null,
  })
  const dispatcher = network.dispatcher({
    headersTimeout: timeouts.firstByteTimeoutMs,
    bodyTimeout: 0,
    maxHeaderSize: responseHeaderMaxBytes,
    // One connection per request: llama-server may silently close a kept connection after a stream, and the failed
    // request could not be distinguished from an executed one.
    pipelining: 0,
  })

  /** With an answer, the turn ends with its body; with a failure, the caller ends it. */
  async function ask(
    { body, streamed }: AdaptedRequest,
    turn: QueueTurn,
    signal: AbortSignal,
  ): Promise<{ ok: true; answer: UpstreamAnswer } | ExchangeFailure> {
    const got = await exchange(body, streamed, signal, { provider, dispatcher, timeouts })
    if (!got.ok) return got
    turn.accepted()
    const { response, contentType } = got
    if (response.body.destroyed) turn.release()
    else response.body.once('close', () => turn.release())
    const headers: Record<string, string> = {}
    for (const name of shownHeaders) {
      const value = headerText(response.headers[name])
      if (value !== undefined && /^[\x20-\x7e]{1,200}$/.test(value)) headers[name] = redaction.text(value)
    }
    const answer = {
      streamed: contentType === 'text/event-stream',
      headers,
      requestBytes: Buffer.byteLength(body),
      body: watchBody(response, timeouts.idleTimeoutMs),
      onFailure: ({ failure, retryAfterMs }: ReportedFailure) => {
        const isBusy = failure === 'rate_limited' || (failure === 'overloaded' && retryAfterMs !== null)
        if (!isBusy) return
        const pauseMs = Math.round(turn.refused(retryAfterMs))
        log?.({ runId, failure, pauseMs }, 'the model server rate-limits the request in its answer')
      },
    }
    return { ok: true, answer }
  }

  return {
    async send(
      request,
      { maxTokens, signal, onQueued, onWait, onRetry }: SendOptions,
    ): Promise<Result<UpstreamAnswer, WireError>> {
      const until = performance.now() + timeouts.queueTimeoutMs
      const adaptation = new Adaptation(model)
      for (let again = false; ; again = true) {
        adaptation.known = await capabilityCache.recall(baseUrl, model)
        const { report } = adaptation
        if (request.tools !== undefined && !adaptation.capabilities.tools)
          return fail(gatewayError('invalid_request', toolsRemedy(model)))
        const adapted = adaptation.build(request, Math.min(maxTokens, outputMaxTokens))
        const maxWaitMs = Math.max(0, until - performance.now())
        const turn = await queue.take({ runId, model, signal, maxWaitMs, again, ...tellWaits(onWait) })
        if (!turn.ok) return fail(noTurn(turn.error, timeouts.queueTimeoutMs, queue.heldMs))
        onQueued?.(turn.value.waitedMs)
        onWait?.({ for: 'answer' })
        const got = await ask(adapted, turn.value, signal)
        if (got.ok) {
          await remember(adaptation.learned, report)
          return { ok: true, value: got.answer }
        }
        const pauseMs = pauseAfter(got, turn.value)
        turn.value.release()
        if (pauseMs !== null) {
          log?.(
            { runId, status: got.status, pauseMs: Math.round(pauseMs) },
            'the model server is rate-limiting requests',
          )
          if (isPassing(got) && performance.now() + pauseMs < until) {
            onRetry?.(retryOf(got, pauseMs))
            continue
          }
          return fail({ ...got.error, retryAfterMs: Math.round(pauseMs) })
        }
        const rejection = got.status === null ? null : adaptation.readRejection(got.status, got.body)
        if (rejection !== null && adaptation.adapt(rejection)) {
          log?.({ runId, ...rejection }, 'the model server rejected a field of the request')
          onRetry?.(retryOf(got, 0))
          continue
        }
        return fail(await explain(got, rejection))
      }
    },
    close: () => dispatcher.destroy(),
  }

  /** What one more request has proven; a model that answers is not gone. */
  async function remember(learned: ServerReport, report: ServerReport): Promise<void> {
    const isBack = report.isGone === true || report.refusedTools === true
    const news = isBack ? { ...learned, isGone: false, refusedTools: false } : learned
    if (Object.keys(news).length > 0) await capabilityCache.learn(baseUrl, model, news)
  }

  /** Explains a failure that a person must fix; remembered, since it is a property of the model. */
  async function explain(got: ExchangeFailure, rejection: RequestRejection | null): Promise<WireError> {
    if (rejection?.kind === 'tools') {
      await capabilityCache.learn(baseUrl, model, { refusedTools: true })
      return { ...got.error, message: `${got.error.message} (${toolsRemedy(model)})` }
    }
    // Text instead of JSON means that the path does not exist: the address is wrong, not the model.
    const isModelGone = got.status === 410 || (got.status === 404 && got.body.trimStart().startsWith('{'))
    if (!isModelGone) return got.error
    await capabilityCache.learn(baseUrl, model, { isGone: true })
    return {
      ...got.error,
      message: `${got.error.message} (${modelRemedy(provider, await capabilityCache.gone(baseUrl))})`,
    }
  }
}

/** Pauses the queue as the server asked; null if it did not ask. */
export function pauseAfter({ status, retryAfterMs }: ExchangeFailure, turn: QueueTurn): number | null {
  if (status === 429) return turn.refused(retryAfterMs)
  if (status === 503 && retryAfterMs !== null) return turn.refused(retryAfterMs)
  if (status !== null) turn.accepted()
  return null
}

/** Whether "too many" is temporary, and not about the account or this request's length. */
export function isPassing({ status, body }: ExchangeFailure): boolean {
  return status === 429 && classifyProviderError(readErrorBody(body), status) === 'rate_limited'
}

/** Passes on what a request waits for in the queue. */
export function tellWaits(onWait: SendOptions['onWait']): Pick<TurnRequest, 'onWait'> {
  if (onWait === undefined) return {}
  return {
    onWait: (wait, inMs) =>
      onWait({ for: wait.for, position: wait.position, ...(inMs === undefined ? {} : { inMs }) }),
  }
}

export function retryOf({ status, error }: ExchangeFailure, delayMs: number): UpstreamRetry {
  return {
    status: status ?? error.status,
    cause: `${error.code}: ${error.message}`,
    delayMs: Math.round(delayMs),
  }
}

export function noTurn(why: 'cancelled' | 'timed_out', timeoutMs: number, heldMs: number): WireError {
  if (why === 'cancelled')
    return gatewayError('closed', 'The request was cancelled while it waited for its turn.')
  const text =
    `The request waited ${timeoutMs / 1000} s for its turn at the model server: its rate or the number of requests at ` +
    'once is used up by requests with the same key. Try again later, or run less at once.'
  return { ...gatewayError('upstream_busy', text), retryAfterMs: Math.round(heldMs) }
}

function fail(error: WireError): Result<UpstreamAnswer, WireError> {
  return { ok: false, error }
}
