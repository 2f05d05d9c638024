/**
 * The messages of one step, valid for every provider at all times: each call has a result at once (`interrupted`
 * until the real one arrives), no assistant message is empty, and roles alternate. Messages are never rewritten, with
 * three exceptions: text is appended to an unanswered last message, images beyond one request are dropped, and `replace`
 * shortens the whole.
 */
import type { ChatMessage, ToolCallRequest } from '#runtime/llm/messages.ts'
import { boundPictures, describePictures } from '../context/pictures.ts'
import type { Picture } from '../tool-calls/tool.ts'

/** Placeholder result of a call that has none yet. */
export const interruptedOutput =
  'Error (cancelled): interrupted: this call has no result; its effect is unknown'

/** The model's output in one turn. */
interface AssistantTurn {
  readonly text: string
  readonly reasoning: string
  readonly toolCalls: readonly ToolCallRequest[]
}

export class History {
  #messages: ChatMessage[]
  /** Index of the placeholder result of each open call. */
  readonly #open = new Map<string, number>()

  /** @param opening the system and user messages that begin every request of the step */
  constructor(opening: readonly ChatMessage[]) {
    this.#messages = [...opening]
  }

  /** Always valid. Do not keep it: the next change mutates it. */
  get messages(): readonly ChatMessage[] {
    return this.#messages
  }

  /** Calls without a result. */
  get openCalls(): readonly string[] {
    return [...this.#open.keys()]
  }

  /** Adds the model's turn, unless it is empty. Its calls are open from here on. */
  addTurn({ text, reasoning, toolCalls }: AssistantTurn): void {
    const calls = toolCalls.filter(
      ({ id }, index) => !this.#open.has(id) && toolCalls.findIndex((other) => other.id === id) === index,
    )
    if (text.trim() === '' && calls.length === 0) return
    const last = this.#messages.at(-1)
    if (last?.role === 'assistant') {
      // Two consecutive answers: the first has no calls, or results would follow it.
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

  /** Stores the result of an open call; false, without a change, when there is no such call. */
  setResult(callId: string, content: string): boolean {
    const index = this.#open.get(callId)
    if (index === undefined) return false
    this.#open.delete(callId)
    this.#messages[index] = { role: 'tool', callId, content }
    return true
  }

  /** Adds text for the model: as a new message, or appended to an unanswered one. */
  addUser(text: string): void {
    if (text.trim() === '') return
    const last = this.#messages.at(-1)
    if (last?.role !== 'user') this.#messages.push({ role: 'user', content: text })
    else this.#messages[this.#messages.length - 1] = { ...last, content: joinTexts(last.content, text) }
  }

  /** Adds the images of the calls that were answered last. */
  addPictures(pictures: readonly Picture[]): void {
    const images = pictures.map(({ url }) => url)
    this.#messages.push({ role: 'user', content: describePictures(pictures), images })
  }

  /** Drops the oldest images until all of them fit into a request. */
  boundPictures(): void {
    this.#messages = boundPictures(this.#messages)
  }

  /**
   * Appends our own message at the end: a separate message when the model spoke last. Some providers reject a user
   * message after a result.
   */
  addNote(text: string): void {
    if (text.trim() === '') return
    const last = this.#messages.at(-1)
    if (last === undefined || last.role === 'assistant') this.addUser(text)
    else this.#messages[this.#messages.length - 1] = { ...last, content: joinTexts(last.content, text) }
  }

  /**
   * Replaces all messages with a valid compacted list. Returns false while calls are open, since their results would
   * have no place.
   */
  replace(messages: readonly ChatMessage[]): boolean {
    if (this.#open.size > 0) return false
    this.#messages = [...messages]
    return true
  }
}

/** For models that reject a user message after a tool result: inserts an assistant message between them. */
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
