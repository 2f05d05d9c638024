/** The tools of an agent by name: which exist, and which a run or a step may use. `call.ts` calls them. */
import type { Logger } from 'pino'
import { inlineReferences } from '#runtime/llm/inline-references.ts'
import { toModelSchema } from '#runtime/llm/json-schema.ts'
import type { ToolSpec } from '#runtime/llm/messages.ts'
import type { Result } from '#specs/protocol/error.ts'
import { ToolName } from '#specs/protocol/extension.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import { plainName } from '#specs/protocol/tool-names.ts'
import { aliasedTool } from './aliases.ts'
import { unknownText } from './call-texts.ts'
import { type Tool, toolFailure } from './tool.ts'

/** How the calls of a registry run. */
export interface InvokeOptions {
  readonly logger: Logger
  /** Maximum characters of one output when the call's context sets none, without notes. Default 64 Ki characters. */
  readonly outputMaxChars?: number
  /** How long a cancelled tool may take to end before its call is abandoned. Default 1 s. */
  readonly cancelGraceMs?: number
  /** Milliseconds, for durations. */
  readonly now?: () => number
  /** Tools that exist but not for this run; default none. */
  readonly refused?: ReadonlyMap<string, Tool>
}

export interface Registry {
  /** Sorted. */
  readonly names: readonly string[]
  /** Definitions for the model, sorted by name; identical bytes each time. */
  readonly specs: readonly ToolSpec[]
  /** Whether the call names a tool whose calls may run in parallel. */
  isConcurrent(name: string): boolean
  /** Resolves names and patterns to tool names; an entry that matches no tool is an error. */
  choose(wanted: readonly string[]): Result<readonly string[]>
  /** The registry limited to `names`; an unknown name is an error. */
  select(names: readonly string[]): Result<Registry>
  /** The registry with these tools added; they replace those of the same name. */
  with(tools: readonly Tool[]): Registry
  /**
   * For a run that only plans: read-only tools, and those that may run when the workspace is read-only, if it is.
   * Calls of the others are answered as `denied`.
   */
  forPlanning(isWorkspaceReadOnly: boolean): Registry
  readonly byName: ReadonlyMap<string, Tool>
  readonly options: InvokeOptions
}

/**
 * Creates a registry of `tools`. Throws for a duplicate name, a name not of the form `verb_noun`, or a remote tool's
 * name that some providers reject: these are programming errors.
 */
export function createRegistry(tools: readonly Tool[], options: InvokeOptions): Registry {
  const byName = new Map<string, Tool>()
  for (const tool of tools.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!/^[a-z][a-z0-9_]{0,63}$/.test(tool.name) && (isOwn(tool) || !ToolName.safeParse(tool.name).success))
      throw new TypeError(`tool name ${JSON.stringify(tool.name)} is not of the form verb_noun`)
    if (byName.has(tool.name)) throw new TypeError(`two tools are named ${tool.name}`)
    byName.set(tool.name, tool)
  }
  let specs: readonly ToolSpec[] | undefined
  return {
    names: [...byName.keys()],
    // Created on first use: a daemon waiting for its task does not need them.
    get specs() {
      specs ??= [...byName.values()].map(({ name, description, inputSchema, parameters }) => ({
        name,
        description,
        parameters: parameters === undefined ? toModelSchema(inputSchema) : inlineReferences(parameters),
      }))
      return specs
    },
    isConcurrent: (name) => {
      const tool = findTool(byName, name)
      return tool !== undefined && (tool.readOnly || tool.concurrent === true)
    },
    choose: (wanted) => {
      const chosen = chooseNames([...byName.keys()], wanted)
      return chosen.ok ? chosen : toolFailure('unknown_tool', unknownText(chosen.error.join(', '), byName))
    },
    select: (names) => select(byName, names, options),
    with: (more) => {
      const others = [...byName.values()].filter(({ name }) => !more.some((tool) => tool.name === name))
      return createRegistry([...others, ...more], options)
    },
    forPlanning: (isWorkspaceReadOnly) => selectForPlanning(byName, isWorkspaceReadOnly, options),
    byName,
    options,
  }
}

/** Finds the exact name; else ignores case, `-` and the prefix `functions.` of some models, when one tool matches. */
export function findTool(byName: ReadonlyMap<string, Tool>, name: string): Tool | undefined {
  const exact = byName.get(name)
  if (exact !== undefined) return exact
  const plain = plainName(name.trim().replace(/^functions\./, ''))
  const [found, ...others] = [...byName.values()].filter((tool) => plainName(tool.name) === plain)
  return (others.length === 0 ? found : undefined) ?? byName.get(aliasedTool(name) ?? '')
}

function select(
  byName: ReadonlyMap<string, Tool>,
  names: readonly string[],
  options: InvokeOptions,
): Result<Registry> {
  const wanted = new Set(names)
  const unknown = [...wanted].filter((name) => !byName.has(name))
  if (unknown.length > 0) return toolFailure('unknown_tool', unknownText(unknown.join(', '), byName))
  return {
    ok: true,
    value: createRegistry(
      [...byName.values()].filter(({ name }) => wanted.has(name)),
      options,
    ),
  }
}

function selectForPlanning(
  byName: ReadonlyMap<string, Tool>,
  isWorkspaceReadOnly: boolean,
  options: InvokeOptions,
): Registry {
  const kept: Tool[] = []
  const refused = new Map(options.refused)
  for (const tool of byName.values()) {
    if (tool.readOnly || (isWorkspaceReadOnly && tool.mayPlan === true)) kept.push(tool)
    else refused.set(tool.name, tool)
  }
  return createRegistry(kept, { ...options, refused })
}

function isOwn({ runs = 'agent', isOwn: own = runs === 'agent' }: Tool): boolean {
  return own
}

/** Whether such a list has the name; entries that match nothing count for nothing. */
export function isAmong(name: string, wanted: readonly string[]): boolean {
  let isIn = wanted[0]?.startsWith('!') === true
  for (const entry of wanted) {
    const isNegative = entry.startsWith('!')
    if (matchesPattern(isNegative ? entry.slice(1) : entry, name)) isIn = !isNegative
  }
  return isIn
}

/** The matching names in the order of `all`; the error holds the entries that match nothing. */
export function chooseNames(
  all: readonly string[],
  wanted: readonly string[],
): Result<readonly string[], readonly string[]> {
  const isNegative = (entry: string | undefined): boolean => entry?.startsWith('!') ?? false
  const chosen = new Set<string>(isNegative(wanted[0]) ? all : [])
  const unknown: string[] = []
  for (const entry of wanted) {
    const pattern = isNegative(entry) ? entry.slice(1) : entry
    const matching = all.filter((name) => matchesPattern(pattern, name))
    // An exclusion pattern may match nothing; an unknown name is an error.
    if (matching.length === 0 && !(isNegative(entry) && pattern.includes('*'))) unknown.push(entry)
    for (const name of matching) {
      if (isNegative(entry)) chosen.delete(name)
      else chosen.add(name)
    }
  }
  return unknown.length > 0
    ? { ok: false, error: unknown }
    : { ok: true, value: all.filter((name) => chosen.has(name)) }
}
