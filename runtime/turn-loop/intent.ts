/** Creates a tool call from a text in which the application recognizes one. */
import type { LLMResponse, LLMToolCall } from '../contract/contract.ts'

export interface ParsedToolIntent {
  readonly toolName: string
  /** An object of JSON. */
  readonly toolArgs: Readonly<Record<string, unknown>>
}

/** `response` with one call of the id `id`; null when the text contains none. Text and all other fields are kept. */
export function normalizeToolIntent<TResponse extends LLMResponse>(
  response: TResponse,
  parse: (content: string) => ParsedToolIntent | null | undefined,
  id: string,
  mark: boolean,
): TResponse | null {
  const content: string | undefined = response.content
  if (response.type !== 'text' || (content ?? '').trim() === '') return null
  const intent = parse(content)
  if (!intent) return null
  const call: LLMToolCall = {
    id,
    type: 'function',
    function: { name: intent.toolName, arguments: JSON.stringify(intent.toolArgs ?? {}) },
    ...(mark ? { synthetic: true } : {}),
  }
  return {
    ...response,
    type: 'tool_calls',
    tool_calls: [call],
    assistantMessage: { ...response.assistantMessage, tool_calls: [{ ...call }] },
  }
}
