/**
 * The paths that a patch of `apply_patch` may touch, for rules that speak of paths. Rather too many than too few: a line that could
 * be a head counts as one, and a path stands with and without what diff puts before it. Applies nothing.
 */

const heads = [
  /^\*\*\* (?:Add|Update|Delete) File: *(.+)$/s,
  /^\*\*\* Move to: *(.+)$/s,
  /^(?:---|\+\+\+)\s+(.+)$/s,
  /^(?:rename|copy) (?:from|to) (.+)$/s,
]

/** Null stands for a path that the host cannot tell. */
export function patchPaths(patch: string): (string | null)[] {
  const paths = new Set<string | null>()
  for (const line of patch.split(/\r?\n/)) {
    // Where git writes no other heads, as of modes and empty files, this one alone has the names; it does not part them surely.
    if (line.startsWith('diff --git ')) addAll(paths, namesOfGitHead(line.slice('diff --git '.length)))
    for (const head of heads) {
      const name = head.exec(line)?.[1]
      if (name !== undefined) addAll(paths, [name.split('\t', 1)[0] ?? ''])
    }
  }
  return [...paths]
}

function addAll(paths: Set<string | null>, names: readonly string[]): void {
  for (const name of names.map((each) => each.trim())) {
    if (name === '/dev/null' || name === '') continue
    // Quoted names have escapes, which only the tool's own reader undoes.
    if (name.startsWith('"')) paths.add(null)
    else for (const path of [name, name.replace(/^[abciow]\//, '')]) paths.add(path)
  }
}

/** Both names where they are the same behind their prefixes; nothing that the host could tell otherwise. */
function namesOfGitHead(names: string): string[] {
  const middle = (names.length - 1) / 2
  const [first, second] = [names.slice(0, middle), names.slice(middle + 1)]
  const isPair = Number.isInteger(middle) && names[middle] === ' ' && first.slice(1) === second.slice(1)
  return isPair ? [first, second] : ['"']
}
