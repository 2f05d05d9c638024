/** The web as a recording keeps it: written while it answers, and answering in its place later. */
import type * as z from 'zod'
import { WebFetchAnswer, WebSearchAnswer } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Recorder } from '../recording/recorder.ts'
import type { Recording } from '../recording/replay.ts'
import type { Web } from './web.ts'

/** The same, each exchange recorded as the guest gets it: with placeholders, and secrets taken out. */
export function recordWeb(web: Web, recorder: Pick<Recorder, 'web'>): Web {
  return {
    async fetch(request, signal) {
      const answer = await web.fetch(request, signal)
      recorder.web('fetch', request, answer)
      return answer
    },
    async search(request, signal) {
      const answer = await web.search(request, signal)
      recorder.web('search', request, answer)
      return answer
    },
  }
}

/** What was recorded; nothing goes to a network. */
export function replayWeb(recording: Pick<Recording, 'web'>): Web {
  return {
    fetch: async (request) => read(WebFetchAnswer, recording.web('fetch', request)),
    search: async (request) => read(WebSearchAnswer, recording.web('search', request)),
  }
}

function read<T>(schema: z.ZodType<T>, answer: Result<unknown, WireError>): Result<T, WireError> {
  if (!answer.ok) return answer
  const value = schema.safeParse(answer.value)
  if (value.success) return { ok: true, value: value.data }
  const text = 'The recording holds an answer of the web that is not of its form; run without option replay.'
  return { ok: false, error: gatewayError('not_recorded', text) }
}
