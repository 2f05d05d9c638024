/**
 * The data types of `caisson/runtime`: messages, tool calls, responses, providers, tools. They follow OpenAI's chat
 * completions where possible, so that an application's transcripts need no conversion.
 */
import type { z } from 'zod'
import type { Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import type { StreamPart } from '../llm/exchange.ts'

export type ReasoningEffort = 'default' | 'none' | 'low' | 'medium' | 'high'
/** `auto`: tools run; `ask`: the application is asked first; `read`: only read-only tools are offered. */
export type ToolPermission = 'auto' | 'ask' | 'read'

/**
 * What a successful tool call proves: `interaction` that a person was asked, `read` that something was looked at,
 * `write` that something was changed, `external_action` that something was done elsewhere, `artifact` that a result
 * exists, such as a file or a ticket.
 */
export type EvidenceKind = 'none' | 'interaction' | 'read' | 'write' | 'external_action' | 'artifact'

export interface LLMToolCall {
  readonly id: string
  readonly type: 'function'
  /** `arguments` is JSON as the model wrote it, unvalidated. */
  readonly function: { readonly name: string; readonly arguments: string }
  /** Created from plain text by `parsePlainTextToolIntent`; marked on request. */
  readonly synthetic?: boolean
}

export interface LLMChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /**
   * In a user message: images behind its text, as data URLs of PNG, JPEG, WebP or GIF in base64, for a model that sees. A
   * request may have 8 images and 3 MiB of them, an image 1 MiB. Absent: none.
   */
  readonly images?: readonly string[]
  /** In an assistant message. */
  readonly tool_calls?: readonly LLMToolCall[]
  /** In a tool message: the id of the call that it answers. */
  readonly tool_call_id?: string
  /** In an assistant message: the model's reasoning; sent back only to models that require it. */
  readonly reasoning_content?: string
  /** In an assistant message: opaque provider data (signatures of reasoning), sent back unchanged. */
  readonly provider_state?: unknown
}

/** Tokens as counted by the provider. */
export interface LLMUsage {
  readonly inputTokens: number
  readonly outputTokens: number
  /** Included in the output tokens. */
  readonly reasoningTokens: number
}

/** A model's complete answer. */
export interface LLMResponse {
  readonly type: 'text' | 'tool_calls'
  /** Empty when there is none. */
  readonly content: string
  /** Present, and not empty, exactly with the type `tool_calls`. */
  readonly tool_calls?: readonly LLMToolCall[]
  /** The message to append to the transcript unchanged. */
  readonly assistantMessage: LLMChatMessage
  /** Absent when the provider reported none. */
  readonly usage?: LLMUsage
  /** Why the model stopped, normalized over all providers. */
  readonly stopKind: 'natural' | 'tool' | 'length' | 'content_filter' | 'unknown'
}

/** A chunk of a streamed answer; exactly one of the two fields is set. */
export interface LLMStreamChunk {
  readonly content?: string
  readonly reasoningContent?: string
}

/** A tool as described to a model. */
export interface LLMToolDefinition {
  readonly name: string
  readonly description: string
  /** JSON schema of an object. */
  readonly parameters: Readonly<Record<string, unknown>>
}

/** A tool of the application. */
export interface LLMTool {
  readonly description: string
  /** JSON schema of an object with any nesting, or a zod schema of one. */
  readonly parameters: Readonly<Record<string, unknown>> | z.ZodType
  /** Whether it only reads; absent: unknown, so not offered under the tool permission `read`. */
  readonly readOnly?: boolean
  /**
   * Whether a call can delete, overwrite or run something; then only exact argument names and types are accepted.
   * Absent: true unless it only reads.
   */
  readonly destructive?: boolean
  /** What a successful call proves. Absent: `read` if it only reads, else `external_action`. */
  readonly evidence?: EvidenceKind
  /** Executes a call; absent: the application executes it itself. A value other than text becomes JSON. */
  execute?(input: unknown, context: LLMToolContext): Promise<unknown> | unknown
}

export interface LLMToolContext {
  readonly toolCallId: string
  readonly workingDirectory?: string
  readonly signal: AbortSignal
}

/** One request in the form that every provider receives. */
export interface ProviderRequest {
  readonly model: string
  readonly messages: readonly LLMChatMessage[]
  /** Sorted by name; omitted from the wire's request when empty. */
  readonly tools: readonly LLMToolDefinition[]
  /** Absent: the model chooses. */
  readonly toolChoice?: 'none' | 'required' | { readonly name: string }
  /** Requests JSON of this schema, if the provider supports it. */
  readonly responseFormat?: { readonly name: string; readonly schema: Readonly<Record<string, unknown>> }
  readonly reasoningEffort: ReasoningEffort
  readonly maxTokens?: number
  /** Absent: the server's default. */
  readonly temperature?: number
  /** Whether its server searches the web itself; only where {@link Provider.hasWebSearch} says so. Absent: no. */
  readonly webSearch?: boolean
  /** False: requests a complete answer without streaming, for servers that stream badly. */
  readonly streamed?: boolean
  /**
   * Adapts a request in the form of OpenAI's chat completions to what the server rejected of earlier ones. Providers of
   * other protocols ignore it.
   */
  readonly adaptation?: Adaptation
  readonly signal: AbortSignal
}

/** A part of an answer, the same union for all providers: text, reasoning, call fragments, tokens, end. */
export type { StreamPart as ProviderPart }

/** A model server of any protocol. */
export interface Provider {
  /**
   * The answer in parts, batched per read. A failure is the last part; nothing is thrown, and the request is not
   * retried here. Ends soon after the request's signal is aborted.
   */
  stream(request: ProviderRequest): AsyncIterable<readonly StreamPart[]>
  /** Whether its server can search the web itself. Absent: no. */
  readonly hasWebSearch?: boolean
}
