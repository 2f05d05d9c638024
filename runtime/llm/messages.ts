/**
 * Conversation messages in wire form (OpenAI-compatible chat completions), with the rules that keep them acceptable
 * to all known servers: no empty content, every call answered, no list content.
 */

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
      /** Kept in the history; sent back only to servers that require it. */
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

/**
 * The message in wire form. An assistant's content beside calls is `null` rather than empty (some servers answer
 * 400 to `""`), a tool's result is never empty, and arguments that are not a JSON object go as `{}`
 * (llama-server answers 500 to history that it cannot parse). `echoReasoning` sends back what the model thought before its
 * calls, for models that refuse their own calls without it.
 */
export function toWireMessage(message: ChatMessage, echoReasoning = false): Record<string, unknown> {
  switch (message.role) {
    case 'assistant': {
      const content = message.content.trim() === '' ? null : message.content
      if (message.toolCalls.length === 0) return { role: 'assistant', content: content ?? '(no answer)' }
      const toolCalls = message.toolCalls.map(toWireCall)
      const reasoning = echoReasoning ? { reasoning_content: message.reasoning ?? '' } : {}
      return { role: 'assistant', content, ...reasoning, tool_calls: toolCalls }
    }
    case 'tool':
      return {
        role: 'tool',
        tool_call_id: message.callId,
        content: message.content.trim() === '' ? '(no output)' : message.content,
      }
    default:
      return { role: message.role, content: message.content }
  }
}

/** The tool in wire form. */
export function toWireTool(tool: ToolSpec): Record<string, unknown> {
  return {
    type: 'function',
    function: { name: tool.name, description: tool.description, parameters: tool.parameters },
  }
}

/** Every turn sends the whole conversation; each call is converted once. */
const wireCalls = new WeakMap<ToolCallRequest, Record<string, unknown>>()

function toWireCall(call: ToolCallRequest): Record<string, unknown> {
  const known = wireCalls.get(call)
  if (known !== undefined) return known
  const made = makeWireCall(call)
  wireCalls.set(call, made)
  return made
}

function makeWireCall(call: ToolCallRequest): Record<string, unknown> {
  return {
    id: call.id,
    type: 'function',
    function: {
      name: toWireName(call.name),
      arguments: isJsonObject(call.argumentsText) ? call.argumentsText : '{}',
    },
  }
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
