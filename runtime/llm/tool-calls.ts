/**
 * Tool calls out of their fragments. Servers disagree on indices, ids and repeated names; what is certain is put
 * together here, in time linear in the fragments. Arguments stay text: whether they are JSON is judged later.
 */
import type { ToolCallRequest } from './messages.ts'

/** One entry of `delta.tool_calls`; null where the server left the field out. */
export interface ToolCallFragment {
  readonly index: number | null
  readonly id: string | null
  readonly name: string | null
  readonly argumentsText: string
}

interface OpenCall {
  readonly index: number | null
  id: string | null
  name: string
  readonly parts: string[]
  readonly scan: JsonScan
}

/** Whether the text is JSON that stops too early: good up to its end, and not whole. */
export function isCutOff(text: string): boolean {
  // Following brackets is a fraction of the work of parsing, and says enough of whole arguments, which most are.
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
 * The calls that have a name; null when the answer lost the name of a call. Arguments without a name are always a loss: they
 * may belong to another call of the answer. An entry without either is dropped where the answer holds something else.
 */
export function takeNamedCalls(
  calls: readonly ToolCallRequest[],
  answer: { readonly text: string; readonly finishReason: string },
): readonly ToolCallRequest[] | null {
  const named = calls.filter(({ name }) => name !== '')
  if (named.length === calls.length) return calls
  const { text, finishReason } = answer
  // The bound of tokens may end an answer before a name.
  if (finishReason === 'length' || finishReason === 'content_filter') return named
  const hasArguments = calls.some(
    ({ name, argumentsText }) => name === '' && !/^\s*(\{\s*\})?\s*$/.test(argumentsText),
  )
  const isRest = named.length > 0 || (finishReason === 'stop' && text.trim() !== '')
  return hasArguments || !isRest ? null : named
}

/** Collects the calls of one turn, in the order in which they began. */
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
    // Some servers repeat the whole name in every fragment: it is assigned, never appended.
    if (name !== null) call.name = name
    call.id ??= id
    if (fragment.argumentsText !== '') call.parts.push(fragment.argumentsText)
  }

  /** The calls; ids are the server's, or empty where it gave none. The name of a call that never got one is empty. */
  finish(): ToolCallRequest[] {
    return this.#calls.map((call) => ({
      id: call.id ?? '',
      name: call.name,
      argumentsText: call.parts.join(''),
    }))
  }

  /** The call that the fragment goes on with; undefined when it begins a new one. */
  #find(fragment: ToolCallFragment, id: string | null, name: string | null): OpenCall | undefined {
    const last = this.#calls.at(-1)
    const { index } = fragment
    if (index === null) {
      if (id !== null) return this.#calls.find((call) => call.id === id)
      return last !== undefined && beginsAnother(last, name, fragment.argumentsText) ? undefined : last
    }
    const known = this.#newestByIndex.get(index)
    if (known === undefined) {
      // The same id on another index goes on only when it brings no name of its own.
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

/** Without an id: a name after arguments that are already whole is the head of another call. */
function beginsAnother(call: OpenCall, name: string | null, argumentsText: string): boolean {
  if (name === null || call.name === '' || !isComplete(call)) return false
  return name !== call.name || argumentsText.trim() !== ''
}

/** Whether the call's arguments have closed. Most servers leave no doubt, so that most arguments are never looked at. */
function isComplete({ parts, scan }: OpenCall): boolean {
  while (scan.seenParts < parts.length) scan.feed(parts[scan.seenParts] ?? '')
  return scan.complete
}

/** Follows brackets and strings, to know when a JSON object or array has closed; each character is seen once. */
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
