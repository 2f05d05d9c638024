/**
 * The bodies in which models write calls into their text: JSON objects with a name, and tags with a parameter each. Every
 * reader says where the call ends, so that no character is read twice; a call whose name is known and whose arguments
 * cannot be read keeps them as they stand, for validation to refuse.
 */

import { isRecord } from './json-schema.ts'
import { findDoubledKey } from './json-tokens.ts'
import type { ToolSpec } from './messages.ts'
import { endOfGroup, parseModelJson } from './repair.ts'

/** A call as it was read from text. */
export interface WrittenCall {
  readonly name: string
  /** JSON of an object, or what stands in its place where that could not be read. */
  readonly argumentsText: string
}

export interface ReadCalls {
  /** Behind the last character that belongs to the calls. */
  readonly end: number
  /** Empty where something of the form stands, but no call of an offered tool. */
  readonly calls: readonly WrittenCall[]
}

/** Searches that reached the end of the reply in vain; a reply with more of them is no longer looked through. */
const vainMaxCount = 32

/** A reply in which calls are looked for. */
export class Reply {
  readonly text: string
  readonly #tools: ReadonlyMap<string, ToolSpec>
  #vain = 0

  constructor(text: string, tools: readonly ToolSpec[]) {
    this.text = text
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]))
  }

  /** Whether looking on would no longer take time in proportion to the text. */
  get isHopeless(): boolean {
    return this.#vain > vainMaxCount
  }

  /** A tool by its exact name, without the namespace and number that some forms put around it. */
  findTool(name: string): ToolSpec | undefined {
    const plain = name
      .trim()
      .replace(/^functions?\./, '')
      .replace(/:\d{1,9}$/, '')
    return this.#tools.get(plain)
  }

  /** Behind the bracket that closes the one at `from`; -1 when none does. */
  endOfGroup(from: number): number {
    return this.found(endOfGroup(this.text, from))
  }

  /** Counts a search in vain. */
  found(position: number): number {
    if (position < 0) this.#vain++
    return position
  }
}

/** Where the text goes on behind spaces and line breaks. */
export function skipSpace(text: string, from: number): number {
  let at = from
  while (at < text.length && ' \n\r\t'.includes(text.charAt(at))) at++
  return at
}

/** Behind `word` if it stands at `from` or behind spaces; `from` otherwise. */
export function skipWord(text: string, from: number, word: string): number {
  const at = skipSpace(text, from)
  return text.startsWith(word, at) ? at + word.length : from
}

/**
 * Calls as JSON from `from` on: `{"name":…,"arguments":{…}}`, a list of these, or several side by side, up to `close`.
 * Where the JSON is broken, the name at its head is taken and the rest is kept for validation.
 */
export function readJsonCalls(reply: Reply, from: number, close: string): ReadCalls {
  const { text } = reply
  const calls: WrittenCall[] = []
  let at = skipSpace(text, from)
  while (isOpening(text, at)) {
    const end = reply.endOfGroup(at)
    if (end < 0) return readBroken(reply, at, close, calls)
    calls.push(...callsOf(text.slice(at, end), reply))
    at = skipSpace(text, skipWord(text, end, ';'))
  }
  return { end: close !== '' && text.startsWith(close, at) ? at + close.length : at, calls }
}

export function isOpening(text: string, at: number): boolean {
  return text.charAt(at) === '{' || text.charAt(at) === '['
}

/** What never closes is broken up to the end of the call, or of the text. */
function readBroken(reply: Reply, at: number, close: string, calls: readonly WrittenCall[]): ReadCalls {
  const found = close === '' ? -1 : reply.found(reply.text.indexOf(close, at))
  const end = found < 0 ? reply.text.length : found
  const broken = brokenCall(reply.text.slice(at, end).trim(), reply)
  return { end: found < 0 ? end : end + close.length, calls: [...calls, ...broken] }
}

/** The calls in a whole JSON text; a broken one by its head. */
function callsOf(json: string, reply: Reply): WrittenCall[] {
  const parsed = parseModelJson(json, { dropProse: false })
  if (!parsed.ok) return brokenCall(json, reply)
  const values: unknown[] = Array.isArray(parsed.value.value) ? parsed.value.value : [parsed.value.value]
  return values.flatMap((value) => {
    const call = callOf(value, reply)
    return call === null ? [] : [{ name: call.name, argumentsText: call.argumentsText }]
  })
}

/** The call that a JSON value is; null when it is none, or of a tool that was not offered. */
export function callOf(value: unknown, reply: Reply): (WrittenCall & { readonly isExact: boolean }) | null {
  if (!isRecord(value)) return null
  if (isRecord(value.function)) return callOf(value.function, reply)
  const tool = typeof value.name === 'string' ? reply.findTool(value.name) : undefined
  if (tool === undefined) return null
  const { name: _name, type: _type, id: _id, index: _index, arguments: given, parameters, ...others } = value
  const { name } = tool
  // Whatever else stands there may be meant as an argument; in a list it never fits, whatever the tool's parameters are.
  const isClear = Object.keys(others).length === 0 && (given === undefined || parameters === undefined)
  if (!isClear) return { name, argumentsText: JSON.stringify([value]), isExact: false }
  const args = given ?? parameters ?? {}
  const argumentsText = typeof args === 'string' ? args : JSON.stringify(args)
  return { name, argumentsText, isExact: isRecord(given ?? parameters) }
}

/** The call that broken JSON begins: arguments that close by themselves are whole, others go on to the end of the text. */
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
  // Only closing brackets may follow whole arguments.
  const whole = end > 0 && /^[\s}\]]*$/.test(rest.slice(end, end + 100)) && rest.length - end < 100
  return [{ name: tool.name, argumentsText: whole ? rest.slice(0, end) : rest === '' ? '{' : rest }]
}

/** Arguments from `from` up to `close` or the text's end, as they stand; JSON that closes by itself ends there. */
export function readArguments(reply: Reply, from: number, close: string): { json: string; end: number } {
  const { text } = reply
  const at = skipSpace(text, from)
  const group = isOpening(text, at) ? reply.endOfGroup(at) : -1
  if (group >= 0) return { json: text.slice(at, group), end: group }
  const found = reply.found(text.indexOf(close, at))
  const end = found < 0 ? text.length : found
  // Empty arguments are whole only where the call was closed.
  return { json: text.slice(at, end).trim() || (found < 0 ? '{' : '{}'), end }
}

/** How a form writes one call with tags. */
export interface Tags {
  /** Up to the name, such as `<function=`; the name ends at a quote or `>`. */
  readonly call: string
  readonly callEnd: string
  readonly parameter: string
  readonly parameterEnd: string
}

/** One call in tags whose first stands at `from`. */
export function readTaggedCall(reply: Reply, from: number, tags: Tags): ReadCalls {
  const { text } = reply
  const name = readTagName(text, from, tags.call)
  const tool = name === null ? undefined : reply.findTool(name.value)
  const close = text.indexOf(tags.callEnd, from)
  if (name === null || tool === undefined) {
    return { end: close < 0 ? text.length : close + tags.callEnd.length, calls: [] }
  }
  const read = readParameters(reply, name.end, tags, tool)
  if (read !== null) return { end: read.end, calls: [{ name: tool.name, argumentsText: read.json }] }
  const end = close < 0 ? text.length : close
  const raw = text.slice(name.end, end).trim()
  // Some models give JSON in these tags; whatever else stands there is for validation to refuse.
  const argumentsText = raw === '' && close < 0 ? '{' : raw
  return { end: close < 0 ? end : end + tags.callEnd.length, calls: [{ name: tool.name, argumentsText }] }
}

/** The parameters up to the end of the call, as JSON; null when it is not whole or one is given twice. */
function readParameters(
  reply: Reply,
  from: number,
  tags: Tags,
  tool: ToolSpec,
): { json: string; end: number } | null {
  const { text } = reply
  const values = new Map<string, unknown>()
  for (let at = skipSpace(text, from); ; at = skipSpace(text, at)) {
    if (text.startsWith(tags.callEnd, at)) {
      return { json: JSON.stringify(Object.fromEntries(values)), end: at + tags.callEnd.length }
    }
    const name = readTagName(text, at, tags.parameter)
    if (name === null || values.has(name.value) || name.value === '__proto__') return null
    const end = reply.found(endOfValue(text, name.end, tags))
    if (end < 0) return null
    values.set(name.value, typedValue(text.slice(name.end, end), tool, name.value))
    at = end + tags.parameterEnd.length
  }
}

/** A value ends at its closing tag, but only where a further parameter or the end of the call follows: a value may hold tags. */
function endOfValue(text: string, from: number, tags: Tags): number {
  for (
    let at = text.indexOf(tags.parameterEnd, from);
    at >= 0;
    at = text.indexOf(tags.parameterEnd, at + 1)
  ) {
    const next = skipSpace(text, at + tags.parameterEnd.length)
    if (text.startsWith(tags.parameter, next) || text.startsWith(tags.callEnd, next)) return at
  }
  return -1
}

function readTagName(text: string, at: number, open: string): { value: string; end: number } | null {
  if (!text.startsWith(open, at)) return null
  const head = /^["']?([^"'<>\s]{1,200})["']?[^<>\n]{0,100}>/.exec(
    text.slice(at + open.length, at + open.length + 320),
  )
  return head?.[1] === undefined ? null : { value: head[1], end: at + open.length + head[0].length }
}

/** Tags carry text: what a parameter of another type means is said by the tool's own schema. */
function typedValue(raw: string, tool: ToolSpec, parameter: string): unknown {
  const text = raw.replace(/^\r?\n/, '').replace(/\r?\n$/, '')
  const { properties } = tool.parameters
  const property =
    isRecord(properties) && Object.hasOwn(properties, parameter) ? properties[parameter] : undefined
  if (!isRecord(property) || property.type === 'string') return text
  const plain = text.trim()
  if (/^(True|False)$/.test(plain) && property.type === 'boolean') return plain === 'True'
  try {
    const value: unknown = JSON.parse(plain)
    return findDoubledKey(plain) === null ? value : text
  } catch {
    return text
  }
}
