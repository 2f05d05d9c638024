/**
 * Sends chat requests to one model server: waits for a turn at the key, adapts the request to the server, and retries
 * only if the server certainly did nothing: too many requests, or an unsupported field.
 */
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { operationUrl, type ServerKindName, serverKinds } from '#specs/node/model-protocols/server-kinds.ts'
import {
  type AdaptableRequest,
  Adaptation,
  type AdaptedRequest,
} from '#specs/node/provider-quirks/adaptation.ts'
import { mergeReports, type ServerReport } from '#specs/node/provider-quirks/capabilities.ts'
import { classifyProviderError, readErrorBody } from '#specs/node/provider-quirks/provider-error.ts'
import type { RequestRejection } from '#specs/node/provider-quirks/rejection.ts'
import {
  type CompletionRequest,
  outputDefaultTokens,
  outputMaxTokens,
} from '#specs/protocol/completion-request.ts'
import type { Result } from '#specs/protocol/error.ts'
import { formatTime } from '../files/format.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import { directNetwork, type Network } from '../net/network.ts'
import { createKeyRedaction } from '../secrets/redaction.ts'
import { CapabilityCache } from './capability-cache.ts'
import {
  type ExchangeAnswer,
  type ExchangeFailure,
  type ExchangeTimeouts,
  exchange,
  headerText,
  modelRemedy,
  toolsRemedy,
  watchBody,
} from './http-exchange.ts'
import type { ModelHolds } from './model-holds.ts'
import type { ModelProvider } from './providers.ts'
import { type QueueTurn, sharedQueue, type TurnRequest } from './queue.ts'
import type { SharedKeys } from './shared-keys.ts'
import { translateStream, translateWhole } from './translate-answer.ts'
import { Translation } from './translation.ts'
import type { SendOptions, Upstream, UpstreamAnswer, UpstreamRetry } from './upstream.ts'

export interface UpstreamTimeouts extends ExchangeTimeouts {
  /** For a turn at the key, including pauses that the server asked for. */
  readonly queueTimeoutMs: number
}

export interface HttpUpstreamOptions {
  readonly provider: ModelProvider & { readonly baseUrl: string }
  readonly timeouts: UpstreamTimeouts
  /** Shares the key with other runs. */
  readonly runId: string
  readonly network?: Network
  /** Absent: reports are remembered for this run only. */
  readonly capabilityCache?: CapabilityCache
  /** Absent: what other processes learned of the key is not known. */
  readonly modelHolds?: ModelHolds
  /** Absent: no other host uses the key. */
  readonly sharedKeys?: SharedKeys
  /** Called for pauses and unsupported fields, which a user may wonder about. */
  readonly log?: (fields: object, text: string) => void
}

const responseHeaderMaxBytes = 32 * 1024
/** Response headers that the guest may see. */
const shownHeaders = ['retry-after', 'x-request-id', 'nvcf-reqid'] as const
/** Maximum open requests per key, unless configured. */
const defaultMaxConcurrent = 4

/** One request and its tries. */
interface ServerRequest<T> {
  readonly operation: '/chat/completions' | '/embeddings'
  /** The next try; an error ends the request. */
  build(): Promise<Result<AdaptedRequest, WireError>>
  /** Reads an accepted answer, and releases the turn when the answer has ended. */
  accept(answer: ExchangeAnswer, turn: QueueTurn): Promise<Result<T, WireError>>
  /** What the server rejected, if a changed request can be sent; else null. */
  adapt(failure: ExchangeFailure): object | null
  /** Explains a failure that a person must fix. */
  explain(failure: ExchangeFailure): Promise<WireError>
}

/** Waits for a turn, sends, and repeats what the server certainly did not execute. */
export function openServer(options: HttpUpstreamOptions) {
  const { provider, timeouts, runId, network = directNetwork, modelHolds, sharedKeys, log } = options
  const { baseUrl, model } = provider
  const place = { kind: 'openai-compatible', ...provider } as const
  const key = provider.key?.reveal() ?? null
  const queue = sharedQueue(
    baseUrl,
    key,
    {
      maxConcurrent: provider.maxConcurrent ?? defaultMaxConcurrent,
      requestsPerMinute: provider.requestsPerMinute ?? null,
    },
    sharedKeys,
  )
  const dispatcher = network.dispatcher({
    headersTimeout: timeouts.firstByteTimeoutMs,
    bodyTimeout: 0,
    maxHeaderSize: responseHeaderMaxBytes,
    // One connection per request: llama-server may silently close a kept connection after a stream, and the failed
    // request could not be distinguished from an executed one.
    pipelining: 0,
  })

  async function request<T>(
    { operation, build, accept, adapt, explain }: ServerRequest<T>,
    { signal, onQueued, onWait, onRetry }: Omit<SendOptions, 'maxTokens'>,
  ): Promise<Result<T, WireError>> {
    using clock = new AwakeTimer(Number.POSITIVE_INFINITY, () => undefined, { unref: true })
    const left = () => timeouts.queueTimeoutMs - clock.passedMs
    for (let again = false; ; again = true) {
      const built = await build()
      if (!built.ok) return built
      const maxWaitMs = Math.max(0, left())
      await modelHolds?.tell(queue, baseUrl, key)
      await sharedKeys?.join(queue, baseUrl, key)
      const taken = await queue.take({ runId, model, signal, maxWaitMs, again, ...tellWaits(onWait) })
      if (!taken.ok)
        return fail(
          taken.error === 'limited'
            ? limited(model, queue.limitedMs(model), queue.refusalWords(model, runId))
            : noTurn(taken.error, timeouts.queueTimeoutMs, queue.heldMs(model)),
        )
      const turn = taken.value
      onQueued?.(turn.waitedMs)
      onWait?.({ for: 'answer' })
      const { body, streamed } = built.value
      const got = await exchange(body, streamed, signal, {
        ...{ provider, dispatcher, timeouts },
        url: operationUrl(place, model, operation),
      })
      if (got.ok) {
        turn.accepted()
        return await accept(got, turn)
      }
      const pauseMs = pauseAfter(got, turn)
      turn.release()
      if (pauseMs !== null) {
        const seen = { runId, status: got.status, pauseMs: Math.round(pauseMs) }
        log?.(seen, 'the model server is rate-limiting requests')
        const limitedMs = queue.limitedMs(model)
        const hold = { heldMs: queue.heldMs(model), limitedMs }
        await modelHolds?.keep(baseUrl, key, model, hold)
        await sharedKeys?.keep(baseUrl, key, model, hold)
        if (limitedMs > 0 && (got.status !== 429 || isPassing(got)))
          return fail(limited(model, limitedMs, got.error.message))
        if (!isPassing(got) || pauseMs >= left())
          return fail({ ...got.error, retryAfterMs: Math.round(pauseMs) })
        onRetry?.(retryOf(got, pauseMs))
        continue
      }
      const rejected = adapt(got)
      if (rejected === null) return fail(await explain(got))
      log?.({ runId, ...rejected }, 'the model server rejected a field of the request')
      onRetry?.(retryOf(got, 0))
    }
  }

  return { request, close: () => dispatcher.destroy() }
}

export function createHttpUpstream(options: HttpUpstreamOptions): Upstream {
  const { provider, timeouts, runId, capabilityCache = new CapabilityCache(null), log } = options
  const { baseUrl, model, maxImages } = provider
  const { kind = 'openai-compatible' } = provider
  const redaction = createKeyRedaction(provider.key?.reveal() ?? null)
  const server = openServer(options)
  const translation = Translation.of(kind, model)

  function send(
    request: CompletionRequest,
    { maxTokens, ...given }: SendOptions,
  ): Promise<Result<UpstreamAnswer, WireError>> {
    const adaptation = new Adaptation(model)
    let { report } = adaptation
    let rejection: RequestRejection | null = null
    let requestBytes = 0
    return server.request<UpstreamAnswer>(
      {
        operation: '/chat/completions',
        build: async () => {
          const configured = maxImages === undefined ? {} : { maxImages }
          adaptation.known = mergeReports(configured, await capabilityCache.recall(baseUrl, model))
          report = adaptation.report
          if (request.tools !== undefined && !adaptation.capabilities.tools)
            return fail(gatewayError('invalid_request', toolsRemedy(model)))
          const adapted = adaptation.build(
            withLengthField(request, kind),
            Math.min(maxTokens, outputMaxTokens),
            translation === null ? undefined : (fields) => translation.write(fields),
          )
          requestBytes = Buffer.byteLength(adapted.body)
          return { ok: true, value: { ...adapted, streamed: translation !== null || adapted.streamed } }
        },
        accept: async (got, turn) => {
          const answer = translated(answerOf(got, turn, requestBytes), request.stream === true)
          await remember(adaptation.learned, report)
          return { ok: true, value: answer }
        },
        adapt: ({ status, body }) => {
          if (status === null) return null
          const translatedRejection = translation?.readRejection(status, body) ?? null
          if (translatedRejection === 'again') return { kind: 'thinking' }
          rejection = translatedRejection ?? adaptation.readRejection(status, body)
          return rejection !== null && adaptation.adapt(rejection) ? rejection : null
        },
        explain: (got) => explain(got, rejection),
      },
      given,
    )
  }

  /** The turn ends with the answer's body. */
  function answerOf(
    { response, contentType }: ExchangeAnswer,
    turn: QueueTurn,
    requestBytes: number,
  ): UpstreamAnswer {
    if (response.body.destroyed) turn.release()
    else response.body.once('close', () => turn.release())
    const headers: Record<string, string> = {}
    for (const name of shownHeaders) {
      const value = headerText(response.headers[name])
      if (value !== undefined && /^[\x20-\x7e]{1,200}$/.test(value)) headers[name] = redaction.text(value)
    }
    return {
      streamed: contentType === 'text/event-stream',
      headers,
      requestBytes,
      body: watchBody(response, timeouts.idleTimeoutMs),
      onFailure: ({ failure, retryAfterMs }) => {
        const isBusy = failure === 'rate_limited' || (failure === 'overloaded' && retryAfterMs !== null)
        if (!isBusy) return
        const pauseMs = Math.round(turn.refused(retryAfterMs))
        log?.({ runId, failure, pauseMs }, 'the model server rate-limits the request in its answer')
      },
    }
  }

  /** The answer as one of chat completions. */
  function translated(answer: UpstreamAnswer, isStreamWanted: boolean): UpstreamAnswer {
    if (translation === null) return answer
    const given = {
      body: answer.body,
      streamed: answer.streamed,
      decoder: translation.decoder(),
      keep: (callId: string, state: unknown) => translation.keep(callId, state),
    }
    const body = isStreamWanted ? translateStream(given) : translateWhole(given)
    return { ...answer, streamed: isStreamWanted, body }
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

  return { send, close: server.close }
}

/** The limit of the answer's length under the name that this kind knows. */
function withLengthField(request: CompletionRequest, kind: ServerKindName): AdaptableRequest {
  if (serverKinds[kind].maxTokensField === 'max_tokens') return request
  return { ...request, max_completion_tokens: request.max_tokens ?? outputDefaultTokens }
}

/** Pauses the queue as the server asked; null if it did not ask. */
function pauseAfter({ status, retryAfterMs, error }: ExchangeFailure, turn: QueueTurn): number | null {
  if (status === 429) return turn.refused(retryAfterMs, error.message)
  if (status === 503 && retryAfterMs !== null) return turn.refused(retryAfterMs, error.message)
  if (status !== null) turn.accepted()
  return null
}

/** Whether "too many" is temporary, and not about the account or this request's length. */
function isPassing({ status, body }: ExchangeFailure): boolean {
  return status === 429 && classifyProviderError(readErrorBody(body), status) === 'rate_limited'
}

/** Passes on what a request waits for in the queue. */
function tellWaits(onWait: SendOptions['onWait']): Pick<TurnRequest, 'onWait'> {
  if (onWait === undefined) return {}
  return {
    onWait: (wait, inMs) =>
      onWait({ for: wait.for, position: wait.position, ...(inMs === undefined ? {} : { inMs }) }),
  }
}

function retryOf({ status, error }: ExchangeFailure, delayMs: number): UpstreamRetry {
  return {
    status: status ?? error.status,
    cause: `${error.code}: ${error.message}`,
    delayMs: Math.round(delayMs),
  }
}

function noTurn(why: 'cancelled' | 'timed_out', timeoutMs: number, heldMs: number): WireError {
  if (why === 'cancelled')
    return gatewayError('closed', 'The request was cancelled while it waited for its turn.')
  const text =
    `The request waited ${timeoutMs / 1000} s for its turn at the model server: its rate or the number of requests at ` +
    'once is used up by requests with the same key. Try again later, or run less at once.'
  return { ...gatewayError('upstream_busy', text), retryAfterMs: Math.round(heldMs) }
}

/** @param said the server's own words, where this run heard them */
function limited(model: string, limitedMs: number, said?: string): WireError {
  const until = formatTime(Date.now() + limitedMs)
  const text = `The model server takes requests for ${model} again after ${until}`
  return {
    ...gatewayError('limit_model', said === undefined ? `${text}.` : `${text}: ${said}`),
    retryAfterMs: Math.round(limitedMs),
  }
}

function fail(error: WireError): Result<never, WireError> {
  return { ok: false, error }
}
