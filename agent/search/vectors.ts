/**
 * Embedding vectors of texts, requested from the host and cached for a run, so that each text is paid for once. Knows
 * no models, keys or addresses.
 */
import { hash } from 'node:crypto'
import { EmbeddingsAnswer, embeddingLimits } from '#specs/protocol/embeddings.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { GatewayClient } from '../tool-calls/gateway-client.ts'
import { toolFailure } from '../tool-calls/tool.ts'

/** Maximum characters of a text, about the input of small models; the rest is ignored. */
const textMaxChars = Math.min(1_500, embeddingLimits.textMaxChars)
/** Maximum cached numbers, four bytes each; the oldest texts are evicted first. */
const keptMaxNumbers = 4 * 1024 * 1024

type Vector = Float32Array

export class Vectors {
  readonly #gateway: Pick<GatewayClient, 'post'>
  /** By kind and content, oldest first; normalized to length 1. */
  readonly #kept = new Map<string, Vector>()
  #numbers = 0

  constructor(gateway: Pick<GatewayClient, 'post'>) {
    this.#gateway = gateway
  }

  /** Returns one vector per text, in order, all of one length; requests those that are not cached. */
  async of(
    texts: readonly string[],
    kind: 'query' | 'passage',
    signal: AbortSignal,
  ): Promise<Result<readonly Vector[]>> {
    const bounded = texts.map((text) => text.slice(0, textMaxChars).toWellFormed())
    const known = new Map<string, Vector>()
    const missing = new Map<string, string>()
    for (const text of bounded) {
      const key = keyOf(kind, text)
      const vector = this.#kept.get(key)
      if (vector === undefined) missing.set(key, text)
      else known.set(key, vector)
    }
    const asked = [...missing]
    for (let at = 0; at < asked.length; at += embeddingLimits.maxTexts) {
      const batch = asked.slice(at, at + embeddingLimits.maxTexts)
      const body = { input: batch.map(([, text]) => text), input_type: kind }
      const answer = await this.#gateway.post('/v1/embeddings', body, EmbeddingsAnswer, signal)
      if (!answer.ok) return answer
      const { data } = answer.value
      for (const [index, [key]] of batch.entries()) {
        const vector = data[index] && unit(data[index].embedding)
        if (vector === undefined) return toolFailure('internal', 'the host gave fewer vectors than texts')
        known.set(key, vector)
        this.#keep(key, vector)
      }
    }
    const vectors = bounded.flatMap((text) => known.get(keyOf(kind, text)) ?? [])
    return { ok: true, value: vectors }
  }

  #keep(key: string, vector: Vector): void {
    this.#kept.set(key, vector)
    this.#numbers += vector.length
    for (const [oldest, { length }] of this.#kept) {
      if (this.#numbers <= keptMaxNumbers) break
      this.#kept.delete(oldest)
      this.#numbers -= length
    }
  }
}

function keyOf(kind: string, text: string): string {
  return `${kind} ${hash('sha256', text, 'base64')}`
}

/** Normalizes to length 1; zeros when there is no computable direction. */
function unit(numbers: readonly number[]): Vector {
  const length = Math.hypot(...numbers)
  const isUsable = length > 0 && Number.isFinite(length)
  // Divide first: a single number may exceed 32 bits.
  return Float32Array.from(numbers, (number) => (isUsable ? number / length : 0))
}

/** Cosine similarity; 0 also when the vectors have different lengths. */
export function nearness(a: Vector, b: Vector): number {
  if (a.length !== b.length) return 0
  let sum = 0
  for (let at = 0; at < a.length; at++) sum += (a[at] ?? 0) * (b[at] ?? 0)
  return sum
}

/** Rank constant of the fusion. */
const rankOffset = 60

/**
 * Fuses rankings by reciprocal rank (Cormack et al. 2009): a high rank in one counts, a high rank in two counts more.
 * The first ranking breaks ties.
 */
export function fuseRankings<T>(rankings: readonly (readonly T[])[]): T[] {
  const scores = new Map<T, number>()
  for (const ranking of rankings) {
    for (const [place, item] of ranking.entries())
      scores.set(item, (scores.get(item) ?? 0) + 1 / (rankOffset + place + 1))
  }
  return [...scores].sort(([, a], [, b]) => b - a).map(([item]) => item)
}
