/**
 * Reads calls written as tags with one parameter each. A value ends at its closing tag. Refuses a value that may
 * contain another parameter because a tag is missing, and one whose type is ambiguous.
 */
import { type ReadCalls, type Reply, readArguments, skipSpace, type WrittenCall } from './call-readers.ts'
import { definitionOf, isRecord } from './json-schema.ts'
import type { ToolSpec } from './messages.ts'
import { parseModelJson } from './repair.ts'

/** How a form writes one call with tags. */
export interface Tags {
  /** Text before the name, such as `<function=`; the name ends at a quote or `>`. */
  readonly call: string
  readonly callEnd: string
  readonly parameter: string
  readonly parameterEnd: string
  /** Whether values are on their own lines, so that a line break at either end is not part of them. */
  readonly isPadded: boolean
}

/** Reads consecutive calls in tags from `from`. */
export function readTaggedCalls(reply: Reply, from: number, tags: Tags): ReadCalls {
  const { text } = reply
  const calls: WrittenCall[] = []
  let isWhole = true
  let end = from
  for (let at = from; text.startsWith(tags.call, at) && !reply.isHopeless; at = skipSpace(text, end)) {
    const read = readTaggedCall(reply, at, tags)
    calls.push(...read.calls)
    isWhole &&= read.isWhole
    end = read.end
  }
  return { end, calls, isWhole }
}

function readTaggedCall(reply: Reply, from: number, tags: Tags): ReadCalls {
  const { text } = reply
  const head = readTag(text, from, tags.call)
  const tool = head === null ? undefined : reply.findTool(head.name)
  if (head === null || tool === undefined) {
    const close = reply.indexOf(tags.callEnd, from)
    const end = close < 0 ? text.length : close + tags.callEnd.length
    return { end, calls: [], isWhole: false }
  }
  const read = readParameters(reply, head.end, tags, tool)
  if (read !== null) {
    return { end: read.end, calls: [{ name: tool.name, argumentsText: read.json }], isWhole: true }
  }
  // The search for refused parameters may have scanned the whole text.
  if (text.startsWith(tags.parameter, skipSpace(text, head.end))) reply.found(-1)
  // Some models write JSON in these tags; anything else is left for validation to refuse.
  const raw = readArguments(reply, head.end, { open: tags.call, close: tags.callEnd })
  const isClosed = text.startsWith(tags.callEnd, skipSpace(text, raw.end))
  return {
    end: isClosed ? skipSpace(text, raw.end) + tags.callEnd.length : raw.end,
    calls: [{ name: tool.name, argumentsText: raw.json }],
    isWhole: raw.isWhole && isClosed,
  }
}

/** The parameters up to the end of the call, as JSON; null when they are ambiguous or one is duplicated. */
function readParameters(
  reply: Reply,
  from: number,
  tags: Tags,
  tool: ToolSpec,
): { json: string; end: number } | null {
  const { text } = reply
  const values = new Map<string, unknown>()
  const inside = new Set<string>()
  for (let at = skipSpace(text, from); ; at = skipSpace(text, at)) {
    if (text.startsWith(tags.callEnd, at)) {
      // A tag within a value may be an intended parameter, unless that parameter is given elsewhere.
      const isUncertain = [...inside].some((name) => isParameter(tool, name) && !values.has(name))
      const end = at + tags.callEnd.length
      return isUncertain ? null : { json: JSON.stringify(Object.fromEntries(values)), end }
    }
    const head = readTag(text, at, tags.parameter)
    if (head === null || values.has(head.name) || head.name === '__proto__') return null
    const end = reply.found(endOfValue(text, head.end, tags))
    if (end < 0) return null
    const raw = text.slice(head.end, end)
    const names = namesWithin(raw, tags)
    if (names === null) return null
    for (const name of names) inside.add(name)
    const typed = readTypedText(withoutPadding(raw, tags), tool, head.name, typeSaid(head.attributes))
    if (typed === null) return null
    values.set(head.name, typed.value)
    at = end + tags.parameterEnd.length
  }
}

function isParameter(tool: ToolSpec, name: string): boolean {
  const { properties } = tool.parameters
  return typeof properties === 'object' && properties !== null && Object.hasOwn(properties, name)
}

/** Ends a value at its closing tag only if another parameter or the call's end follows: a value may contain tags. */
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

/** The parameters whose tags are within a value; null when opening and closing tags do not match. */
function namesWithin(value: string, tags: Tags): string[] | null {
  const names: string[] = []
  let depth = 0
  let open = value.indexOf(tags.parameter)
  let close = value.indexOf(tags.parameterEnd)
  while (open >= 0 || close >= 0) {
    if (close < 0 || (open >= 0 && open < close)) {
      const head = readTag(value, open, tags.parameter)
      if (head !== null) {
        names.push(head.name)
        depth++
      }
      open = value.indexOf(tags.parameter, open + 1)
    } else {
      if (--depth < 0) return null
      close = value.indexOf(tags.parameterEnd, close + 1)
    }
  }
  return depth > 0 ? null : names
}

function withoutPadding(raw: string, { isPadded }: Tags): string {
  return isPadded ? raw.replace(/^\r?\n/, '').replace(/\r?\n$/, '') : raw
}

/** The type stated by an attribute, text or JSON; null without one. */
function typeSaid(attributes: string): 'text' | 'json' | null {
  const said = /\bstring\s*=\s*["']?(true|false)\b/.exec(attributes)?.[1]
  return said === undefined ? null : said === 'true' ? 'text' : 'json'
}

function readTag(
  text: string,
  at: number,
  open: string,
): { name: string; attributes: string; end: number } | null {
  if (!text.startsWith(open, at)) return null
  const head = /^["']?([^"'<>\s]{1,200})["']?([^<>\n]{0,100})>/.exec(
    text.slice(at + open.length, at + open.length + 320),
  )
  return head?.[1] === undefined
    ? null
    : { name: head[1], attributes: head[2] ?? '', end: at + open.length + head[0].length }
}

/**
 * The text in a tag as a value that the tool's schema allows: JSON, Python syntax or text; null when it is ambiguous.
 * @param said the type stated by the call; null: none
 */
function readTypedText(
  text: string,
  tool: ToolSpec,
  parameter: string,
  said: 'text' | 'json' | null,
): { readonly value: unknown } | null {
  if (said === 'text') return { value: text }
  const schema = schemaOf(tool, parameter)
  if (said === null && (schema === undefined || (isRecord(schema) && schema.type === 'string')))
    return { value: text }
  const parsed = readJson(text.trim())
  if (said === 'json' || parsed === null) return parsed ?? (said === null ? { value: text } : null)
  const root = tool.parameters
  const isValue = admits(schema, parsed.value, root)
  if (!admits(schema, text, root)) return isValue ? parsed : { value: text }
  return isValue && typeof parsed.value !== 'string' ? null : { value: text }
}

const pythonWords: ReadonlyMap<string, unknown> = new Map([
  ['True', true],
  ['False', false],
  ['None', null],
])

/** JSON, a Python object, list or constant; anything else is text. */
function readJson(text: string): { value: unknown } | null {
  if (pythonWords.has(text)) return { value: pythonWords.get(text) }
  if (!/^[[{]/.test(text) && !/^(?:-?\d[\d.eE+-]{0,400}|true|false|null|"[^\n]*")$/.test(text)) return null
  const parsed = parseModelJson(text, { lossless: true })
  return parsed.ok ? { value: parsed.value.value } : null
}

/** The schema of a parameter; undefined for an unknown name. */
function schemaOf({ parameters }: ToolSpec, name: string): unknown {
  const { properties, additionalProperties } = parameters
  if (isRecord(properties) && Object.hasOwn(properties, name)) return properties[name]
  return additionalProperties === true || isRecord(additionalProperties) ? additionalProperties : undefined
}

/** Maximum nested references and alternatives. */
const depthMax = 8

/** Whether the schema allows the value's type; validation checks its content. */
function admits(schema: unknown, value: unknown, root: ToolSpec['parameters'], depth = 0): boolean {
  if (!isRecord(schema) || depth > depthMax) return schema !== false
  const within = (one: unknown): boolean => admits(one, value, root, depth + 1)
  if (typeof schema.$ref === 'string') return within(definitionOf(schema.$ref, root))
  if (Object.hasOwn(schema, 'const')) return isSame(schema.const, value)
  if (Array.isArray(schema.enum)) return schema.enum.some((one) => isSame(one, value))
  for (const options of [schema.anyOf, schema.oneOf])
    if (Array.isArray(options) && !options.some(within)) return false
  if (Array.isArray(schema.allOf) && !schema.allOf.every(within)) return false
  const types = Array.isArray(schema.type) ? schema.type : schema.type === undefined ? [] : [schema.type]
  if (types.length > 0) return types.some((type) => isOfType(value, type))
  if (isRecord(schema.properties)) return isRecord(value)
  return schema.items === undefined || Array.isArray(value)
}

function isOfType(value: unknown, type: unknown): boolean {
  switch (type) {
    case 'string':
    case 'number':
    case 'boolean':
      return typeof value === type
    case 'integer':
      return Number.isInteger(value)
    case 'null':
      return value === null
    case 'array':
      return Array.isArray(value)
    case 'object':
      return isRecord(value)
    default:
      return true
  }
}

function isSame(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other)
}
