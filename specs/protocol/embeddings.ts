/** Texts as vectors, by the host's gateway: what the agent asks for and what it gets. The host adds model, key and address. */
import * as z from 'zod'
import { Count } from './text.ts'

export const embeddingLimits = {
  /** Texts of one request. */
  maxTexts: 16,
  /** Characters of one text; longer ones are refused, and models read no more than this of most. */
  textMaxChars: 2_000,
  /** Numbers of one vector. */
  maxDimensions: 8_192,
} as const

/** Body of `POST http://gateway/v1/embeddings`. */
export const EmbeddingsRequest = z.strictObject({
  input: z.array(z.string().min(1).max(embeddingLimits.textMaxChars)).min(1).max(embeddingLimits.maxTexts),
  /** Whether the texts are what is searched for or what is searched: some models make different vectors of them. */
  input_type: z.enum(['query', 'passage']),
})
export type EmbeddingsRequest = z.infer<typeof EmbeddingsRequest>

export const EmbeddingsAnswer = z.strictObject({
  /** One for each text, in its order, all of one length. */
  data: z.array(z.strictObject({ embedding: z.array(z.number()).min(1).max(embeddingLimits.maxDimensions) })),
  /** Tokens of the texts, as the provider counted them or the host estimated. */
  usage: z.strictObject({ prompt_tokens: Count }),
})
export type EmbeddingsAnswer = z.infer<typeof EmbeddingsAnswer>
