/** Describes a tool as a function for the author of a program: its parameters and what it returns, from its schemas. */
import * as z from 'zod'
import { isRecord } from '#runtime/llm/json-schema.ts'
import { truncate } from '../text/truncate.ts'
import type { Registry } from './registry.ts'
import type { ProgramFunction, Tool } from './tool.ts'

const typeMaxDepth = 4
const signatureMaxChars = 2_000
const docMaxChars = 8_000

/** The tools of the registry that programs may call, as functions. */
export function describeFunctions({ specs, byName }: Registry): ProgramFunction[] {
  return specs.flatMap(({ name, description, parameters }) => {
    const tool = byName.get(name)
    if (tool === undefined || tool.inPrograms === false) return []
    const names = isRecord(parameters.properties) ? Object.keys(parameters.properties) : []
    const returns = describeType(outputSchemaOf(tool))
    const signature = truncate(`${name}(${describeFields(parameters, 0)}) -> ${returns}`, signatureMaxChars)
    return [{ name, parameters: names, doc: truncate(`${signature}\n\n${description}`, docMaxChars) }]
  })
}

function outputSchemaOf({ outputSchema }: Tool): unknown {
  try {
    return z.toJSONSchema(outputSchema, { io: 'output', unrepresentable: 'any', reused: 'inline' })
  } catch {
    return {}
  }
}

function describeFields(schema: unknown, depth: number): string {
  if (!isRecord(schema) || !isRecord(schema.properties)) return ''
  const required = new Set(Array.isArray(schema.required) ? schema.required : [])
  return Object.entries(schema.properties)
    .map(([name, child]) => `${name}${required.has(name) ? '' : '?'}: ${describeType(child, depth + 1)}`)
    .join(', ')
}

function describeType(schema: unknown, depth = 0): string {
  if (!isRecord(schema) || depth > typeMaxDepth) return 'any'
  const options = schema.anyOf ?? schema.oneOf
  if (Array.isArray(options))
    return [...new Set(options.map((option) => describeType(option, depth)))].join(' | ')
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => JSON.stringify(value)).join(' | ')
  if (schema.const !== undefined) return JSON.stringify(schema.const)
  if (schema.type === 'array') return `list of ${describeType(schema.items, depth + 1)}`
  if (schema.type !== 'object') return typeof schema.type === 'string' ? schema.type : 'any'
  const fields = describeFields(schema, depth)
  return fields === '' ? 'object' : `{ ${fields} }`
}
