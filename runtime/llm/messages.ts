/** Conversation messages, calls and tools, apart from any protocol. */

/** One call in an assistant message; `argumentsText` is JSON, or the model's original text. */
export interface ToolCallRequest {
  readonly id: string
  readonly name: string
  readonly argumentsText: string
  /** The text form in which the call was found (`text-calls.ts`); absent for a regular call. */
  readonly writtenAs?: string
}

export type ChatMessage =
  | { readonly role: 'system'; readonly content: string }
  | {
      readonly role: 'user'
      readonly content: string
      /** Data URLs of images behind the text. */
      readonly images?: readonly string[]
    }
  | {
      readonly role: 'assistant'
      readonly content: string
      readonly toolCalls: readonly ToolCallRequest[]
      /** Before the calls. Whoever adapts requests sends it only to servers that require it. */
      readonly reasoning?: string
    }
  | { readonly role: 'tool'; readonly callId: string; readonly content: string }

/** A tool as described to the model. */
export interface ToolSpec {
  readonly name: string
  readonly description: string
  /** JSON schema of the arguments, an object. */
  readonly parameters: Readonly<Record<string, unknown>>
}
