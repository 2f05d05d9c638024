/**
 * One request to a model as every protocol gets it. The transcripts of `caisson/runtime` have this form; the gateway makes
 * it of a guest's chat request.
 */

export interface ProtocolCall {
  readonly id: string
  /** `arguments` is JSON as the model wrote it, unvalidated. */
  readonly function: { readonly name: string; readonly arguments: string }
}

export interface ProtocolMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** In a user message: images behind its text, as data URLs of `specs/protocol/image.ts`. Absent: none. */
  readonly images?: readonly string[]
  /** In an assistant message. */
  readonly tool_calls?: readonly ProtocolCall[]
  /** In a tool message: the id of the call that it answers. */
  readonly tool_call_id?: string
  /** In an assistant message: opaque provider data (signatures of reasoning), sent back unchanged. */
  readonly provider_state?: unknown
}

export interface ProtocolTool {
  readonly name: string
  readonly description: string
  /** JSON schema of an object. */
  readonly parameters: Readonly<Record<string, unknown>>
}

export interface ProtocolRequest {
  readonly model: string
  readonly messages: readonly ProtocolMessage[]
  readonly tools: readonly ProtocolTool[]
  /** Absent: the model chooses. */
  readonly toolChoice?: 'none' | 'required' | { readonly name: string }
  /** Requests JSON of this schema, if the provider supports it. */
  readonly responseFormat?: { readonly name: string; readonly schema: Readonly<Record<string, unknown>> }
  readonly reasoningEffort: 'default' | 'none' | 'low' | 'medium' | 'high'
  readonly maxTokens?: number
  /** Absent: the server's default. */
  readonly temperature?: number
  /** Absent: the server's default. */
  readonly topP?: number
  /** Texts that end the answer. Absent: none. */
  readonly stop?: readonly string[]
  /** Whether the provider's server searches the web itself. Absent: no. */
  readonly webSearch?: boolean
}

/** Maximum tokens of an answer where the request has no number. */
export const defaultMaxTokens = 16_384
