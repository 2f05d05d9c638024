/**
 * Calls by the names that other systems have for tools of ours, with the parameters that go with those names. What has one
 * meaning is put into our parameters; anything else is refused with the name to use, for a guess could run something.
 */
import { isRecord } from '#runtime/llm/json-schema.ts'
import type { Result } from '#specs/protocol/error.ts'
import { plainName, toolAliases } from '#specs/protocol/tool-names.ts'

type Alias = keyof typeof toolAliases
type Arguments = Readonly<Record<string, unknown>>

/** The name of our tool; undefined for a name that stands for none. */
export function aliasedTool(name: string): string | undefined {
  const alias = aliasOf(name)
  return alias === undefined ? undefined : toolAliases[alias]
}

/** The arguments as our tool takes them; those of any other call as they came. The error says what to call instead. */
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

/** By each name, from parameters that it is known by; null where they do not say one thing. */
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
    // A program's name alone; more of it could be a line for a shell, or a name with spaces.
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

/** Null for a parameter that is not known, and for two that are the same one. */
function rename(given: Arguments, names: Readonly<Record<string, string>>): Arguments | null {
  const renamed: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(given)) {
    const own = Object.hasOwn(names, name) ? names[name] : undefined
    if (own === undefined || Object.hasOwn(renamed, own)) return null
    renamed[own] = value
  }
  return renamed
}

/** One word for a shell, whatever is in it. */
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
