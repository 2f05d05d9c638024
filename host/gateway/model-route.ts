/**
 * The route to the model: reads the guest's chat request, reserves what it may cost, has the upstream answer it, and
 * carries the answer back. Refuses what is not a chat request, and what the run's budget does not allow.
 */
import type { ServerHttp2Stream } from 'node:http2'
import type { EmbeddingsRequest } from '#specs/protocol/embeddings.ts'
import type { Result } from '#specs/protocol/error.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import {
  type ChatRequest,
  outputDefaultTokens,
  outputMaxTokens,
  parseChatRequest,
  requestMaxBytes,
} from '../providers/chat-request.ts'
import type { Provider } from '../providers/providers.ts'
import type { Upstream, UpstreamAnswer } from '../providers/upstream.ts'
import { readUsage } from '../providers/usage-tap.ts'
import { Budget, type BudgetLimits, priceOf } from './budget.ts'
import { holdAnswer, type SaidByModel } from './hold-answer.ts'
import { guestGone, relayAnswer, sendError } from './relay.ts'

/** One model request, as the journal's `model-end` wants it. */
export interface ModelExchange {
  /** HTTP status given to the guest. */
  readonly status: number
  /** Without `queuedMs`. */
  readonly durationMs: number
  /** How long it waited for its turn at the provider, or for others' reservations; absent: not noticeably. */
  readonly queuedMs?: number
  readonly usage: Usage
  /** Whether the provider gave no numbers and the usage is an estimate. */
  readonly estimated: boolean
  /** By the user's price table; absent: the price is not known. */
  readonly costUsd?: number
  /** The model, where it was not the run's own. */
  readonly model?: string
  /** Absent when the exchange went well; at most a line. */
  readonly error?: string
}

/** Looks at what goes to the model and at what comes back; each gives the reason of a no, or null. */
export interface ModelHooks {
  /** Before anything is sent, in the guest's own words: model, key and address are not in it. */
  before?(request: ChatRequest | EmbeddingsRequest, signal: AbortSignal): Promise<string | null>
  /** Of chat alone: vectors have no words. Absent: answers go to the guest as they come. */
  after?(request: ChatRequest, said: SaidByModel, signal: AbortSignal): Promise<string | null>
}

export interface ModelRouteOptions {
  readonly provider: Provider
  readonly upstream: Upstream
  readonly limits: BudgetLimits
  readonly requestBodyTimeoutMs: number
  /** How long a guest may read nothing of its answer. */
  readonly guestTimeoutMs: number
  readonly hooks?: ModelHooks
  readonly onExchange: (exchange: ModelExchange) => void
  /** Milliseconds on a clock that only goes forward. */
  readonly now: () => number
}

export interface ModelRoute {
  /** Serves one chat request and ends its stream. A rejection is a bug of ours. */
  serve(stream: ServerHttp2Stream, signal: AbortSignal): Promise<void>
  /** Sum over the exchanges that ended. */
  usage(): Usage
  /** What the run may spend, whichever model it asks. */
  readonly budget: Budget
}

/** Requests of one run that may be open at once: NVIDIA's shared workers refuse more. */
const openMaxRequests = 6
/** Bytes of JSON per token until the provider has said how many it counts. */
const firstBytesPerToken = 4
/** No provider that counts fairly is beyond this. */
const mostBytesPerToken = 16
/** A wait that is worth a number, in milliseconds. */
const queuedMinMs = 50

export function createModelRoute(options: ModelRouteOptions): ModelRoute {
  const { provider, upstream, now } = options
  const key = provider.key?.reveal() ?? null
  const budget = new Budget(options.limits, priceOf(provider), provider.model)
  let bytesPerToken = firstBytesPerToken
  let openRequests = 0

  async function serve(stream: ServerHttp2Stream, signal: AbortSignal): Promise<void> {
    const started = now()
    let queuedMs = 0
    const report = (outcome: Omit<ModelExchange, 'durationMs' | 'queuedMs'>): void => {
      const durationMs = Math.max(0, Math.round(now() - started - queuedMs))
      const queued = queuedMs < queuedMinMs ? {} : { queuedMs: Math.round(queuedMs) }
      options.onExchange({ ...outcome, durationMs, ...queued })
    }
    const refuse = (
      error: WireError,
      usage = noUsage,
      costUsd: number | null = null,
      estimated = usage !== noUsage,
    ): void => {
      sendError(stream, error)
      const { status, code, message } = error
      const cost = costUsd === null || usage === noUsage ? {} : { costUsd }
      report({ status, usage, estimated, ...cost, error: `${code}: ${message}` })
    }
    if (openRequests >= openMaxRequests) {
      return refuse(gatewayError('limit_concurrency', `More than ${openMaxRequests} model requests at once.`))
    }
    openRequests += 1
    try {
      const read = await readRequest(stream, options.requestBodyTimeoutMs)
      if (!read.ok) return refuse(read.error)
      const { request, bytes } = read
      const objection = await options.hooks?.before?.(request, signal)
      if (typeof objection === 'string') return refuse(deniedBy('request', objection))
      const asked = now()
      const reserved = await budget.reserve({
        inputTokens: Math.ceil(bytes / bytesPerToken),
        outputTokens: Math.min(request.max_tokens ?? outputDefaultTokens, outputMaxTokens),
        signal,
      })
      queuedMs += now() - asked
      if (!reserved.ok) return refuse(reserved.error)
      const { maxOutputTokens, settle } = reserved.value
      let used = noUsage
      try {
        let isSent = false
        const onQueued = (ms: number): void => {
          isSent = true
          queuedMs += ms
        }
        const answer = await upstream.send(request, { maxTokens: maxOutputTokens, signal, onQueued })
        if (!answer.ok) {
          if (!signal.aborted) return refuse(answer.error)
          // A turn that had not come yet is `closed` as well.
          if (isSent && answer.error.code !== closedError.code) {
            used = mostUsage(Math.ceil(bytes / bytesPerToken), request.stream === true ? 0 : maxOutputTokens)
          }
          return refuse({ ...closedError, message: guestGone }, used, settle(used))
        }
        const checked = await checkAnswer(request, answer.value, signal)
        if (!checked.ok) {
          const { error, usage, estimated } = checked.error
          used = usage
          return refuse(error, used, settle(used), estimated)
        }
        const result = await relayAnswer(stream, checked.value, {
          key,
          signal,
          guestTimeoutMs: options.guestTimeoutMs,
        })
        used = result.usage
        if (!result.estimated && used.inputTokens > 0) {
          bytesPerToken = Math.min(Math.max(bytes / used.inputTokens, 1), mostBytesPerToken)
        }
        const costUsd = settle(used)
        report(costUsd === null ? result : { ...result, costUsd })
      } finally {
        settle(used)
      }
    } finally {
      openRequests -= 1
    }
  }

  /** The answer, held back until its hook has seen all of it; what was spent on it is spent all the same. */
  async function checkAnswer(
    request: ChatRequest,
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
    const objection = await after(request, held.value.said, signal)
    if (objection !== null) return fail(deniedBy('answer', objection), held.value.bytes)
    return { ok: true, value: held.value.answer }
  }

  return { serve, usage: () => budget.usage, budget }
}

/** Of an answer that the guest does not get; what it cost is spent. */
interface SpentRefusal {
  readonly error: WireError
  readonly usage: Usage
  readonly estimated: boolean
}

export function deniedBy(what: 'request' | 'answer', reason: string): WireError {
  return gatewayError('hook_denied', `A hook of the user refused this ${what}: ${reason}`)
}

/**
 * Of a request that the guest gave up before its answer began: the server says nothing of it, and may have read all, and
 * written all of an answer that comes whole. Counted as nothing it would be a way around the budget.
 */
function mostUsage(inputTokens: number, outputTokens: number): Usage {
  return { ...noUsage, requests: 1, inputTokens, outputTokens }
}

type Read = { ok: true; request: ChatRequest; bytes: number } | { ok: false; error: WireError }

async function readRequest(stream: ServerHttp2Stream, timeoutMs: number): Promise<Read> {
  const parts: Buffer[] = []
  let bytes = 0
  const timer = setTimeout(() => stream.destroy(), timeoutMs)
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
  } finally {
    clearTimeout(timer)
  }
  const parsed = parseChatRequest(Buffer.concat(parts))
  if (parsed.ok) return { ok: true, request: parsed.value, bytes }
  return { ok: false, error: gatewayError('invalid_request', `Not a chat request: ${parsed.error}.`) }
}

export const closedError = gatewayError('closed', 'The run is over; the gateway is closed.')
