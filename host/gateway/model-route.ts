/**
 * The route to the model: reads the guest's chat request, reserves its maximum cost, forwards it and relays the answer.
 * Refuses invalid chat requests, and requests beyond the run's budget.
 */

import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { sumImages } from '#specs/node/provider-quirks/images.ts'
import {
  type CompletionRequest,
  outputDefaultTokens,
  outputMaxTokens,
  parseCompletionRequest,
  requestMaxBytes,
} from '#specs/protocol/completion-request.ts'
import type { EmbeddingsRequest } from '#specs/protocol/embeddings.ts'
import type { Result } from '#specs/protocol/error.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import type { PriceConfig } from '../config/schema.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { ModelProvider } from '../providers/providers.ts'
import { readUsage, type Upstream, type UpstreamAnswer } from '../providers/upstream.ts'
import { createRedaction } from '../secrets/redaction.ts'
import { Budget, type BudgetLimits, priceOf } from './budget.ts'
import { type AllowedModels, type ChosenModel, chooseModel, requestFor } from './chosen-model.ts'
import { holdAnswer, type ModelReply } from './hold-answer.ts'
import { guestGone, relayAnswer, sendError } from './relay.ts'
import type { RequestReport } from './request-report.ts'

/** Check requests to the model and its answers; each returns the reason of a denial, or null. */
export interface ModelHooks {
  /** Called before sending with the guest's own request; excludes model, key and address. */
  before?(request: CompletionRequest | EmbeddingsRequest, signal: AbortSignal): Promise<string | null>
  /** For chat only, since vectors contain no text. Absent: answers are relayed unchecked. */
  after?(request: CompletionRequest, reply: ModelReply, signal: AbortSignal): Promise<string | null>
}

interface ModelRouteOptions extends AllowedModels {
  /** Models that the upstream may ask instead. */
  readonly fallbacks: readonly ModelProvider[]
  readonly upstream: Upstream
  readonly limits: BudgetLimits
  /** Absent: the budget is a whole. */
  readonly within?: Budget
  readonly requestBodyTimeoutMs: number
  /** How long a guest may not read its answer. */
  readonly guestTimeoutMs: number
  readonly hooks?: ModelHooks
  /** Opens the report of a request. */
  readonly report: (headers: IncomingHttpHeaders, stepModel?: string) => RequestReport
  /** Monotonic clock in milliseconds. */
  readonly now: () => number
}

interface ModelRoute {
  /** Serves one chat request and ends its stream. A rejection is an internal error. */
  serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, signal: AbortSignal): Promise<void>
  /** Sum over completed exchanges. */
  usage(): Usage
  /** The run's budget over all models. */
  readonly budget: Budget
}

/** Maximum open requests of one run: NVIDIA's shared workers refuse more. */
const openMaxRequests = 6
/** Bytes of JSON per token until the provider has reported its count. */
const firstBytesPerToken = 4
/** No accurate provider exceeds this. */
const mostBytesPerToken = 16

export function createModelRoute(options: ModelRouteOptions): ModelRoute {
  const { provider, fallbacks, stepModels, upstream, now } = options
  const redaction = createRedaction(keysOf([provider, ...fallbacks, ...stepModels.values()]))
  const budget = new Budget(options.limits, priceOf(provider), provider.model, options.within)
  /** Of each model that answered. */
  const bytesPerToken = new Map<string, number>()
  let openRequests = 0

  async function serve(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    signal: AbortSignal,
  ): Promise<void> {
    const fail = (error: WireError): void => {
      sendError(stream, error)
      options.report(headers).refuse(error)
    }
    if (openRequests >= openMaxRequests) {
      return fail(gatewayError('limit_concurrency', `More than ${openMaxRequests} model requests at once.`))
    }
    openRequests += 1
    try {
      const read = await readRequest(stream, options.requestBodyTimeoutMs)
      if (!read.ok) return fail(read.error)
      const chosen = chooseModel(read.request.model, options)
      if (!chosen.ok) return fail(chosen.error)
      const { name, model } = chosen.value
      const report = options.report(headers, name === undefined ? undefined : model.model)
      try {
        await forward(stream, { ...read, ...chosen.value }, report, signal)
      } catch (cause) {
        report.fault()
        throw cause
      }
    } finally {
      openRequests -= 1
    }
  }

  async function forward(
    stream: ServerHttp2Stream,
    { request: asked, bytes: allBytes, name, model: first }: Asked,
    report: RequestReport,
    signal: AbortSignal,
  ): Promise<void> {
    const refuse: RequestReport['refuse'] = (error, spent) => {
      sendError(stream, error)
      report.refuse(error, spent)
    }
    const models: [Priced, ...Priced[]] = [priced(first), ...fallbacks.map(priced)]
    const images = sumImages(asked.messages)
    const bytes = allBytes - images.characters
    const inputTokens =
      Math.ceil(bytes / (bytesPerToken.get(first.model) ?? firstBytesPerToken)) + images.tokens
    if (options.hooks?.before !== undefined) report.wait({ for: 'hook' })
    const objection = await options.hooks?.before?.(asked, signal)
    if (typeof objection === 'string') return refuse(deniedBy('request', objection))
    const waitsFrom = now()
    const reserved = await budget.reserve({
      inputTokens,
      outputTokens: Math.min(asked.max_tokens ?? outputDefaultTokens, outputMaxTokens),
      signal,
      ...(models.length === 1 && first === provider ? {} : { models }),
      onWait: () => report.wait({ for: 'budget' }),
    })
    report.addQueued(now() - waitsFrom)
    if (!reserved.ok) return refuse(reserved.error)
    const { maxOutputTokens, settle } = reserved.value
    let used = noUsage
    try {
      let isSent = false
      const onQueued = (ms: number): void => {
        isSent = true
        report.addQueued(ms)
      }
      const answer = await upstream.send(requestFor(asked, name), {
        maxTokens: maxOutputTokens,
        signal,
        onQueued,
        onWait: (wait) => report.wait(wait),
        onRetry: (retry) => report.retry(retry),
      })
      if (!answer.ok) {
        if (!signal.aborted) return refuse(answer.error)
        // `closed` may also mean that its turn never came.
        if (isSent && answer.error.code !== closedError.code) {
          used = mostUsage(inputTokens, asked.stream === true ? 0 : maxOutputTokens)
        }
        return refuse({ ...closedError, message: guestGone }, { usage: used, costUsd: settle(used) })
      }
      const heard = {
        ...answer.value,
        body: atFirst(answer.value.body, () => report.wait({ for: 'rest' })),
      }
      const id = answer.value.headers['x-request-id'] ?? answer.value.headers['nvcf-reqid']
      if (id !== undefined) report.providerRequestId = id
      const answering = answer.value.model ?? first.model
      if (answer.value.model !== undefined) report.fallback = answering
      const price = models.find(({ model }) => model === answering)?.price
      const checked = await checkAnswer(asked, heard, signal)
      if (!checked.ok) {
        const { error, usage, estimated } = checked.error
        used = usage
        return refuse(error, { usage, costUsd: settle(usage, price ?? null), estimated })
      }
      const result = await relayAnswer(stream, checked.value, {
        redaction,
        signal,
        guestTimeoutMs: options.guestTimeoutMs,
        maxTokens: maxOutputTokens,
      })
      const { model, ...outcome } = result
      if (heard.isPaid === true) return report.end({ ...outcome, usage: noUsage, estimated: false })
      used = result.usage
      if (!result.estimated && used.inputTokens > 0 && images.characters === 0) {
        bytesPerToken.set(answering, Math.min(Math.max(bytes / used.inputTokens, 1), mostBytesPerToken))
      }
      const costUsd = settle(used, price ?? null)
      report.end({
        ...outcome,
        ...(model === null || model === answering ? {} : { responseModel: model }),
        ...(costUsd === null ? {} : { costUsd }),
      })
    } finally {
      settle(used)
    }
  }

  /** Holds the answer back until its hook has checked all of it; its cost counts in any case. */
  async function checkAnswer(
    request: CompletionRequest,
    answer: UpstreamAnswer,
    signal: AbortSignal,
  ): Promise<Result<UpstreamAnswer, SpentRefusal>> {
    const after = options.hooks?.after?.bind(options.hooks)
    if (after === undefined) return { ok: true, value: answer }
    const held = await holdAnswer(answer, signal)
    const fail = (error: WireError, body: Buffer): Result<never, SpentRefusal> => ({
      ok: false,
      error: { error, ...readUsage(body, answer) },
    })
    if (!held.ok) return fail(held.error.error, held.error.bytes)
    const objection = await after(request, held.value.reply, signal)
    if (objection !== null) return fail(deniedBy('answer', objection), held.value.bytes)
    return { ok: true, value: held.value.answer }
  }

  return { serve, usage: () => budget.usage, budget }
}

interface Asked extends ChosenModel {
  readonly request: CompletionRequest
  readonly bytes: number
}

interface Priced {
  readonly model: string
  readonly price: PriceConfig | null
}

function priced(one: ModelProvider): Priced {
  return { model: one.model, price: priceOf(one) }
}

/** The keys of all of them. */
export function keysOf(providers: readonly Pick<ModelProvider, 'key'>[]): string[] {
  return providers.flatMap(({ key }) => (key === null ? [] : [key.reveal()]))
}

/** The same body; calls `tell` at its first bytes. */
async function* atFirst(body: UpstreamAnswer['body'], tell: () => void): AsyncGenerator<Uint8Array> {
  let isFirst = true
  for await (const chunk of body) {
    if (isFirst) tell()
    isFirst = false
    yield chunk
  }
}

/** An answer that the guest does not get, although its cost counts. */
interface SpentRefusal {
  readonly error: WireError
  readonly usage: Usage
  readonly estimated: boolean
}

export function deniedBy(what: 'request' | 'answer', reason: string): WireError {
  return gatewayError('hook_denied', `A hook of the user refused this ${what}: ${reason}`)
}

/**
 * For a request that the guest cancelled before its answer began: the server reports nothing, and may have processed
 * everything. Counting it as free would bypass the budget.
 */
function mostUsage(inputTokens: number, outputTokens: number): Usage {
  return { ...noUsage, requests: 1, inputTokens, outputTokens }
}

type Read = { ok: true; request: CompletionRequest; bytes: number } | { ok: false; error: WireError }

async function readRequest(stream: ServerHttp2Stream, timeoutMs: number): Promise<Read> {
  const parts: Buffer[] = []
  let bytes = 0
  using _ = new AwakeTimer(timeoutMs, () => stream.destroy())
  try {
    for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
      const part = chunk as Buffer
      bytes += part.length
      if (bytes > requestMaxBytes) {
        const text = `The request is larger than ${requestMaxBytes} bytes. Send less of the conversation.`
        return { ok: false, error: gatewayError('request_too_large', text) }
      }
      parts.push(part)
    }
  } catch {
    return { ok: false, error: gatewayError('invalid_request', 'The request broke off.') }
  }
  const parsed = parseCompletionRequest(Buffer.concat(parts))
  if (parsed.ok) return { ok: true, request: parsed.value, bytes }
  return { ok: false, error: gatewayError('invalid_request', `Not a chat request: ${parsed.error}.`) }
}

export const closedError = gatewayError('closed', 'The run is over; the gateway is closed.')
