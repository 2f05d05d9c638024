/** The offline model as a provider of `caisson/runtime`. */
import type { LLMChatMessage, Provider, ProviderPart, ProviderRequest } from '#runtime/index.ts'
import type { CompletionMessage, CompletionRequest } from '#specs/protocol/completion-request.ts'
import { answerOffline } from '../host/without-vm.ts'

export const offlineProvider: Provider = {
  async *stream(request) {
    const { reasoning, text, calls } = answerOffline(toCompletion(request))
    const parts: ProviderPart[] = [{ type: 'reasoning', text: reasoning }]
    if (text !== '') parts.push({ type: 'text', text })
    for (const [index, call] of calls.entries())
      parts.push({
        type: 'tool-call-delta',
        fragment: {
          index,
          // Unique in the conversation.
          id: `call-${request.messages.length}-${index}`,
          name: call.name,
          argumentsText: JSON.stringify(call.arguments),
        },
      })
    parts.push({ type: 'finish', reason: calls.length > 0 ? 'tool_calls' : 'stop' })
    yield parts
  },
}

function toCompletion({ messages, tools }: ProviderRequest): CompletionRequest {
  const offered = tools.map(({ name, description, parameters }) => ({
    type: 'function' as const,
    function: { name, description, parameters },
  }))
  return { messages: messages.map(toMessage), ...(offered.length === 0 ? {} : { tools: offered }) }
}

function toMessage({ role, content, tool_calls, tool_call_id = '' }: LLMChatMessage): CompletionMessage {
  if (role === 'tool') return { role, tool_call_id, content: withCode(content) }
  if (role !== 'assistant') return { role, content }
  const calls = tool_calls?.map(({ id, type, function: called }) => ({ id, type, function: called }))
  return { role, content, ...(calls === undefined ? {} : { tool_calls: calls }) }
}

/** It knows a failure by its code, which the library's own tools do not have. */
function withCode(content: string): string {
  return content.replace(/^Error: /, 'Error (unavailable): ')
}
