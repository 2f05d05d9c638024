/**
 * The tools of one request: built-in, application's and MCP tools, sorted, under names that every provider accepts.
 * Built-in names are reserved: an application that uses one gets an error, a server's tool gets another name.
 */

import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type {
  EvidenceKind,
  LLMTool,
  LLMToolContext,
  LLMToolDefinition,
  ToolPermission,
} from '../contract/contract.ts'
import { inlineReferences } from '../llm/inline-references.ts'
import { isZod, toModelSchema } from '../llm/json-schema.ts'
import type { McpTool } from '../mcp/registry.ts'
import { makeSafeNames, withDigest } from '../providers/names.ts'
import { describeLoadSkill, loadSkillContext, loadSkillName } from '../skills/load-skill.ts'
import type { BuiltIn, ToolOutcome } from '../tools/built-in.ts'
import {
  type BuiltInSelection,
  directoryOf,
  isReserved,
  reservedToolNames,
  selectBuiltIns,
} from '../tools/selection.ts'
import type { LLMEnvironment } from './environment.ts'

export interface ResolvedTool {
  /** Name used by its owner. */
  readonly name: string
  readonly source: 'built-in' | 'application' | 'mcp'
  readonly readOnly: boolean
  /** Absent: destructive unless it only reads. */
  readonly destructive?: boolean
  /** What a successful call proves. */
  readonly evidence: EvidenceKind
  /** Definition for the model, under its safe name. */
  readonly definition: LLMToolDefinition
  /** Schema for its arguments; null when its server validates. */
  readonly parameters: LLMTool['parameters'] | null
  /** Null when the application executes the call. */
  readonly execute: ((input: unknown, context: LLMToolContext) => Promise<ToolOutcome>) | null
}

export type ApplicationTools = Readonly<Record<string, LLMTool>>

/** What a schema accepts, after its defaults and transformations. A JSON schema gives `unknown`. */
export type ToolInput<S extends LLMTool['parameters']> = S extends z.ZodType ? z.output<S> : unknown

/** An {@link LLMTool} whose functions have the type of its parameters. */
export interface TypedTool<S extends LLMTool['parameters']> extends Omit<LLMTool, 'parameters' | 'execute'> {
  readonly parameters: S
  execute?(input: ToolInput<S>, context: LLMToolContext): unknown
}

/** Types the input of `execute` from the schema in `parameters`. Returns the value unchanged. */
export function defineTool<const S extends LLMTool['parameters']>(tool: TypedTool<S>): TypedTool<S> {
  return tool
}

export interface ToolSelection {
  readonly tools?: ApplicationTools
  /** Deprecated name of the same option; do not set both. */
  readonly extraTools?: ApplicationTools
  /**
   * Selects built-in tools among those of the environment. Absent from both: those that only read the working
   * directory, and `load_skill`.
   */
  readonly builtIns?: BuiltInSelection
  readonly toolPermission: ToolPermission
  /**
   * Directory of the built-in tools that access files and run programs. Absent: they are not offered, except those
   * set to `true` in the call's `builtIns`, which use the process's current directory. Also passed to the
   * application's tools.
   */
  readonly workingDirectory?: string
}

export class ToolSet {
  /** Sorted by name. */
  readonly definitions: readonly LLMToolDefinition[]
  readonly #bySafeName = new Map<string, ResolvedTool>()
  readonly #safeNames: ReadonlyMap<string, string>
  /** Whether any name had to be changed. */
  readonly hasRenamed: boolean

  constructor(tools: readonly ResolvedTool[]) {
    const names = tools.map(({ name }) => name).toSorted()
    this.#safeNames = makeSafeNames(names)
    this.hasRenamed = names.some((name) => this.toSafe(name) !== name)
    for (const tool of tools) {
      const name = this.toSafe(tool.name)
      const definition = tool.definition.name === name ? tool.definition : { ...tool.definition, name }
      this.#bySafeName.set(name, { ...tool, definition })
    }
    const sorted = [...this.#bySafeName.values()].map(({ definition }) => definition)
    this.definitions = sorted.sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  /** The provider's name of a tool; an unknown name is unchanged. */
  toSafe(name: string): string {
    return this.#safeNames.get(name) ?? name
  }

  /** The owner's name for a name from the model. */
  toReal(safeName: string): string {
    return this.#bySafeName.get(safeName)?.name ?? safeName
  }

  /** Finds a tool by its owner's name or by the model's name. */
  find(name: string): ResolvedTool | undefined {
    return this.#bySafeName.get(this.#safeNames.get(name) ?? name)
  }
}

/**
 * Collects the tools that a request offers.
 * @throws {CaissonError} `invalid_options` for names that are reserved, unknown or given twice
 */
export async function resolveTools(environment: LLMEnvironment, selection: ToolSelection): Promise<ToolSet> {
  const application = readApplicationTools(selection)
  const [own, server] = await Promise.all([
    resolveBuiltIns(environment, selection),
    environment.mcpRegistry.listTools(),
  ])
  const taken = new Set<string>([...reservedToolNames, ...application.map(({ name }) => name)])
  const all = [...own, ...application, ...server.map((tool) => mcpTool(environment, tool, taken))]
  const offered = selection.toolPermission === 'read' ? all.filter(({ readOnly }) => readOnly) : all
  return new ToolSet(offered)
}

/** The built-in tools selected by both environment and call. */
async function resolveBuiltIns(
  environment: LLMEnvironment,
  selection: ToolSelection,
): Promise<ResolvedTool[]> {
  const hasDirectory = directoryOf(selection) !== undefined
  const selected = selectBuiltIns(environment.builtIns, selection.builtIns, hasDirectory)
  if (selected.length === 0) return []
  const [{ builtInTools }, skills] = await Promise.all([
    import('../tools/built-ins.ts'),
    selected.includes(loadSkillName) ? environment.skillRegistry.listSkills() : [],
  ])
  const names: ReadonlySet<string> = new Set(selected)
  const tools = builtInTools(environment.webFetch).filter(({ name }) => names.has(name))
  const own = tools.map(builtInTool)
  return skills.length === 0 ? own : [...own, loadSkillTool(environment, describeLoadSkill(skills))]
}

function builtInTool(tool: BuiltIn): ResolvedTool {
  const { name, description, parameters, readOnly, destructive, evidence } = tool
  return {
    name,
    source: 'built-in',
    readOnly,
    evidence,
    ...(destructive === undefined ? {} : { destructive }),
    definition: { name, description, parameters: toParameters(parameters) },
    parameters,
    execute: (input, context) => tool.execute(input, context),
  }
}

function readApplicationTools({ tools = {}, extraTools = {} }: ToolSelection): ResolvedTool[] {
  const entries = [...Object.entries(extraTools), ...Object.entries(tools)]
  const names = new Set<string>()
  return entries.map(([name, tool]) => {
    if (name === '') throw new CaissonError('invalid_options', 'a tool needs a name')
    if (isReserved(name))
      throw new CaissonError(
        'invalid_options',
        `the tool name ${name} is reserved for a built-in tool; take another`,
      )
    if (names.has(name))
      throw new CaissonError('invalid_options', `the tool ${JSON.stringify(name)} is given twice`)
    names.add(name)
    return applicationTool(name, tool)
  })
}

function applicationTool(name: string, tool: LLMTool): ResolvedTool {
  const { description, parameters, readOnly = false, destructive, evidence } = tool
  return {
    name,
    source: 'application',
    readOnly,
    evidence: evidence ?? (readOnly ? 'read' : 'external_action'),
    ...(destructive === undefined ? {} : { destructive }),
    definition: { name, description, parameters: toParameters(parameters) },
    parameters,
    execute:
      tool.execute === undefined
        ? null
        : async (input, context) => ({ ok: true, content: await tool.execute?.(input, context) }),
  }
}

function mcpTool({ mcpRegistry }: LLMEnvironment, tool: McpTool, taken: Set<string>): ResolvedTool {
  const plain = `${tool.server}_${tool.name}`.replaceAll(/\W/g, '_')
  const name = taken.has(plain) ? withDigest(plain, JSON.stringify([tool.server, tool.name])) : plain
  taken.add(name)
  const { $schema: _schema, ...schema } = tool.inputSchema
  return {
    name,
    source: 'mcp',
    readOnly: tool.readOnly,
    evidence: tool.readOnly ? 'read' : 'external_action',
    definition: {
      name,
      description: tool.description === '' ? `${tool.name} of the server ${tool.server}` : tool.description,
      parameters: { ...inlineReferences(schema), type: 'object' },
    },
    parameters: null,
    execute: (input, { signal }) => mcpRegistry.callTool(tool.server, tool.name, input, signal),
  }
}

function loadSkillTool({ skillRegistry }: LLMEnvironment, definition: LLMToolDefinition): ResolvedTool {
  return {
    name: loadSkillName,
    source: 'built-in',
    readOnly: true,
    // Instructions bring no task further.
    evidence: 'none',
    definition,
    parameters: skillArguments,
    execute: (input) => loadSkillContext(skillRegistry, skillArguments.parse(input).skill_id),
  }
}

const skillArguments = z.strictObject({ skill_id: z.string().min(1) })

/** Each schema is processed once, however many requests offer its tool. */
const knownParameters = new WeakMap<object, Readonly<Record<string, unknown>>>()

function toParameters(parameters: LLMTool['parameters']): Readonly<Record<string, unknown>> {
  if (!isZod(parameters)) return inlineReferences(parameters)
  const known = knownParameters.get(parameters) ?? toModelSchema(parameters)
  knownParameters.set(parameters, known)
  return known
}
