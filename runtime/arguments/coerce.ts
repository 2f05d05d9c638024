/**
 * Coerces harmless mistakes in a call's arguments: an alias of a parameter, a number or boolean as text, a single
 * value for a list, null for an optional value. Each is corrected only when it has one meaning, and recorded. Never
 * used for tools that may destroy something.
 */
import { isRecord } from '../llm/json-schema.ts'
import { parseModelJson } from '../llm/repair.ts'
import { correctionsMaxCount, typeName } from './failure.ts'
import { allowsNull, isRequired, nestingMax, propertiesOf, schemaFor } from './schema-facts.ts'

/** Aliases that models use, per parameter; compared without case, `_` and `-`. */
const aliases: Readonly<Record<string, readonly string[]>> = {
  path: [
    'filepath',
    'file',
    'filename',
    'pathname',
    'directory',
    'directorypath',
    'dir',
    'folder',
    'targetfile',
  ],
  filePath: ['path', 'file', 'filename', 'pathname', 'targetfile'],
  directoryPath: ['path', 'directory', 'dir', 'folder'],
  content: ['contents', 'text', 'data', 'body', 'filecontent'],
  command: ['cmd', 'bash', 'shell', 'shellcommand'],
  parameters: ['args', 'arguments', 'argv', 'params'],
  directory: ['cwd', 'workingdirectory', 'dir', 'folder', 'path'],
  timeout: ['timeoutms', 'timeoutmilliseconds'],
  code: ['python', 'pythoncode', 'script', 'source'],
  pattern: ['query', 'regex', 'search', 'searchpattern'],
  query: ['q', 'pattern', 'regex', 'search', 'searchquery', 'searchterm', 'question'],
  expression: ['expr', 'formula', 'calculation', 'equation', 'input'],
  patch: ['diff', 'patchtext', 'input'],
  url: ['uri', 'link', 'href', 'address', 'target'],
  reason: ['why', 'purpose', 'justification'],
  question: ['prompt'],
  options: ['choices', 'answers'],
  defaultAnswer: ['default', 'defaultvalue', 'defaultoption'],
  oldText: ['oldstring', 'oldstr', 'search', 'find'],
  newText: ['newstring', 'newstr', 'replace', 'replacement'],
  from: ['source', 'src', 'oldpath', 'sourcepath'],
  to: ['destination', 'dest', 'target', 'newpath', 'destinationpath'],
  offset: ['startline', 'line', 'start'],
  limit: ['maxlines', 'count', 'lines', 'maxresults'],
  includePattern: ['include', 'glob'],
  isRegexp: ['regex', 'isregex', 'regexp'],
  contextLines: ['context'],
  maxResults: ['limit', 'maxmatches'],
  maxEntries: ['limit'],
  maxDepth: ['depth'],
  maxChars: ['maxlength', 'limit'],
  timeoutMs: ['timeout', 'timeoutmilliseconds'],
}

/**
 * Whether only exact names and types are accepted: true unless a tool only reads or declares that it destroys
 * nothing.
 */
export function isDestructive({ readOnly, destructive }: ToolEffect): boolean {
  return destructive ?? !readOnly
}

export interface ToolEffect {
  readonly readOnly: boolean
  /** Whether a call can delete, overwrite or run something. */
  readonly destructive?: boolean
}

/** The parameter of `properties` for which `name` is an alias; undefined when there is none, or more than one. */
export function findMeant(name: string, properties: Readonly<Record<string, unknown>>): string | undefined {
  const meant = Object.keys(properties).filter((known) => isSpelling(name, known))
  return meant.length === 1 ? meant[0] : undefined
}

/** Coerces unambiguous mistakes in `value` by the schema, at every level; validation rejects the rest. */
export function coerceArguments(
  value: Readonly<Record<string, unknown>>,
  schema: Readonly<Record<string, unknown>>,
  corrections: string[],
): Record<string, unknown> {
  return new ArgumentCoercion(schema, corrections).coerceObject(value, schema, '', 0)
}

class ArgumentCoercion {
  readonly #root: Readonly<Record<string, unknown>>
  readonly #corrections: string[]

  constructor(root: Readonly<Record<string, unknown>>, corrections: string[]) {
    this.#root = root
    this.#corrections = corrections
  }

  /** @param place path prefix of `value` in the arguments, such as `edits.0.`; empty for the arguments themselves */
  coerceObject(
    value: Readonly<Record<string, unknown>>,
    schema: Readonly<Record<string, unknown>>,
    place: string,
    depth: number,
  ): Record<string, unknown> {
    const properties = propertiesOf(schema)
    const kept = this.#withoutNulls(value, schema, place)
    const meanings = this.#findMeanings(value, schema, place)
    const named = kept.map(([name, child]) => [meanings.get(name) ?? name, child] as const)
    return Object.fromEntries(
      named.map(([name, child]) => {
        const property = Object.hasOwn(properties, name) ? properties[name] : undefined
        return [name, this.#coerceValue(child, property, `${place}${name.slice(0, 100)}`, depth + 1)]
      }),
    )
  }

  #withoutNulls(
    value: Readonly<Record<string, unknown>>,
    schema: Readonly<Record<string, unknown>>,
    place: string,
  ): (readonly [string, unknown])[] {
    const properties = propertiesOf(schema)
    return Object.entries(value).filter(([name, child]) => {
      if (child !== null || !Object.hasOwn(properties, name) || isRequired(name, schema)) return true
      if (allowsNull(properties[name], this.#root)) return true
      this.#note(`${place}${name}: null was left out`)
      return false
    })
  }

  /** The parameters that unknown names of `value` mean. */
  #findMeanings(
    value: Readonly<Record<string, unknown>>,
    schema: Readonly<Record<string, unknown>>,
    place: string,
  ): ReadonlyMap<string, string> {
    const properties = propertiesOf(schema)
    const meanings = new Map<string, string>()
    for (const name of Object.keys(value)) {
      if (Object.hasOwn(properties, name)) continue
      const meant = findMeant(name, properties)
      // In an open object an unknown name may be intended.
      const isOpen = schema.additionalProperties !== false
      if (meant !== undefined && (!isOpen || isRequired(meant, schema))) meanings.set(name, meant)
    }
    const meantNames = [...meanings.values()]
    for (const [name, meant] of meanings) {
      // Two values for one parameter are ambiguous.
      const isDoubled = Object.hasOwn(value, meant) || meantNames.filter((one) => one === meant).length > 1
      if (isDoubled) meanings.delete(name)
      else this.#note(`${place}${name.slice(0, 100)}: taken as ${meant}`)
    }
    return meanings
  }

  #coerceValue(value: unknown, node: unknown, place: string, depth: number): unknown {
    const schema = depth > nestingMax ? null : schemaFor(node, value, this.#root)
    if (schema === null) return value
    const coerced = coerce(value, schema, this.#root)
    if (coerced !== value) this.#note(`${place}: ${typeName(value)} taken as ${typeName(coerced)}`)
    if (Array.isArray(coerced)) {
      const { items } = schema
      return coerced.map((item, at) => this.#coerceValue(item, items, `${place}.${at}`, depth + 1))
    }
    return isRecord(coerced) && isRecord(schema.properties)
      ? this.coerceObject(coerced, schema, `${place}.`, depth)
      : coerced
  }

  #note(correction: string): void {
    // More than one call reports; a long list of objects may have the same mistake in each.
    if (this.#corrections.length < correctionsMaxCount) this.#corrections.push(correction)
  }
}

function isSpelling(name: string, known: string): boolean {
  const plain = plainName(name)
  return (
    plain === plainName(known) || (Object.hasOwn(aliases, known) && aliases[known]?.includes(plain) === true)
  )
}

function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, '')
}

function coerce(
  value: unknown,
  { type, items }: Readonly<Record<string, unknown>>,
  root: Readonly<Record<string, unknown>>,
): unknown {
  if (typeof value === 'string') return fromText(value, type)
  // A single object for a list of objects.
  if (isRecord(value) && type === 'array')
    return schemaFor(items, value, root)?.type === 'object' ? [value] : value
  if (type === 'string')
    return typeof value === 'number' || typeof value === 'boolean' ? String(value) : value
  if (type === 'array') return typeof value === 'number' || typeof value === 'boolean' ? [value] : value
  return value
}

function fromText(text: string, type: unknown): unknown {
  if (type === 'number' || type === 'integer') {
    return /^\s*-?\d{1,15}(\.\d{1,15})?\s*$/.test(text) ? Number(text) : text
  }
  if (type === 'boolean') return /^true$/i.test(text) ? true : /^false$/i.test(text) ? false : text
  if (type === 'array') {
    const list = text.trimStart().startsWith('[') ? jsonIn(text) : undefined
    return Array.isArray(list) ? list : [text]
  }
  if (type === 'object') {
    const object = jsonIn(text)
    return isRecord(object) ? object : text
  }
  return text
}

function jsonIn(text: string): unknown {
  const parsed = parseModelJson(text, { lossless: true })
  return parsed.ok ? parsed.value.value : undefined
}
