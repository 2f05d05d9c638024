/**
 * Requests embeddings from a model server, with the queue, key rules and capability cache of chat. Sends only the texts
 * and their type; reads only numbers from the answer.
 */
import * as z from 'zod'
import { type OptionalField, readRejection } from '#specs/node/provider-quirks/rejection.ts'
import { type EmbeddingsAnswer, type EmbeddingsRequest, embeddingLimits } from '#specs/protocol/embeddings.ts'
import type { Result } from '#specs/protocol/error.ts'
import { parseJson } from '../files/json.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import { directNetwork } from '../net/network.ts'
import { CapabilityCache } from './capability-cache.ts'
import { exchange, watchBody } from './http-exchange.ts'
import {
  defaultMaxConcurrent,
  type HttpUpstreamOptions,
  isPassing,
  noTurn,
  pauseAfter,
  retryOf,
  tellWaits,
} from './http-upstream.ts'
import { sharedQueue } from './queue.ts'
import { type SendOptions, UpstreamBreak } from './upstream.ts'
import { modelRemedy } from './upstream-error.ts'

/** Options of one guest request. */
export type EmbedOptions = Omit<SendOptions, 'maxTokens'>

/** Tokens as counted by the server; null if not reported. */
export type Embedded = Pick<EmbeddingsAnswer, 'data'> & { readonly tokens: number | null }

export interface Embedder {
  embed(request: EmbeddingsRequest, options: EmbedOptions): Promise<Result<Embedded, WireError>>
  close(): Promise<void>
}

/** 8,192 numbers in their longest form for each text of a request. */
const answerMaxBytes = 4 * 1024 * 1024
/** Maximum adapted retries of one request. */
const maxAdaptations = 3

/** Fields that servers may refuse: OpenAI's do not know `input_type`, NVIDIA's require it. */
const optional: ReadonlySet<OptionalField> = new Set(['input_type', 'truncate', 'encoding_format'])

export function createHttpEmbedder(options: HttpUpstreamOptions): Embedder {
  const {
    provider,
    timeouts,
    runId,
    network = directNetwork,
    capabilityCache = new CapabilityCache(null),
    log,
  } = options
  const { baseUrl, model } = provider
  const queue = sharedQueue(baseUrl, provider.key?.reveal() ?? null, {
    maxConcurrent: provider.maxConcurrent ?? defaultMaxConcurrent,
    requestsPerMinute: provider.requestsPerMinute ?? null,
  })
  const dispatcher = network.dispatcher({
    headersTimeout: timeouts.firstByteTimeoutMs,
    bodyTimeout: 0,
    maxHeaderSize: 32 * 1024,
    pipelining: 0,
  })

  async function embed(
    { input, input_type }: EmbeddingsRequest,
    { signal, onQueued, onWait, onRetry }: EmbedOptions,
  ): Promise<Result<Embedded, WireError>> {
    const until = performance.now() + timeouts.queueTimeoutMs
    const learned = new Set<OptionalField>()
    for (let again = 0; ; again++) {
      const refused = new Set([
        ...((await capabilityCache.recall(baseUrl, model)).refusedFields ?? []),
        ...learned,
      ])
      const fields = { input_type, truncate: 'END', encoding_format: 'float' }
      const kept = Object.entries(fields).filter(([name]) => !refused.has(name as OptionalField))
      const body = JSON.stringify({ model, input, ...Object.fromEntries(kept) })
      const maxWaitMs = Math.max(0, until - performance.now())
      const taken = await queue.take({
        ...{ runId, model, signal, maxWaitMs, again: again > 0 },
        ...tellWaits(onWait),
      })
      if (!taken.ok) return { ok: false, error: noTurn(taken.error, timeouts.queueTimeoutMs, queue.heldMs) }
      const turn = taken.value
      onQueued?.(turn.waitedMs)
      onWait?.({ for: 'answer' })
      try {
        const got = await exchange(body, false, signal, {
          provider,
          dispatcher,
          timeouts,
          path: '/embeddings',
        })
        if (got.ok) {
          turn.accepted()
          const read = await readVectors(watchBody(got.response, timeouts.idleTimeoutMs), input.length)
          if (read.ok && learned.size > 0)
            await capabilityCache.learn(baseUrl, model, { refusedFields: [...learned] })
          return read
        }
        const pauseMs = pauseAfter(got, turn)
        if (pauseMs !== null) {
          if (isPassing(got) && performance.now() + pauseMs < until) {
            onRetry?.(retryOf(got, pauseMs))
            continue
          }
          return { ok: false, error: { ...got.error, retryAfterMs: Math.round(pauseMs) } }
        }
        const rejection = got.status === null ? null : readRejection(got.status, got.body, optional)
        const fresh =
          rejection?.kind === 'fields' ? rejection.fields.filter((field) => !refused.has(field)) : []
        if (fresh.length > 0 && again < maxAdaptations) {
          for (const field of fresh) learned.add(field)
          log?.({ runId, model, fields: fresh }, 'the model server rejected a field of the request')
          onRetry?.(retryOf(got, 0))
          continue
        }
        const isGone = got.status === 410 || (got.status === 404 && got.body.trimStart().startsWith('{'))
        const remedy = isGone ? ` (${modelRemedy(provider, [])}: here, model under [embeddings])` : ''
        return { ok: false, error: { ...got.error, message: got.error.message + remedy } }
      } finally {
        turn.release()
      }
    }
  }

  return { embed, close: () => dispatcher.destroy() }
}

const WireAnswer = z.object({
  data: z
    .array(
      z.object({
        index: z.int().min(0).optional(),
        embedding: z.array(z.number()).min(1).max(embeddingLimits.maxDimensions),
      }),
    )
    .max(embeddingLimits.maxTexts),
  usage: z
    .object({ prompt_tokens: z.int().min(0).max(1e9) })
    .nullish()
    .catch(null),
})

/** One vector per text, in order, with the stored precision. */
async function readVectors(
  body: AsyncIterable<Uint8Array>,
  count: number,
): Promise<Result<Embedded, WireError>> {
  const parts: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const part of body) {
      bytes += part.byteLength
      if (bytes > answerMaxBytes) {
        const text = `The embedding model's answer is larger than ${answerMaxBytes} bytes.`
        return { ok: false, error: gatewayError('response_too_large', text) }
      }
      parts.push(part)
    }
  } catch (cause) {
    if (cause instanceof UpstreamBreak) return { ok: false, error: cause.error }
    throw cause
  }
  const parsed = WireAnswer.safeParse(parseJson(Buffer.concat(parts).toString('utf8')))
  if (!parsed.success)
    return broken(`its format is invalid (${parsed.error.issues[0]?.path.join('.') ?? ''})`)
  const vectors = new Map(parsed.data.data.map(({ index, embedding }, at) => [index ?? at, embedding]))
  const data: { embedding: number[] }[] = []
  for (let at = 0; at < count; at++) {
    const embedding = vectors.get(at)
    if (embedding === undefined || embedding.length !== vectors.get(0)?.length)
      return broken(`it has no vectors of one length for the ${count} texts`)
    data.push({ embedding: embedding.map((value) => Number(value.toPrecision(8))) })
  }
  return { ok: true, value: { data, tokens: parsed.data.usage?.prompt_tokens ?? null } }
}

function broken(why: string): Result<never, WireError> {
  const text = `The embedding model's answer cannot be used: ${why}. Check that the model makes embeddings.`
  return { ok: false, error: gatewayError('upstream_broken', text) }
}
