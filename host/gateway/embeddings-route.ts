/**
 * The route to the embedding model: reads the guest's request, reserves its maximum cost in the run's budget, forwards
 * it, and reports the exchange like any other model request.
 */
import { EmbeddingsAnswer, EmbeddingsRequest } from '#specs/protocol/embeddings.ts'
import type { Result } from '#specs/protocol/error.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import type { PriceConfig } from '../config/schema.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Embedder } from '../providers/embedder.ts'
import type { Budget } from './budget.ts'
import { answerWith } from './json-service.ts'
import { deniedBy, type ModelExchange, type ModelHooks } from './model-route.ts'
import type { ServeStream } from './services.ts'

/** The embedding model of a run. */
export interface EmbeddingModel {
  readonly embedder: Embedder
  readonly model: string
  /** Null: unknown. */
  readonly price: PriceConfig | null
}

interface EmbeddingsRouteOptions {
  /** Absent: none is configured. */
  readonly embeddings?: EmbeddingModel
  readonly budget: Budget
  /** Checks the texts before they are sent. */
  readonly hooks?: Pick<ModelHooks, 'before'>
  readonly onExchange: (exchange: ModelExchange) => void
  /** Monotonic clock in milliseconds. */
  readonly now: () => number
}

export const embeddingsPath = '/v1/embeddings'

/** The texts of one request at three bytes per character, plus JSON. */
const bodyMaxBytes = 256 * 1024
/** Maximum open requests of one run. */
const openMaxRequests = 4
/** Lower estimate of characters per token, for the reservation. */
const leastCharsPerToken = 3
/** Shortest wait that is reported, in milliseconds. */
const queuedMinMs = 50

export function createEmbeddingsRoute(options: EmbeddingsRouteOptions): ServeStream {
  let open = 0
  return answerWith(
    EmbeddingsRequest,
    EmbeddingsAnswer,
    async (request, signal) => {
      const { embeddings } = options
      if (embeddings === undefined) return { ok: false, error: gatewayError('not_configured', noModel) }
      if (open >= openMaxRequests) {
        const text = `More than ${openMaxRequests} requests for embeddings at once.`
        return { ok: false, error: gatewayError('limit_concurrency', text) }
      }
      open += 1
      try {
        return await embed(embeddings, request, signal, options)
      } finally {
        open -= 1
      }
    },
    bodyMaxBytes,
  )
}

const noModel = 'No embedding model is configured. The user can set one: model, under [embeddings].'

async function embed(
  { embedder, model, price }: EmbeddingModel,
  request: EmbeddingsRequest,
  signal: AbortSignal,
  { budget, hooks, onExchange, now }: EmbeddingsRouteOptions,
): Promise<Result<EmbeddingsAnswer, WireError>> {
  const started = now()
  const chars = request.input.reduce((sum, text) => sum + text.length, 0)
  const mostTokens = Math.ceil(chars / leastCharsPerToken) + request.input.length
  let queuedMs = 0
  const report = (status: number, usage: Usage, rest: Partial<ModelExchange>): void => {
    const durationMs = Math.max(0, Math.round(now() - started - queuedMs))
    const queued = queuedMs < queuedMinMs ? {} : { queuedMs: Math.round(queuedMs) }
    onExchange({ status, durationMs, usage, estimated: false, model, ...queued, ...rest })
  }
  const objection = await hooks?.before?.(request, signal)
  if (typeof objection === 'string') {
    const error = deniedBy('request', objection)
    report(error.status, noUsage, { error: `${error.code}: ${error.message}` })
    return { ok: false, error }
  }
  const asked = now()
  const reserved = await budget.reserve({
    inputTokens: mostTokens,
    outputTokens: 0,
    signal,
    other: { model, price },
  })
  queuedMs += now() - asked
  if (!reserved.ok) {
    report(reserved.error.status, noUsage, { error: `${reserved.error.code}: ${reserved.error.message}` })
    return reserved
  }
  const { settle } = reserved.value
  let isSent = false
  const onQueued = (ms: number): void => {
    isSent = true
    queuedMs += ms
  }
  try {
    const got = await embedder.embed(request, { signal, onQueued })
    if (!got.ok) {
      // Cancelled midway: the server may have read all of it, and does not say.
      const used = signal.aborted && isSent ? usageOf(mostTokens) : noUsage
      const cost = costOf(settle(used))
      const { status, code, message } = got.error
      report(status, used, { estimated: used !== noUsage, ...cost, error: `${code}: ${message}` })
      return got
    }
    const { data, tokens } = got.value
    const used = usageOf(tokens ?? mostTokens)
    report(200, used, { estimated: tokens === null, ...costOf(settle(used)) })
    return { ok: true, value: { data: [...data], usage: { prompt_tokens: used.inputTokens } } }
  } finally {
    settle(noUsage)
  }
}

function usageOf(inputTokens: number): Usage {
  return { ...noUsage, requests: 1, inputTokens }
}

function costOf(costUsd: number | null): { costUsd?: number } {
  return costUsd === null ? {} : { costUsd }
}
