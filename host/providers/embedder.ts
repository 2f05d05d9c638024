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
import { CapabilityCache } from './capability-cache.ts'
import { modelRemedy, watchBody } from './http-exchange.ts'
import { type HttpUpstreamOptions, openServer } from './http-upstream.ts'
import { type SendOptions, UpstreamBreak } from './upstream.ts'

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
  const { provider, timeouts, capabilityCache = new CapabilityCache(null) } = options
  const { baseUrl, model } = provider
  const server = openServer(options)

  function embed(
    { input, input_type }: EmbeddingsRequest,
    given: EmbedOptions,
  ): Promise<Result<Embedded, WireError>> {
    const learned = new Set<OptionalField>()
    let refused: ReadonlySet<OptionalField> = learned
    let adaptations = 0
    return server.request<Embedded>(
      {
        operation: '/embeddings',
        build: async () => {
          const { refusedFields = [] } = await capabilityCache.recall(baseUrl, model)
          refused = new Set([...refusedFields, ...learned])
          const fields = { input_type, truncate: 'END', encoding_format: 'float' }
          const kept = Object.entries(fields).filter(([name]) => !refused.has(name as OptionalField))
          const body = JSON.stringify({ model, input, ...Object.fromEntries(kept) })
          return { ok: true, value: { body, streamed: false } }
        },
        accept: async ({ response }, turn) => {
          try {
            const read = await readVectors(watchBody(response, timeouts.idleTimeoutMs), input.length)
            if (read.ok && learned.size > 0)
              await capabilityCache.learn(baseUrl, model, { refusedFields: [...learned] })
            return read
          } finally {
            turn.release()
          }
        },
        adapt: ({ status, body }) => {
          const rejection = status === null ? null : readRejection(status, body, optional)
          const fields =
            rejection?.kind === 'fields' ? rejection.fields.filter((field) => !refused.has(field)) : []
          if (fields.length === 0 || ++adaptations > maxAdaptations) return null
          for (const field of fields) learned.add(field)
          return { model, fields }
        },
        explain: async ({ status, body, error }) => {
          const isGone = status === 410 || (status === 404 && body.trimStart().startsWith('{'))
          const remedy = isGone ? ` (${modelRemedy(provider, [])}: here, model under [embeddings])` : ''
          return { ...error, message: error.message + remedy }
        },
      },
      given,
    )
  }

  return { embed, close: server.close }
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
