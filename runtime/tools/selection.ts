/** Which of the library's own tools an environment and a call offer. Their names are reserved. */

/** Names of the library's own tools; no application's tool may have one. */
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

/** Which of the library's own tools are offered: all, none, or those that are named with `true`. */
export type BuiltInSelection = boolean | Readonly<Partial<Record<BuiltInName, boolean>>>

/** What works in a folder, and so is not there without a working directory. */
const inFolder: ReadonlySet<string> = new Set<BuiltInName>([
  'grep',
  'list_files',
  'read_file',
  'shell_cmd',
  'write_file',
])

/**
 * The tools that both the environment and the call offer. Where one of them says nothing, the other decides; where neither
 * does it is all of them for a call with a working directory, and for another, which may just ask for text, `load_skill`.
 * @throws TypeError for a name that is no built-in tool's, and for one that the call names without the folder that it needs
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
    if (unknown !== undefined) throw new TypeError(`there is no built-in tool ${JSON.stringify(unknown)}`)
  }
  const isNamed = (name: BuiltInName) => typeof ofCall === 'object' && ofCall[name] === true
  const homeless = hasDirectory
    ? undefined
    : reservedToolNames.find((name) => inFolder.has(name) && isNamed(name))
  if (homeless !== undefined)
    throw new TypeError(
      `the built-in tool ${homeless} needs a folder to work in: give the call a workingDirectory`,
    )
  const isSilent = ofEnvironment === undefined && ofCall === undefined
  return reservedToolNames.filter((name) => {
    if (!hasDirectory && (inFolder.has(name) || (isSilent && name !== 'load_skill'))) return false
    return selections.every((selection = true) =>
      typeof selection === 'boolean' ? selection : selection[name] === true,
    )
  })
}
