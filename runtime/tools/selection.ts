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

/**
 * The tools that all of the selections offer; one that is absent offers all.
 * @throws TypeError for a name that is no built-in tool's
 */
export function selectBuiltIns(...selections: (BuiltInSelection | undefined)[]): BuiltInName[] {
  for (const selection of selections) {
    const names = typeof selection === 'object' ? Object.keys(selection) : []
    const unknown = names.find((name) => !isReserved(name))
    if (unknown !== undefined) throw new TypeError(`there is no built-in tool ${JSON.stringify(unknown)}`)
  }
  return reservedToolNames.filter((name) =>
    selections.every((selection = true) =>
      typeof selection === 'boolean' ? selection : selection[name] === true,
    ),
  )
}
