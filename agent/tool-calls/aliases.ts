/**
 * Accepts calls by tool names of other systems, with the parameters of those names. Translates unambiguous calls;
 * refuses others with the name to use, since a guess could run something.
 */
import { isRecord } from '#runtime/llm/json-schema.ts'
import type { Result } from '#specs/protocol/error.ts'
import { plainName, toolAliases } from '#specs/protocol/tool-names.ts'

type Alias = keyof typeof toolAliases
type Arguments = Readonly<Record<string, unknown>>

/** Our tool's name; undefined for an unknown alias. */
export function aliasedTool(name: string): string | undefined {
  const alias = aliasOf(name)
  return alias === undefined ? undefined : toolAliases[alias]
}

/** Translates the arguments of an alias; returns others unchanged. The error says what to call instead. */
export function translateArguments(name: string, argumentsText: string): Result<string, string> {
  const alias = aliasOf(name)
  if (alias === undefined) return { ok: true, value: argumentsText }
  const given = parse(argumentsText)
  const translated = given === null ? null : translators[alias](given)
  if (translated !== null) return { ok: true, value: JSON.stringify(translated) }
  return {
    ok: false,
    error: `the tool is called ${toolAliases[alias]} here and has parameters of its own, and nothing was done: call it by that name`,
  }
}

/** Translations by alias, from known parameters; null when they are ambiguous. */
const translators: Readonly<Record<Alias, (given: Arguments) => Arguments | null>> = {
  grep: (given) =>
    rename(given, {
      query: 'pattern',
      pattern: 'pattern',
      isRegexp: 'regex',
      regex: 'regex',
      directoryPath: 'path',
      path: 'path',
      includePattern: 'glob',
      glob: 'glob',
      maxResults: 'limit',
      contextLines: 'context',
      ignoreCase: 'ignoreCase',
    }),
  human_intervention_request: ({ question, options, defaultOption, timeoutMs: _, ...others }) => {
    if (Object.keys(others).length > 0 || typeof question !== 'string') return null
    const answer = defaultOption === undefined ? {} : { defaultAnswer: defaultOption }
    if (options === undefined) return { question, kind: 'text', ...answer }
    return { question, kind: 'choice', options, ...answer }
  },
  shell_cmd: (given) => {
    const { command, parameters, args = parameters ?? [], timeout, timeoutMs = timeout, ...others } = given
    const { output_format: _, directory = '.', ...unknown } = others
    if (
      Object.keys(unknown).length > 0 ||
      directory !== '.' ||
      (parameters !== undefined && args !== parameters)
    )
      return null
    if (typeof command !== 'string' || !Array.isArray(args) || !args.every((one) => typeof one === 'string'))
      return null
    // Only a program's name: more text could be a shell command or a name with spaces.
    if (!/^[A-Za-z0-9_./+-]+$/.test(command)) return null
    return {
      command: [command, ...args.map(quote)].join(' '),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    }
  },
}

function aliasOf(name: string): Alias | undefined {
  const plain = plainName(name.trim().replace(/^functions\./, ''))
  return Object.hasOwn(toolAliases, plain) ? (plain as Alias) : undefined
}

/** Null for an unknown parameter, and for two that mean the same. */
function rename(given: Arguments, names: Readonly<Record<string, string>>): Arguments | null {
  const renamed: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(given)) {
    const own = Object.hasOwn(names, name) ? names[name] : undefined
    if (own === undefined || Object.hasOwn(renamed, own)) return null
    renamed[own] = value
  }
  return renamed
}

/** Quotes a text as one shell word. */
function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`
}

function parse(text: string): Arguments | null {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : null
  } catch {
    return null
  }
}
