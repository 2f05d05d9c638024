/** Provider for Gemini's `streamGenerateContent`: converts its chunks into the common parts. */
import { GeminiDecoder } from '#specs/node/model-protocols/google-answer.ts'
import { geminiPath, toGeminiRequest } from '#specs/node/model-protocols/google-request.ts'
import type { Provider } from '../contract/contract.ts'
import { exchange } from '../llm/exchange.ts'
import type { Connection } from './connection.ts'

export function createGoogleProvider(connection: Connection): Provider {
  const { maxTokens, body } = connection.config
  return {
    hasWebSearch: true,
    stream: (request) =>
      exchange(
        {
          url: `${connection.baseUrl}${geminiPath(request.model)}`,
          body: { ...toGeminiRequest(request, maxTokens), ...body },
          streamed: true,
        },
        new GeminiDecoder(),
        connection.options(request.signal),
      ),
  }
}
