/**
 * What the library `caisson/runtime` passes across its borders: messages, tool calls, responses, providers, tools. Shapes are
 * those of OpenAI's chat completions where that has one, so that an application's transcripts need no translation.
 */
import type { z } from 'zod'
import type { StreamPart } from '../llm/chunk.ts'

export type ReasoningEffort = 'default' | 'none' | 'low' | 'medium' | 'high'
/** `auto`: tools run; `ask`: the application is asked first; `read`: only tools that read are offered. */
export type ToolPermission = 'auto' | 'ask' | 'read'

export interface LLMToolCall {
  readonly id: string
  readonly type: 'function'
  /** `arguments` is JSON as the model wrote it; not checked. */
  readonly function: { readonly name: string; readonly arguments: string }
  /** Made out of plain text by `parsePlainTextToolIntent`, and marked on request. */
  readonly synthetic?: boolean
}

export interface LLMChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** Of an assistant message. */
  readonly tool_calls?: readonly LLMToolCall[]
  /** Of a tool message: the call that it answers. */
  readonly tool_call_id?: string
  /** Of an assistant message: what the model thought; sent back only to models that want it. */
  readonly reasoning_content?: string
  /** Of an assistant message: what its provider wants back unchanged (signatures of thoughts); opaque. */
  readonly provider_state?: unknown
}

/** Tokens as the provider counted them. */
export interface LLMUsage {
  readonly inputTokens: number
  readonly outputTokens: number
  /** Part of the output tokens. */
  readonly reasoningTokens: number
}

/** A model's whole answer. */
export interface LLMResponse {
  readonly type: 'text' | 'tool_calls'
  /** Empty when there is none. */
  readonly content: string
  /** Present, and not empty, exactly with the type `tool_calls`. */
  readonly tool_calls?: readonly LLMToolCall[]
  /** To be put into the transcript as it is. */
  readonly assistantMessage: LLMChatMessage
  /** Absent when the provider gave none. */
  readonly usage?: LLMUsage
  /** Why the model stopped, in one word for all providers. */
  readonly stopKind: 'natural' | 'tool' | 'length' | 'content_filter' | 'unknown'
}

/** A piece of an answer on its way; exactly one of the two is there. */
export interface LLMStreamChunk {
  readonly content?: string
  readonly reasoningContent?: string
}

/** A tool as a model is told of it. */
export interface LLMToolDefinition {
  readonly name: string
  readonly description: string
  /** JSON schema of an object. */
  readonly parameters: Readonly<Record<string, unknown>>
}

/** A tool of the application. */
export interface LLMTool {
  readonly description: string
  /** JSON schema of an object, nested as deep as it is, or a zod schema of one. */
  readonly parameters: Readonly<Record<string, unknown>> | z.ZodType
  /** Whether it only reads; absent: not known, so not offered under the tool permission `read`. */
  readonly readOnly?: boolean
  /**
   * Whether a call can delete, overwrite or run something: then only exact names and types of arguments are taken. Absent:
   * whatever does not only read can.
   */
  readonly destructive?: boolean
  /** Carries a call out; absent: the application does so itself. A value that is no text is told as JSON. */
  execute?(input: unknown, context: LLMToolContext): Promise<unknown> | unknown
}

export interface LLMToolContext {
  readonly toolCallId: string
  readonly workingDirectory?: string
  readonly signal: AbortSignal
}

/** One request as every provider gets it. */
export interface ProviderRequest {
  readonly model: string
  readonly messages: readonly LLMChatMessage[]
  /** Sorted by name; left out of the wire's request when empty. */
  readonly tools: readonly LLMToolDefinition[]
  /** Absent: the model chooses. */
  readonly toolChoice?: 'none' | 'required' | { readonly name: string }
  /** The answer as JSON of this schema, where the provider can. */
  readonly responseFormat?: { readonly name: string; readonly schema: Readonly<Record<string, unknown>> }
  readonly reasoningEffort: ReasoningEffort
  readonly maxTokens?: number
  /** Absent: the server's own. */
  readonly temperature?: number
  /** False: in one piece, where the provider can; a server that streams badly is asked so. */
  readonly streamed?: boolean
  /** Whether the model gets back what it thought before its calls, for models that refuse their calls without it. */
  readonly echoReasoning?: boolean
  /** False: the server is not asked to count tokens at the end of a stream, for it refuses to. */
  readonly countTokens?: boolean
  readonly signal: AbortSignal
}

/** What a provider yields, one union for all: text, reasoning, fragments of calls, tokens, an end. */
export type { StreamPart as ProviderPart }

/** A model server, whatever it speaks. */
export interface Provider {
  /**
   * The answer in parts, as many at a time as one read brought. A failure is a part, and the last; nothing is thrown, and the
   * request is not repeated here. Ends soon after the request's signal is aborted.
   */
  stream(request: ProviderRequest): AsyncIterable<readonly StreamPart[]>
}
