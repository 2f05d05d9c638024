/**
 * Conversation messages, and their wire form (OpenAI-compatible chat completions). Forms that servers differ about are
 * the work of `specs/node/provider-quirks/`.
 */
import type {
  CompletionMessage,
  CompletionRequest,
  CompletionToolCall,
} from '#specs/protocol/completion-request.ts'

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
  | { readonly role: 'user'; readonly content: string }
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

/** The message in wire form, its calls valid whatever the model said. */
export function toWireMessage(message: ChatMessage): CompletionMessage {
  switch (message.role) {
    case 'assistant': {
      const { content, toolCalls, reasoning } = message
      if (toolCalls.length === 0) return { role: 'assistant', content }
      const thought = reasoning === undefined ? {} : { reasoning_content: reasoning }
      return { role: 'assistant', content, ...thought, tool_calls: toolCalls.map(toWireCall) }
    }
    case 'tool':
      return { role: 'tool', tool_call_id: message.callId, content: message.content }
    default:
      return { role: message.role, content: message.content }
  }
}

/** The tool in wire form. */
export function toWireTool(tool: ToolSpec): NonNullable<CompletionRequest['tools']>[number] {
  return {
    type: 'function',
    function: { name: tool.name, description: tool.description, parameters: tool.parameters },
  }
}

/** Every turn sends the whole conversation; each call is converted once. */
const wireCalls = new WeakMap<ToolCallRequest, CompletionToolCall>()

function toWireCall(call: ToolCallRequest): CompletionToolCall {
  const known = wireCalls.get(call)
  if (known !== undefined) return known
  const made: CompletionToolCall = {
    id: call.id,
    type: 'function',
    function: {
      name: toWireName(call.name),
      // llama-server answers 500 to a history that it cannot parse.
      arguments: isJsonObject(call.argumentsText) ? call.argumentsText : '{}',
    },
  }
  wireCalls.set(call, made)
  return made
}

/** A name that every server accepts, also when the model used an invalid tool name. */
function toWireName(name: string): string {
  const plain = name
    .trim()
    .replaceAll(/[^A-Za-z0-9_-]/g, '_')
    .slice(0, 64)
  return plain === '' ? 'unknown' : plain
}

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}
