/** Provider for Anthropic's Messages API: converts its event stream into the common parts. */
import { MessageDecoder } from '#specs/node/model-protocols/anthropic-answer.ts'
import {
  messagesHeaders,
  messagesPath,
  refusesThinking,
  thinkingForm,
  toMessagesRequest,
} from '#specs/node/model-protocols/anthropic-request.ts'
import type { Provider, ProviderRequest } from '../contract/contract.ts'
import { exchange, type StreamPart } from '../llm/exchange.ts'
import type { Connection } from './connection.ts'

/** Its models think for minutes without output. */
const idleTimeoutMs = 600_000
export function createAnthropicProvider(connection: Connection): Provider {
  const { maxTokens, body } = connection.config
  const otherForm = new Set<string>()
  return {
    hasWebSearch: true,
    async *stream(request) {
      for (;;) {
        const form = thinkingForm(request.model, otherForm.has(request.model))
        const message = toMessagesRequest(request, {
          thinking: form,
          ...(maxTokens === undefined ? {} : { maxTokens }),
        })
        let refused = false
        for await (const parts of ask({ ...message, ...body }, request, connection)) {
          refused =
            !otherForm.has(request.model) && message.thinking !== undefined && isThinkingRefused(parts)
          if (!refused) yield parts
        }
        if (!refused) return
        otherForm.add(request.model)
      }
    },
  }
}

function ask(
  body: Record<string, unknown>,
  request: ProviderRequest,
  connection: Connection,
): AsyncGenerator<readonly StreamPart[]> {
  const options = {
    idleTimeoutMs,
    ...connection.options(request.signal, messagesHeaders),
  }
  return exchange(
    { url: `${connection.baseUrl}${messagesPath}`, body, streamed: true },
    new MessageDecoder(),
    options,
  )
}

/** Whether the model rejected the form in which thinking was requested. */
function isThinkingRefused([part]: readonly StreamPart[]): boolean {
  return (
    part?.type === 'error' && part.error.code === 'invalid_request' && refusesThinking(part.error.message)
  )
}
