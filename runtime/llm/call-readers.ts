/**
 * Reads calls written as JSON objects with a name, one of the two forms in which models write calls into text (the
 * other: `tag-readers.ts`). Each reader returns the call's end, so that no character is read twice. Unreadable
 * arguments of a known tool are kept as text for validation to refuse.
 */

import { isRecord } from './json-schema.ts'
import type { ToolSpec } from './messages.ts'
import { endOfGroup, parseModelJson } from './repair.ts'

/** A call read from text. */
export interface WrittenCall {
  readonly name: string
  /** JSON of an object, or the original text when it is unreadable. */
  readonly argumentsText: string
}

export interface ReadCalls {
  /** Offset after the calls. */
  readonly end: number
  /** Empty when the form is present without a call of an offered tool. */
  readonly calls: readonly WrittenCall[]
  /** Whether everything up to `end` matched the form, so that all of it belongs to the calls. */
  readonly isWhole: boolean
}

/** Marks around the calls of a form; empty when it has none. */
export interface CallMarks {
  readonly open: string
  readonly close: string
}

/** Maximum unsuccessful searches to the end of a reply; after that parsing stops. */
const vainMaxCount = 32

/** A reply searched for calls. */
export class Reply {
  readonly text: string
  readonly #tools: ReadonlyMap<string, ToolSpec>
  /** The last search for each mark. */
  readonly #searches = new Map<string, { readonly from: number; readonly at: number }>()
  #vain = 0

  constructor(text: string, tools: readonly ToolSpec[]) {
    this.text = text
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]))
  }

  get hasTools(): boolean {
    return this.#tools.size > 0
  }

  /** Whether further search would exceed linear time. */
  get isHopeless(): boolean {
    return this.#vain > vainMaxCount
  }

  /** Finds a tool by its exact name, without the namespace and number that some forms add. */
  findTool(name: string): ToolSpec | undefined {
    const plain = name
      .trim()
      .replace(/^functions?\./, '')
      .replace(/:\d{1,9}$/, '')
    return this.#tools.get(plain)
  }

  /** Offset after the bracket that closes the one at `from`; -1 when none does. */
  endOfGroup(from: number): number {
    return this.found(endOfGroup(this.text, from))
  }

  /** As `indexOf`, with a cache: consecutive calls share the search for a distant mark. */
  indexOf(mark: string, from: number): number {
    const known = this.#searches.get(mark)
    if (known !== undefined && known.from <= from && (known.at < 0 || known.at >= from)) return known.at
    const at = this.text.indexOf(mark, from)
    this.#searches.set(mark, { from, at })
    return at
  }

  /** Counts an unsuccessful search. */
  found(position: number): number {
    if (position < 0) this.#vain++
    return position
  }
}

/** Skips spaces and line breaks. */
export function skipSpace(text: string, from: number): number {
  let at = from
  while (at < text.length && ' \n\r\t'.includes(text.charAt(at))) at++
  return at
}

/** Offset after `word` if it is at `from` or after spaces; `from` otherwise. */
export function skipWord(text: string, from: number, word: string): number {
  const at = skipSpace(text, from)
  return text.startsWith(word, at) ? at + word.length : from
}

/** End marks that servers leave after calls. */
const endMarks = ['<|eom_id|>', '<|eot_id|>', '<|im_end|>', '<|return|>', '</s>', '<｜end▁of▁sentence｜>']

/** Skips the end marks at `from`. */
export function skipEndMarks(text: string, from: number): number {
  for (let at = from; ; ) {
    const next = skipSpace(text, at)
    const mark = endMarks.find((one) => text.startsWith(one, next))
    if (mark === undefined) return at
    at = next + mark.length
  }
}

/**
 * Reads calls as JSON from `from`: `{"name":…,"arguments":{…}}`, a list of these, or several in sequence, up to the
 * closing mark. In broken JSON, takes the name and keeps the rest for validation.
 */
export function readJsonCalls(reply: Reply, from: number, marks: CallMarks): ReadCalls {
  const { text } = reply
  const calls: WrittenCall[] = []
  let last = { from, callCount: 0, end: from }
  let isWhole = true
  let at = skipSpace(text, from)
  while (isOpening(text, at)) {
    const end = reply.endOfGroup(at)
    if (end < 0) return readBroken(reply, at, marks, calls)
    last = { from: at, callCount: calls.length, end }
    const read = callsOf(text.slice(at, end), reply)
    isWhole &&= read.isWhole
    calls.push(...read.calls)
    at = skipSpace(text, skipWord(text, end, ';'))
  }
  if (!endsThere(reply, last.end, marks)) {
    return readBroken(reply, last.from, marks, calls.slice(0, last.callCount))
  }
  return { end: marks.close === '' ? at : skipWord(text, at, marks.close), calls, isWhole }
}

/**
 * Whether a call whose brackets close before `at` ends there. An unescaped quotation mark closes them too early; then
 * the remaining arguments follow, with their own closing brace.
 */
function endsThere(reply: Reply, at: number, { open, close }: CallMarks): boolean {
  const { text } = reply
  const next = skipSpace(text, skipWord(text, skipEndMarks(text, at), ';'))
  if (next >= text.length || (close !== '' && text.startsWith(close, next))) return true
  const stops = [open, close].flatMap((mark) => (mark === '' ? [] : [reply.found(reply.indexOf(mark, next))]))
  const rest = text.slice(at, Math.min(text.length, ...stops.filter((stop) => stop >= 0)))
  return rest.trim() === '' || (/^[ \t\r]*\n/.test(rest) && !rest.includes('}'))
}

export function isOpening(text: string, at: number): boolean {
  return text.charAt(at) === '{' || text.charAt(at) === '['
}

/** A call that never closes is broken up to its end mark or the end of the text. */
function readBroken(
  reply: Reply,
  at: number,
  { close }: CallMarks,
  calls: readonly WrittenCall[],
): ReadCalls {
  const found = close === '' ? -1 : reply.found(reply.indexOf(close, at))
  const end = found < 0 ? reply.text.length : found
  const broken = brokenCall(reply.text.slice(at, end).trim(), reply)
  return { end: found < 0 ? end : end + close.length, calls: [...calls, ...broken], isWhole: false }
}

/** The calls in a JSON text; a broken one by its name. */
function callsOf(json: string, reply: Reply): { calls: WrittenCall[]; isWhole: boolean } {
  const parsed = parseModelJson(json, { lossless: true })
  if (!parsed.ok) return { calls: brokenCall(json, reply), isWhole: false }
  const values: unknown[] = Array.isArray(parsed.value.value) ? parsed.value.value : [parsed.value.value]
  const calls = values.flatMap((value) => {
    const call = callOf(value, reply)
    return call === null ? [] : [{ name: call.name, argumentsText: call.argumentsText }]
  })
  return { calls, isWhole: true }
}

/** The call that a JSON value represents; null for none, or for a tool that was not offered. */
export function callOf(value: unknown, reply: Reply): (WrittenCall & { readonly isExact: boolean }) | null {
  if (!isRecord(value)) return null
  if (isRecord(value.function)) return callOf(value.function, reply)
  const tool = typeof value.name === 'string' ? reply.findTool(value.name) : undefined
  if (tool === undefined) return null
  const { name: _name, type: _type, id: _id, index: _index, arguments: given, parameters, ...others } = value
  const { name } = tool
  // Other fields may be intended as arguments; collected in a list, they never fit any tool's parameters.
  const isClear = Object.keys(others).length === 0 && (given === undefined || parameters === undefined)
  if (!isClear) return { name, argumentsText: JSON.stringify([value]), isExact: false }
  const args = given ?? parameters ?? {}
  const argumentsText = typeof args === 'string' ? args : JSON.stringify(args)
  return { name, argumentsText, isExact: isRecord(given ?? parameters) }
}

/** Reads the start of broken JSON: arguments that close are complete, others extend to the end of the text. */
function brokenCall(text: string, reply: Reply): WrittenCall[] {
  const head =
    /^\[?\s{0,100}\{\s{0,100}["']name["']\s{0,100}:\s{0,100}["']([\w.:-]{1,100})["']\s{0,100},\s{0,100}["'](?:arguments|parameters)["']\s{0,100}:\s{0,100}/.exec(
      text.slice(0, 1_000),
    ) ??
    /^\[?\s{0,100}\{\s{0,100}["']name["']\s{0,100}:\s{0,100}["']([\w.:-]{1,100})["']/.exec(
      text.slice(0, 1_000),
    )
  const tool = head?.[1] === undefined ? undefined : reply.findTool(head[1])
  if (head === null || tool === undefined) return []
  const rest = text.slice(head[0].length).trim()
  const end = rest.startsWith('{') ? endOfGroup(rest, 0) : -1
  // Only closing brackets may follow complete arguments.
  const whole = end > 0 && /^[\s}\]]*$/.test(rest.slice(end, end + 100)) && rest.length - end < 100
  return [{ name: tool.name, argumentsText: whole ? rest.slice(0, end) : rest === '' ? '{' : rest }]
}

export interface ReadArguments {
  /** JSON, or the original text. */
  readonly json: string
  /** Offset after the arguments; the closing mark may follow. */
  readonly end: number
  readonly isWhole: boolean
}

/** Arguments from `from` to the closing mark or the text's end, unchanged; complete JSON ends earlier. */
export function readArguments(reply: Reply, from: number, marks: CallMarks): ReadArguments {
  const { text } = reply
  const at = skipSpace(text, from)
  const group = isOpening(text, at) ? reply.endOfGroup(at) : -1
  // Older models put a code fence around the arguments.
  const behind = group < 0 ? -1 : skipWord(text, group, '```')
  if (group >= 0 && endsThere(reply, behind, marks))
    return { json: text.slice(at, group), end: behind, isWhole: true }
  const found = reply.found(reply.indexOf(marks.close, at))
  const end = found < 0 ? text.length : found
  const json = text.slice(at, end).trim()
  // Empty arguments are complete only when the call was closed.
  if (json === '') return { json: found < 0 ? '{' : '{}', end, isWhole: found >= 0 }
  return { json, end, isWhole: false }
}
