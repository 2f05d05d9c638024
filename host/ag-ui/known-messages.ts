/** What a front end has of a conversation, by its own word, so that a run that is sent again repeats nothing. */
import type { AgUiMessage } from '#specs/service/ag-ui-resources.ts'

export class KnownMessages {
  readonly #texts = new Map<string, string>()
  readonly #calls = new Set<string>()
  readonly #results = new Set<string>()

  constructor(messages: readonly AgUiMessage[]) {
    for (const message of messages) {
      this.#texts.set(message.id, textOf(message))
      for (const { id } of message.toolCalls ?? []) this.#calls.add(id)
      if (message.role === 'tool' && message.toolCallId !== undefined) this.#results.add(message.toolCallId)
    }
  }

  /** The beginning of a message that the front end has; empty where it has none. */
  textOf(messageId: string): string {
    return this.#texts.get(messageId) ?? ''
  }

  hasCall(toolCallId: string): boolean {
    return this.#calls.has(toolCallId)
  }

  hasResult(toolCallId: string): boolean {
    return this.#results.has(toolCallId)
  }
}

/** The text of a message, without parts of other kinds. */
export function textOf({ content }: AgUiMessage): string {
  if (typeof content === 'string') return content
  return Array.isArray(content) ? content.map(({ text = '' }) => text).join('\n') : ''
}
