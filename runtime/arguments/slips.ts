/**
 * Harmless slips in a call's arguments: another word for a parameter, a number or truth value as text, one value for a
 * list, null for what may be left out. Each is put right only where it has one meaning, and recorded. Never used for
 * tools that may destroy something.
 */
import { isRecord } from '../llm/json-schema.ts'
import { parseModelJson } from '../llm/repair.ts'
import { typeName } from './failure.ts'

/** Other words that models use, per parameter; compared without case, `_` and `-`. */
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

/** Whether only exact names and types are taken: so it is unless a tool reads only, or says that it destroys nothing. */
export function isDestructive({ readOnly, destructive }: ToolEffect): boolean {
  return destructive ?? !readOnly
}

export interface ToolEffect {
  readonly readOnly: boolean
  /** Whether a call can delete, overwrite or run something. */
  readonly destructive?: boolean
}

/** The parameter of `properties` that `name` is another word for; undefined where there is none, or more than one. */
export function findMeant(name: string, properties: Readonly<Record<string, unknown>>): string | undefined {
  const meant = Object.keys(properties).filter((known) => isSpelling(name, known))
  return meant.length === 1 ? meant[0] : undefined
}

/** `value` with what is certain put right by the schema's own properties; the rest stays for validation to refuse. */
export function mendSlips(
  value: Readonly<Record<string, unknown>>,
  schema: Readonly<Record<string, unknown>>,
  corrections: string[],
): Record<string, unknown> {
  const properties = propertiesOf(schema)
  const required = Array.isArray(schema.required) ? schema.required : []
  const mended: Record<string, unknown> = {}
  for (const [name, child] of Object.entries(value)) {
    if (!Object.hasOwn(properties, name)) continue
    if (child === null && !required.includes(name)) corrections.push(`${name}: null was left out`)
    else mended[name] = child
  }
  for (const [name, child] of Object.entries(value)) {
    if (Object.hasOwn(properties, name)) continue
    const meant = findMeant(name, properties)
    // Two values for one parameter are nobody's certain meaning.
    if (meant === undefined || Object.hasOwn(value, meant) || Object.hasOwn(mended, meant)) {
      mended[name] = child
    } else {
      mended[meant] = child
      corrections.push(`${name.slice(0, 100)}: taken as ${meant}`)
    }
  }
  for (const [name, child] of Object.entries(mended)) {
    const property = Object.hasOwn(properties, name) ? properties[name] : undefined
    const coerced = isRecord(property) ? coerce(child, property.type) : child
    if (coerced !== child) {
      mended[name] = coerced
      corrections.push(`${name}: ${typeName(child)} taken as ${typeName(coerced)}`)
    }
  }
  return mended
}

/** The properties of an object's JSON schema. */
export function propertiesOf(schema: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return isRecord(schema.properties) ? schema.properties : {}
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

function coerce(value: unknown, type: unknown): unknown {
  if (typeof value === 'string') return fromText(value, type)
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
  const parsed = parseModelJson(text, { dropProse: false })
  return parsed.ok ? parsed.value.value : undefined
}
