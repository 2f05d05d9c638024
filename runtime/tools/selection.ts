/** Selects the built-in tools that an environment and a call offer. Their names are reserved. */

/** Names of built-in tools; an application's tool cannot use them. */
import { CaissonError } from '#specs/errors.ts'
export const reservedToolNames = [
  'shell_cmd',
  'load_skill',
  'human_intervention_request',
  'ask_user_input',
  'web_fetch',
  'read_file',
  'write_file',
  'list_files',
  'grep',
] as const
const reserved: ReadonlySet<string> = new Set(reservedToolNames)

export function isReserved(name: string): boolean {
  return reserved.has(name)
}

export type BuiltInName = (typeof reservedToolNames)[number]

/**
 * Built-in tools to offer: all, none, or a map. If a map sets any name to `true`, only those; else all except those
 * set to `false`; an empty map is none. Runs on the host use the same rules.
 */
export type BuiltInSelection = boolean | Readonly<Partial<Record<BuiltInName, boolean>>>

/** Tools that require a working directory. */
const inFolder: ReadonlySet<string> = new Set<BuiltInName>([
  'grep',
  'list_files',
  'read_file',
  'shell_cmd',
  'write_file',
])

/** A call's directory: its own, or the process's current directory when the call names a tool that requires one. */
export function directoryOf({ builtIns, workingDirectory }: ToolsOfCall): string | undefined {
  if (workingDirectory !== undefined && workingDirectory !== '') return workingDirectory
  if (typeof builtIns !== 'object') return undefined
  return Object.entries(builtIns).some(([name, wanted]) => wanted === true && inFolder.has(name))
    ? process.cwd()
    : undefined
}

interface ToolsOfCall {
  readonly builtIns?: BuiltInSelection
  readonly workingDirectory?: string
}

/** What a call gets that neither it nor its environment says anything about. */
const readingByDefault: ReadonlySet<string> = new Set<BuiltInName>([
  'grep',
  'list_files',
  'load_skill',
  'read_file',
])

/**
 * The tools that both the environment and the call offer. If one gives no selection, the other decides. If neither
 * does: those that only read the working directory, and `load_skill`.
 * @throws {CaissonError} `invalid_options` for an unknown name
 */
export function selectBuiltIns(
  ofEnvironment: BuiltInSelection | undefined,
  ofCall: BuiltInSelection | undefined,
  hasDirectory: boolean,
): BuiltInName[] {
  const selections = [ofEnvironment, ofCall]
  for (const selection of selections) {
    const names = typeof selection === 'object' ? Object.keys(selection) : []
    const unknown = names.find((name) => !isReserved(name))
    if (unknown !== undefined)
      throw new CaissonError('invalid_options', `there is no built-in tool ${JSON.stringify(unknown)}`)
  }
  const isSilent = selections.every((selection) => !wantsAny(selection))
  const isAbsent = ofEnvironment === undefined && ofCall === undefined
  return reservedToolNames.filter((name) => {
    if (isAbsent && !readingByDefault.has(name)) return false
    if (!hasDirectory && (inFolder.has(name) || (isSilent && name !== 'load_skill'))) return false
    return selections.every((selection = true) => selects(selection, name))
  })
}

/** Whether it selects tools rather than only excluding some. */
function wantsAny(selection: BuiltInSelection | undefined): boolean {
  return typeof selection === 'object' ? Object.values(selection).includes(true) : selection === true
}

function selects(selection: BuiltInSelection, name: BuiltInName): boolean {
  if (typeof selection === 'boolean') return selection
  const given = Object.values(selection)
  return given.includes(true) ? selection[name] === true : given.includes(false) && selection[name] !== false
}
