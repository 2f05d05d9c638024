/** Vectors as a recording keeps them: written while they are made, and answering in their place later. */
import * as z from 'zod'
import { EmbeddingsAnswer } from '#specs/protocol/embeddings.ts'
import { Count } from '#specs/protocol/text.ts'
import { gatewayError } from '../net/gateway-error.ts'
import type { Embedder } from '../providers/embedder.ts'
import type { Recorder } from './recorder.ts'
import type { Recording } from './replay.ts'

const Embedded = z.strictObject({ data: EmbeddingsAnswer.shape.data, tokens: Count.nullable() })

/** The same, each exchange recorded as the guest gets it. */
export function recordEmbedder(embedder: Embedder, recorder: Pick<Recorder, 'web'>): Embedder {
  return {
    embed: async (request, options) => {
      const answer = await embedder.embed(request, options)
      recorder.web('embed', request, answer)
      return answer
    },
    close: () => embedder.close(),
  }
}

/** What was recorded; nothing goes to a network. */
export function replayEmbedder(recording: Pick<Recording, 'web'>): Embedder {
  return {
    embed: async (request) => {
      const answer = recording.web('embed', request)
      if (!answer.ok) return answer
      const value = Embedded.safeParse(answer.value)
      if (value.success) return { ok: true, value: value.data }
      const text = 'The recording holds vectors that are not of their form; run without option replay.'
      return { ok: false, error: gatewayError('not_recorded', text) }
    },
    close: () => Promise.resolve(),
  }
}
