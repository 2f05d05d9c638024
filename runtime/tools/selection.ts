/** Which of the library's own tools an environment and a call offer. Their names are reserved. */

/** Names of the library's own tools; no application's tool may have one. */
import { CaissonError } from '#specs/errors.ts'
export const reservedToolNames = [
  'shell_cmd',
  'load_skill',
  'human_intervention_request',
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
 * Which of the library's own tools are offered: all, none, or a map. Where a map names any with `true`, those alone; else all
 * but those with `false`; an empty map is none. The tools of a run on the host are chosen in the same way.
 */
export type BuiltInSelection = boolean | Readonly<Partial<Record<BuiltInName, boolean>>>

/** What works in a folder, and so is not there without a working directory. */
const inFolder: ReadonlySet<string> = new Set<BuiltInName>([
  'grep',
  'list_files',
  'read_file',
  'shell_cmd',
  'write_file',
])

/** The folder of a call: its own, or where it names a tool that works in one, the process's current directory. */
export function directoryOf({ builtIns, workingDirectory }: ToolsOfCall): string | undefined {
  if (workingDirectory !== undefined && workingDirectory !== '') return workingDirectory
  if (typeof builtIns !== 'object') return undefined
  return Object.entries(builtIns).some(([name, wanted]) => wanted === true && inFolder.has(name))
    ? process.cwd()
    : undefined
}

export interface ToolsOfCall {
  readonly builtIns?: BuiltInSelection
  readonly workingDirectory?: string
}

/**
 * The tools that both the environment and the call offer. Where one of them says nothing, the other decides; where neither
 * says which are wanted it is all that is not excluded of them for a call with a working directory, and for another, which may just ask for text, `load_skill`.
 * @throws {CaissonError} `invalid_options` for a name that is no built-in tool's
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
  return reservedToolNames.filter((name) => {
    if (!hasDirectory && (inFolder.has(name) || (isSilent && name !== 'load_skill'))) return false
    return selections.every((selection = true) => selects(selection, name))
  })
}

/** Whether it says which tools are wanted, and not only which are not. */
function wantsAny(selection: BuiltInSelection | undefined): boolean {
  return typeof selection === 'object' ? Object.values(selection).includes(true) : selection === true
}

function selects(selection: BuiltInSelection, name: BuiltInName): boolean {
  if (typeof selection === 'boolean') return selection
  const given = Object.values(selection)
  return given.includes(true) ? selection[name] === true : given.includes(false) && selection[name] !== false
}
