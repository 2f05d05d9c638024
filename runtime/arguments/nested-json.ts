/** Reads objects and lists that a model sent as JSON in a string. */

import { isRecord } from '../llm/json-schema.ts'
import { parseStrict } from '../llm/repair.ts'
import { correctionsMaxCount, typeName } from './failure.ts'
import { acceptedTypes, nestingMax, propertiesOf, schemaFor } from './schema-facts.ts'

type Schema = Readonly<Record<string, unknown>>

/**
 * The value with objects and lists in place of their JSON as text, wherever the schema accepts no text: then there is one
 * reading, so that this holds for every tool. Anything else is unchanged.
 */
export function decodeNestedJson(value: unknown, schema: Schema, corrections: string[]): unknown {
  const visit = (child: unknown, node: unknown, place: string, depth: number): unknown => {
    if (depth > nestingMax) return child
    const decoded = typeof child === 'string' ? decodeText(child, node, schema) : child
    if (decoded !== child && corrections.length < correctionsMaxCount)
      corrections.push(`${place}: JSON in a string taken as ${typeName(decoded)}`)
    const known = schemaFor(node, decoded, schema)
    const under = (name: string | number) => `${place === '' ? '' : `${place}.`}${String(name).slice(0, 100)}`
    if (Array.isArray(decoded) && isRecord(known?.items))
      return decoded.map((item, at) => visit(item, known.items, under(at), depth + 1))
    if (!isRecord(decoded) || known === null) return decoded
    const properties = propertiesOf(known)
    return Object.fromEntries(
      Object.entries(decoded).map(([name, item]) => {
        const property = Object.hasOwn(properties, name) ? properties[name] : known.additionalProperties
        return [name, visit(item, property, under(name), depth + 1)]
      }),
    )
  }
  return visit(value, schema, '', 0)
}

function decodeText(text: string, node: unknown, root: Schema): unknown {
  const types = acceptedTypes(node, root)
  if (types === null || types.has('string') || !/^\s*[[{]/.test(text)) return text
  const decoded = parseStrict(text)
  return decoded.ok && types.has(typeName(decoded.value)) ? decoded.value : text
}
