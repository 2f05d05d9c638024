/**
 * Assembles tool calls from fragments, in linear time. Servers disagree on indices, ids and repeated names; only
 * certain fragments are joined. Arguments stay text; JSON is checked later.
 */
import type { ToolCallFragment } from '#specs/node/model-protocols/parts.ts'
import type { ToolCallRequest } from './messages.ts'

export type { ToolCallFragment }

interface OpenCall {
  readonly index: number | null
  id: string | null
  name: string
  readonly parts: string[]
  readonly scan: JsonScan
}

/** Whether the text is valid but incomplete JSON. */
export function isCutOff(text: string): boolean {
  // Matching brackets is much cheaper than parsing and suffices for complete arguments, the usual case.
  const scan = new JsonScan()
  scan.feed(text)
  if (scan.complete || text.trim() === '') return false
  try {
    JSON.parse(text)
    return false
  } catch (error) {
    const said = error instanceof Error ? error.message : ''
    const place = /at position (\d+)/.exec(said)?.[1]
    return place === undefined ? said.startsWith('Unexpected end') : Number(place) === text.length
  }
}

/**
 * The named calls; null when the answer lost a name. Arguments without a name are always a loss, since they may
 * belong to another call. An entry with neither is dropped when the answer has other content.
 */
export function takeNamedCalls(
  calls: readonly ToolCallRequest[],
  answer: { readonly text: string; readonly finishReason: string },
): readonly ToolCallRequest[] | null {
  const named = calls.filter(({ name }) => name !== '')
  if (named.length === calls.length) return calls
  const { text, finishReason } = answer
  // The token limit may end an answer before a name.
  if (finishReason === 'length' || finishReason === 'content_filter') return named
  const hasArguments = calls.some(
    ({ name, argumentsText }) => name === '' && !/^\s*(\{\s*\})?\s*$/.test(argumentsText),
  )
  const isRest = named.length > 0 || (finishReason === 'stop' && text.trim() !== '')
  return hasArguments || !isRest ? null : named
}

/** Collects the calls of one turn in order. */
export class ToolCallCollector {
  readonly #calls: OpenCall[] = []
  readonly #newestByIndex = new Map<number, OpenCall>()

  get count(): number {
    return this.#calls.length
  }

  add(fragment: ToolCallFragment): void {
    const id = fragment.id === null || fragment.id.trim() === '' ? null : fragment.id.trim()
    const name = fragment.name === null || fragment.name.trim() === '' ? null : fragment.name.trim()
    const call = this.#find(fragment, id, name) ?? this.#open(fragment.index, id)
    // Some servers repeat the whole name in every fragment: assign it, never append.
    if (name !== null) call.name = name
    call.id ??= id
    if (fragment.argumentsText !== '') call.parts.push(fragment.argumentsText)
  }

  /** The calls, with the server's ids or empty ones. A missing name is empty. */
  finish(): ToolCallRequest[] {
    return this.#calls.map((call) => ({
      id: call.id ?? '',
      name: call.name,
      argumentsText: call.parts.join(''),
    }))
  }

  /** The call that the fragment continues; undefined when it starts a new one. */
  #find(fragment: ToolCallFragment, id: string | null, name: string | null): OpenCall | undefined {
    const last = this.#calls.at(-1)
    const { index } = fragment
    if (index === null) {
      if (id !== null) return this.#calls.find((call) => call.id === id)
      return last !== undefined && beginsAnother(last, name, fragment.argumentsText) ? undefined : last
    }
    const known = this.#newestByIndex.get(index)
    if (known === undefined) {
      // The same id on another index continues only without its own name.
      return id !== null && name === null ? this.#calls.find((call) => call.id === id) : undefined
    }
    if (id !== null) {
      if (known.id === id) return known
      if (known.id !== null) return this.#calls.find((call) => call.id === id && call.index === index)
      return isComplete(known) ? undefined : known
    }
    return beginsAnother(known, name, fragment.argumentsText) ? undefined : known
  }

  #open(index: number | null, id: string | null): OpenCall {
    const call: OpenCall = { index, id, name: '', parts: [], scan: new JsonScan() }
    this.#calls.push(call)
    if (index !== null) this.#newestByIndex.set(index, call)
    return call
  }
}

/** Without an id: a name after complete arguments starts another call. */
function beginsAnother(call: OpenCall, name: string | null, argumentsText: string): boolean {
  if (name === null || call.name === '' || !isComplete(call)) return false
  return name !== call.name || argumentsText.trim() !== ''
}

/** Whether the call's arguments are complete. Most servers make this clear without inspecting them. */
function isComplete({ parts, scan }: OpenCall): boolean {
  while (scan.seenParts < parts.length) scan.feed(parts[scan.seenParts] ?? '')
  return scan.complete
}

/** Tracks brackets and strings to detect the end of a JSON object or array; reads each character once. */
class JsonScan {
  seenParts = 0
  #depth = 0
  #inString = false
  #escaped = false
  #begun = false

  get complete(): boolean {
    return this.#begun && this.#depth === 0 && !this.#inString
  }

  feed(text: string): void {
    this.seenParts++
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at)
      if (this.#inString) {
        if (this.#escaped) this.#escaped = false
        else if (code === 0x5c) this.#escaped = true
        else if (code === 0x22) this.#inString = false
      } else if (code === 0x22) this.#inString = true
      else if (code === 0x7b || code === 0x5b) {
        this.#depth++
        this.#begun = true
      } else if (code === 0x7d || code === 0x5d) this.#depth--
    }
  }
}
