/**
 * The diagrams of the pages about workflows, in Mermaid: made of the schema of the format, the states of a step, and the
 * samples of the pages themselves. A page has each one between two comments.
 */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { drawMermaid } from '../host/workflows/draw.ts'
import { workflowJsonSchema } from '../host/workflows/json-schema.ts'
import { WorkspaceManager } from '../host/workflows/workspace-manager.ts'
import { StepEndState, StepState } from '../specs/protocol/plan.ts'

const root = path.join(import.meta.dirname, '..')

/** Pages that have diagrams. */
export const pagesWithDiagrams = [
  'docs/workspace.md',
  'docs/flow.md',
  'docs/sample-workspace-json.md',
] as const

const form = /<!-- diagram: ([^\n]+?) -->\n[\s\S]*?<!-- end of diagram -->/g

/** The page with its diagrams as the code makes them. @throws {Error} for a diagram that nothing makes */
export function withDiagrams(page: string): string {
  return page.replaceAll(
    form,
    (_, name: string) =>
      `<!-- diagram: ${name} -->\n\`\`\`mermaid\n${draw(name, page)}\`\`\`\n<!-- end of diagram -->`,
  )
}

/** Names of the diagrams on the page. */
export function diagramsOf(page: string): string[] {
  return [...page.matchAll(form)].map(([, name = '']) => name)
}

function draw(name: string, page: string): string {
  if (name === 'format') return drawFormat()
  if (name === 'step states') return drawStates()
  const sample = /^sample (\d+)$/.exec(name)?.[1]
  if (sample !== undefined) return drawMermaid(new WorkspaceManager().parse(sampleOf(page, Number(sample))))
  if (name.startsWith('examples/') && name.endsWith('.workflow.json'))
    return drawMermaid(new WorkspaceManager().parse(readFileSync(path.join(root, name), 'utf8')))
  throw new Error(`no diagram is named "${name}"`)
}

/** A JSON block of the page, counted from 1. */
function sampleOf(page: string, number: number): string {
  const blocks = [...page.matchAll(/^```json5?\n([\s\S]*?)^```/gm)]
  const text = blocks[number - 1]?.[1]
  if (text === undefined) throw new Error(`the page has no sample ${number}`)
  return text
}

/** The states are those of the type; which event leads to one follows from the events that name it. */
function drawStates(): string {
  const ends: readonly string[] = StepEndState.options
  const [first, second, ...others] = StepState.options.filter((state) => !ends.includes(state))
  if (first === undefined || second === undefined || others.length > 0)
    throw new Error('a step has two states before its end')
  return lines([
    'stateDiagram-v2',
    `  [*] --> ${first}`,
    `  ${first} --> ${second}: step-start`,
    '  state ended {',
    ...ends.map((state) => `    ${state}`),
    '  }',
    `  ${second} --> ended: step-end`,
    `  ${first} --> ended: step-end, for a step that never begins`,
    '  ended --> [*]',
  ])
}

interface Schema {
  readonly $ref?: string
  readonly type?: string
  readonly const?: unknown
  readonly anyOf?: readonly Schema[]
  readonly items?: Schema
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly default?: unknown
}

/** Parts of a file, how many it has of each, and their place in the schema. */
const parts = [
  ['List', '1', 'list'],
  ['Step', '1..*', 'step'],
  ['Function', '*', 'function'],
] as const

function drawFormat(): string {
  const { $defs } = workflowJsonSchema() as { readonly $defs: Readonly<Record<string, Schema>> }
  return lines([
    'classDiagram',
    '  class File',
    ...parts.map(([name, count]) => `  File *-- "${count}" ${name}`),
    ...parts.flatMap(([name, , key]) => drawClass(name, objectsIn($defs[key] ?? {}))),
  ])
}

/** @param forms alternatives, drawn as one class */
function drawClass(name: string, forms: readonly Schema[]): string[] {
  const fields = Object.entries(
    Object.assign({}, ...forms.map(({ properties }) => properties)) as Record<string, Schema>,
  )
  const isRequired = (field: string) => forms.every(({ required = [] }) => required.includes(field))
  const hasDefault = ({ default: value }: Schema) => value !== undefined
  const below = fields.map(([field, schema]) => [`${name}${capitalize(field)}`, objectsIn(schema)] as const)
  return [
    `  class ${name} {`,
    ...fields.map(
      ([field, schema], index) =>
        `    ${field}${isRequired(field) && !hasDefault(schema) ? '' : '?'}: ${typeOf(schema, below[index]?.[0] ?? '')}`,
    ),
    '  }',
    ...below.flatMap(([child, objects]) =>
      objects.length === 0 ? [] : [`  ${name} --> ${child}`, ...drawClass(child, objects)],
    ),
  ]
}

/** Objects with fields of their own that a value may be or list. */
function objectsIn({ anyOf = [], items, ...own }: Schema): Schema[] {
  const inner = [...anyOf, ...(items === undefined ? [] : [items])].flatMap(objectsIn)
  return own.properties === undefined ? inner : [own, ...inner]
}

function typeOf(schema: Schema, child: string): string {
  if (schema.anyOf !== undefined)
    return [...new Set(schema.anyOf.map((one) => typeOf(one, child)))].join(' or ')
  if (schema.const !== undefined) return JSON.stringify(schema.const).replaceAll('"', "'")
  if (schema.items !== undefined) return `list of ${typeOf(schema.items, child)}`
  if (schema.properties !== undefined) return child
  return schema.$ref === undefined ? (schema.type ?? 'any') : 'JSON'
}

function capitalize(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`
}

function lines(all: readonly string[]): string {
  return `${all.join('\n')}\n`
}
