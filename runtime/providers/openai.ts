/**
 * Providers of OpenAI's chat completions: OpenAI, Azure, xAI, Ollama, NVIDIA's catalog and NIM, vLLM, llama.cpp. They
 * differ in addresses, the key header and one field's name; see `kinds.ts`.
 */
import { defaultMaxTokens } from '#specs/node/model-protocols/request.ts'
import type { LLMChatMessage, LLMToolCall, Provider, ProviderRequest } from '../contract/contract.ts'
import { type ChatRequest, streamChat } from '../llm/client.ts'
import type { ChatMessage, ToolCallRequest } from '../llm/messages.ts'
import type { Connection } from './connection.ts'

export interface ChatDialect {
  /** Path between the base and `/chat/completions`; default none. */
  path?(request: ProviderRequest): string
  /** Query string with its question mark. */
  readonly query?: string
  readonly maxTokensField?: 'max_tokens' | 'max_completion_tokens'
  readonly headers?: Readonly<Record<string, string>>
  /** Whether the server takes `web_search_options`; default no. */
  readonly hasWebSearch?: boolean
}

export function createChatProvider(connection: Connection, dialect: ChatDialect = {}): Provider {
  const { baseUrl } = connection
  return {
    hasWebSearch: dialect.hasWebSearch === true,
    stream: (request) =>
      streamChat(toChatRequest(request, connection, dialect), {
        ...connection.options(request.signal, dialect.headers),
        baseUrl: `${baseUrl}${dialect.path?.(request) ?? ''}`,
        ...(dialect.query === undefined ? {} : { query: dialect.query }),
      }),
  }
}

function toChatRequest(request: ProviderRequest, connection: Connection, dialect: ChatDialect): ChatRequest {
  const { config } = connection
  const { temperature, toolChoice, responseFormat, reasoningEffort, streamed, adaptation } = request
  const extra = {
    ...(reasoningEffort === 'default' ? {} : { reasoning_effort: reasoningEffort }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(request.webSearch === true ? { web_search_options: {} } : {}),
    ...config.body,
  }
  return {
    model: request.model,
    messages: toChatMessages(request.messages),
    tools: request.tools,
    maxTokens: request.maxTokens ?? config.maxTokens ?? defaultMaxTokens,
    extra,
    ...(dialect.maxTokensField === undefined ? {} : { maxTokensField: dialect.maxTokensField }),
    ...(streamed === undefined ? {} : { stream: streamed }),
    ...(adaptation === undefined ? {} : { adaptation }),
    ...(toolChoice === undefined || request.tools.length === 0 ? {} : { toolChoice }),
    ...(responseFormat === undefined ? {} : { responseFormat }),
  }
}

/** Converts the transcript to the client's messages. */
export function toChatMessages(messages: readonly LLMChatMessage[]): ChatMessage[] {
  return messages.map(toChatMessage)
}

function toChatMessage(message: LLMChatMessage): ChatMessage {
  const { content } = message
  switch (message.role) {
    case 'assistant':
      return {
        role: 'assistant',
        content,
        toolCalls: (message.tool_calls ?? []).map(toCallRequest),
        ...(message.reasoning_content === undefined ? {} : { reasoning: message.reasoning_content }),
      }
    case 'tool':
      return { role: 'tool', callId: message.tool_call_id ?? '', content }
    case 'user':
      return { role: 'user', content, ...(message.images === undefined ? {} : { images: message.images }) }
    default:
      return { role: message.role, content }
  }
}

/** Every turn sends the transcript; an unchanged call stays the same object, so the client converts it once. */
const knownCalls = new WeakMap<LLMToolCall, ToolCallRequest>()

function toCallRequest(call: LLMToolCall): ToolCallRequest {
  const { id } = call
  const { name, arguments: argumentsText } = call.function
  const known = knownCalls.get(call)
  if (known?.id === id && known.name === name && known.argumentsText === argumentsText) return known
  const made = { id, name, argumentsText }
  knownCalls.set(call, made)
  return made
}
