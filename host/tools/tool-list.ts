/** Which tools a run may use, as a program says it, made into the list that the agent takes. */

/**
 * `true`: all; `false`: none; a list of names and patterns (`*` for any run of characters, `!` in front to take away; all but
 * those when the first takes away); or a map: what is false is taken away from all, and with `'*': false` only what is true is left.
 */
export type ToolChoice = boolean | readonly string[] | Readonly<Record<string, boolean>>

/** The list; undefined when there is nothing to narrow. */
export function toolListOf(choice: ToolChoice | undefined): readonly string[] | undefined {
  if (choice === undefined || choice === true) return undefined
  if (choice === false) return []
  if (isList(choice)) return choice
  const names = (wanted: boolean): string[] =>
    Object.keys(choice).filter((name) => name !== '*' && choice[name] === wanted)
  if (choice['*'] === false) return names(true)
  const without = names(false).map((name) => `!${name}`)
  return without.length === 0 ? undefined : without
}

function isList(choice: ToolChoice): choice is readonly string[] {
  return Array.isArray(choice)
}
