/**
 * The lists of an MCP server: tools, resources, prompts. Entries are parsed separately, so that an invalid one does
 * not hide others; pages, entries and texts are bounded.
 */
import * as z from 'zod'
import { isWithinDepth } from '#specs/protocol/json-depth.ts'
import { isRecord } from '../llm/json-schema.ts'
import type { Live } from './client.ts'
import { findHeaderProblem } from './header-parameters.ts'

/** A tool as described by its server. */
export interface McpToolInfo {
  readonly name: string
  readonly description: string
  readonly inputSchema: Readonly<Record<string, unknown>>
  /** Whether the server declares it read-only. */
  readonly readOnlyHint: boolean
}

/** A readable resource by address; a template's address contains `{…}`. */
export interface McpResourceInfo {
  readonly uri: string
  readonly name: string
  readonly description: string
  readonly mimeType: string
  readonly isTemplate: boolean
}

export interface McpPromptInfo {
  readonly name: string
  readonly description: string
  readonly arguments: readonly { readonly name: string; readonly required: boolean }[]
}

const schemaMaxChars = 64 * 1024
/** Gateways and providers reject requests with deeper nesting. */
const schemaMaxDepth = 32
const entriesMaxCount = 500
const pagesMaxCount = 50
const descriptionMaxChars = 4_000
const nameMaxChars = 4_096

/** Entries are read one by one. */
const AnyResult = z.looseObject({})

export async function readTools(live: Live, timeout: number): Promise<readonly McpToolInfo[]> {
  const tools = await readPages(live, 'tools/list', 'tools', toTool, timeout)
  // Such a tool is left out, by MCP 2026-07-28; before, the names of headers have no meaning.
  const isMeant = (tool: McpToolInfo) =>
    live.client.getProtocolEra() !== 'modern' || findHeaderProblem(tool.inputSchema) === null
  const byName = new Map(tools.filter(isMeant).map((tool) => [tool.name, tool]))
  return [...byName.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1))
}

/** Resources first, then templates; empty when the server supports neither. */
export async function readResources(live: Live, timeout: number): Promise<readonly McpResourceInfo[]> {
  const lists = await Promise.all([
    readPages(live, 'resources/list', 'resources', toResource, timeout),
    readPages(live, 'resources/templates/list', 'resourceTemplates', toResource, timeout).catch(() => []),
  ])
  return lists.flat()
}

export async function readPrompts(live: Live, timeout: number): Promise<readonly McpPromptInfo[]> {
  return await readPages(live, 'prompts/list', 'prompts', toPrompt, timeout)
}

async function readPages<T>(
  { client }: Live,
  method: string,
  key: string,
  read: (entry: Readonly<Record<string, unknown>>) => T | null,
  timeout: number,
): Promise<readonly T[]> {
  const found: T[] = []
  const cursors = new Set<string>()
  let cursor: string | undefined
  for (let page = 0; page < pagesMaxCount && found.length < entriesMaxCount; page++) {
    const params = cursor === undefined ? {} : { cursor }
    const result = await client.request({ method, params }, AnyResult, { timeout })
    const entries: unknown = result[key]
    for (const entry of Array.isArray(entries) ? entries : []) {
      const one = isRecord(entry) ? read(entry) : null
      if (one !== null && found.length < entriesMaxCount) found.push(one)
    }
    const { nextCursor } = result
    if (typeof nextCursor !== 'string' || nextCursor === '' || cursors.has(nextCursor)) break
    cursors.add(nextCursor)
    cursor = nextCursor
  }
  return found
}

function toTool({
  name,
  description,
  inputSchema,
  annotations,
}: Readonly<Record<string, unknown>>): McpToolInfo | null {
  if (!isName(name)) return null
  return {
    name,
    description: wordsOf(description),
    inputSchema:
      isRecord(inputSchema) && isUsable(inputSchema) ? inputSchema : { type: 'object', properties: {} },
    readOnlyHint: isRecord(annotations) && annotations.readOnlyHint === true,
  }
}

function toResource(entry: Readonly<Record<string, unknown>>): McpResourceInfo | null {
  const { uri, uriTemplate, name, description, mimeType } = entry
  const isTemplate = uri === undefined
  const address = isTemplate ? uriTemplate : uri
  if (!isName(address)) return null
  const told = { name: wordsOf(name), description: wordsOf(description), mimeType: wordsOf(mimeType) }
  return { uri: address, isTemplate, ...told }
}

function toPrompt({
  name,
  description,
  arguments: given,
}: Readonly<Record<string, unknown>>): McpPromptInfo | null {
  if (!isName(name)) return null
  const all: unknown[] = Array.isArray(given) ? given.slice(0, 64) : []
  const named = all.filter(isRecord).flatMap((one) => (isName(one.name) ? [{ ...one, name: one.name }] : []))
  return {
    name,
    description: wordsOf(description),
    arguments: named.map((one) => ({
      name: one.name,
      required: 'required' in one && one.required === true,
    })),
  }
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && value.length <= nameMaxChars && value.isWellFormed()
}

function wordsOf(value: unknown): string {
  return typeof value === 'string' ? value.toWellFormed().slice(0, descriptionMaxChars).toWellFormed() : ''
}

/** A schema too large or too deep for a request is replaced by any object. */
function isUsable(schema: object): boolean {
  return isWithinDepth(schema, schemaMaxDepth) && JSON.stringify(schema).length <= schemaMaxChars
}
