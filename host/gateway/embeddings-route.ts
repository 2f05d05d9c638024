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
import { deniedBy, type ModelHooks } from './model-route.ts'
import type { RequestReport } from './request-report.ts'
import { answerWith, type ServeStream } from './services.ts'

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
  /** Opens the report of a request to this model. */
  readonly report: (model: string) => RequestReport
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
      const report = options.report(embeddings.model)
      try {
        return await embed(embeddings, request, signal, options, report)
      } catch (cause) {
        report.fault()
        throw cause
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
  { budget, hooks, now }: EmbeddingsRouteOptions,
  report: RequestReport,
): Promise<Result<EmbeddingsAnswer, WireError>> {
  const chars = request.input.reduce((sum, text) => sum + text.length, 0)
  const mostTokens = Math.ceil(chars / leastCharsPerToken) + request.input.length
  const fail = (error: WireError, usage = noUsage, costUsd: number | null = null) => {
    report.refuse(error, { usage, costUsd })
    return { ok: false, error } as const
  }
  if (hooks?.before !== undefined) report.wait({ for: 'hook' })
  const objection = await hooks?.before?.(request, signal)
  if (typeof objection === 'string') return fail(deniedBy('request', objection))
  const asked = now()
  const reserved = await budget.reserve({
    inputTokens: mostTokens,
    outputTokens: 0,
    signal,
    models: [{ model, price }],
    onWait: () => report.wait({ for: 'budget' }),
  })
  report.addQueued(now() - asked)
  if (!reserved.ok) return fail(reserved.error)
  const { settle } = reserved.value
  let isSent = false
  const onQueued = (ms: number): void => {
    isSent = true
    report.addQueued(ms)
  }
  try {
    const got = await embedder.embed(request, {
      signal,
      onQueued,
      onWait: (wait) => report.wait(wait),
      onRetry: (retry) => report.retry(retry),
    })
    if (!got.ok) {
      // Cancelled midway: the server may have read all of it, and does not say.
      const used = signal.aborted && isSent ? usageOf(mostTokens) : noUsage
      return fail(got.error, used, settle(used))
    }
    const { data, tokens } = got.value
    const used = usageOf(tokens ?? mostTokens)
    const costUsd = settle(used)
    report.end({
      status: 200,
      usage: used,
      estimated: tokens === null,
      ...(costUsd === null ? {} : { costUsd }),
    })
    return { ok: true, value: { data: [...data], usage: { prompt_tokens: used.inputTokens } } }
  } finally {
    settle(noUsage)
  }
}

function usageOf(inputTokens: number): Usage {
  return { ...noUsage, requests: 1, inputTokens }
}
