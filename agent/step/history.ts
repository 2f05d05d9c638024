/**
 * The conversation of one step, in a form that every provider takes at every moment: a call has its result from the moment it
 * is asked (`interrupted` until the real one comes), no assistant message is empty, and roles take turns. What is there is
 * never rewritten, except that words are added to a last message that has not been answered, and that `replace` makes
 * the whole shorter.
 */
import type { ChatMessage, ToolCallRequest } from '#runtime/llm/messages.ts'

/** What stands for the result of a call that has none yet. */
export const interruptedOutput =
  'Error (cancelled): interrupted: this call has no result; its effect is unknown'

/** What the model said in one turn. */
export interface AssistantTurn {
  readonly text: string
  readonly reasoning: string
  readonly toolCalls: readonly ToolCallRequest[]
}

export class History {
  #messages: ChatMessage[]
  /** Where the result of a call stands that has none yet. */
  readonly #open = new Map<string, number>()

  /** `opening`: the system's message and the user's, as every request of the step begins. */
  constructor(opening: readonly ChatMessage[]) {
    this.#messages = [...opening]
  }

  /** Valid as it is. Not to be kept: the next change is made in it. */
  get messages(): readonly ChatMessage[] {
    return this.#messages
  }

  /** Calls without a result. */
  get openCalls(): readonly string[] {
    return [...this.#open.keys()]
  }

  /** Takes in what the model said; nothing, where it said nothing. Its calls are open from here on. */
  addTurn({ text, reasoning, toolCalls }: AssistantTurn): void {
    const calls = toolCalls.filter(
      ({ id }, index) => !this.#open.has(id) && toolCalls.findIndex((other) => other.id === id) === index,
    )
    if (text.trim() === '' && calls.length === 0) return
    const last = this.#messages.at(-1)
    if (last?.role === 'assistant') {
      // Two answers with nothing between them: the first has no calls, or results would follow it.
      this.#messages.pop()
      text = joinTexts(last.content, text)
    }
    const thought = reasoning === '' ? {} : { reasoning }
    this.#messages.push({ role: 'assistant', content: text, toolCalls: calls, ...thought })
    for (const { id } of calls) {
      this.#open.set(id, this.#messages.length)
      this.#messages.push({ role: 'tool', callId: id, content: interruptedOutput })
    }
  }

  /** Puts in the result of an open call; false when there is no such call, and nothing changes. */
  setResult(callId: string, content: string): boolean {
    const index = this.#open.get(callId)
    if (index === undefined) return false
    this.#open.delete(callId)
    this.#messages[index] = { role: 'tool', callId, content }
    return true
  }

  /** Words for the model: a message of their own, or the rest of one that was not answered. */
  addUser(text: string): void {
    if (text.trim() === '') return
    const last = this.#messages.at(-1)
    if (last?.role !== 'user') this.#messages.push({ role: 'user', content: text })
    else this.#messages[this.#messages.length - 1] = { role: 'user', content: joinTexts(last.content, text) }
  }

  /**
   * A word of ours behind the last message, whosesoever it is: a message of its own where the model spoke last. Some
   * providers refuse a user's message behind a result.
   */
  addNote(text: string): void {
    if (text.trim() === '') return
    const last = this.#messages.at(-1)
    if (last === undefined || last.role === 'assistant') this.addUser(text)
    else this.#messages[this.#messages.length - 1] = { ...last, content: joinTexts(last.content, text) }
  }

  /**
   * Puts other messages in the place of all: what compaction made of them, valid as well. Refused with false while calls are
   * open, whose results would have no place.
   */
  replace(messages: readonly ChatMessage[]): boolean {
    if (this.#open.size > 0) return false
    this.#messages = [...messages]
    return true
  }
}

/** For models that take no user's message behind a tool's result: with a word of the assistant between the two. */
export function bridgeResults(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const bridge: ChatMessage = {
    role: 'assistant',
    content: '(A message of the user comes in.)',
    toolCalls: [],
  }
  return messages.flatMap((message, index) =>
    message.role === 'user' && messages[index - 1]?.role === 'tool' ? [bridge, message] : [message],
  )
}

function joinTexts(a: string, b: string): string {
  if (a.trim() === '') return b
  return b.trim() === '' ? a : `${a}\n\n${b}`
}
