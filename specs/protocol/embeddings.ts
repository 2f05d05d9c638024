/** Embedding requests to the host's gateway and their answers. The host adds model, key and address. */
import * as z from 'zod'
import { Count } from './text.ts'

export const embeddingLimits = {
  /** Maximum texts per request. */
  maxTexts: 16,
  /** Maximum characters of a text; longer ones are refused, and most models read no more. */
  textMaxChars: 2_000,
  /** Maximum numbers of a vector. */
  maxDimensions: 8_192,
} as const

/** Body of `POST http://gateway/v1/embeddings`. */
export const EmbeddingsRequest = z.strictObject({
  input: z.array(z.string().min(1).max(embeddingLimits.textMaxChars)).min(1).max(embeddingLimits.maxTexts),
  /** Whether the texts are queries or documents: some models embed them differently. */
  input_type: z.enum(['query', 'passage']),
})
export type EmbeddingsRequest = z.infer<typeof EmbeddingsRequest>

export const EmbeddingsAnswer = z.strictObject({
  /** One per text, in order, all of one length. */
  data: z.array(z.strictObject({ embedding: z.array(z.number()).min(1).max(embeddingLimits.maxDimensions) })),
  /** Tokens of the texts, as the provider counted them or the host estimated. */
  usage: z.strictObject({ prompt_tokens: Count }),
})
export type EmbeddingsAnswer = z.infer<typeof EmbeddingsAnswer>
