/**
 * Lists the paths that a patch of `apply_patch` may touch, for rules about paths. Prefers too many to too few: every
 * possible header counts, and a path with a possible diff prefix is listed with and without it. Applies nothing.
 */

/** Headers whose paths have no prefix. */
const plainHeads = [
  /^\*\*\* (?:Add|Update|Delete) File: *(.+)$/s,
  /^\*\*\* Move to: *(.+)$/s,
  /^(?:rename|copy) (?:from|to) (.+)$/s,
]
const diffHead = /^(?:---|\+\+\+)\s+([^\t]+)/

/** Null marks a path that the host cannot determine. */
export function patchPaths(patch: string): (string | null)[] {
  const paths = new Set<string | null>()
  // The tool also ignores a byte-order mark before the first line.
  const lines = patch.replace(/^\ufeff/, '').split(/\r?\n/)
  for (const [at, line] of lines.entries()) {
    for (const head of plainHeads) add(paths, head.exec(line)?.[1])
    if (line.startsWith('diff --git ')) addPair(paths, namesOfGitHead(line.slice('diff --git '.length)))
    if (line.startsWith('--- ') && lines[at + 1]?.startsWith('+++ '))
      addPair(paths, [diffHead.exec(line)?.[1] ?? '"', diffHead.exec(lines[at + 1] ?? '')?.[1] ?? '"'])
    else if (!lines[at - 1]?.startsWith('--- ') || !line.startsWith('+++ ')) {
      const name = diffHead.exec(line)?.[1]
      if (name !== undefined) addBoth(paths, name)
    }
  }
  return [...paths]
}

/** The old and the new name of one file. */
function addPair(paths: Set<string | null>, [old, changed]: readonly [string, string]): void {
  const isMarked = (name: string, mark: string) => name.startsWith(mark) || name.trim() === '/dev/null'
  // Then the tool strips both prefixes; the folders are not really named a and b.
  const isSure = isMarked(old, 'a/') && isMarked(changed, 'b/')
  for (const name of [old, changed]) {
    if (isSure) add(paths, name.replace(/^[ab]\//, ''))
    else addBoth(paths, name)
  }
}

function addBoth(paths: Set<string | null>, name: string): void {
  add(paths, name)
  add(paths, name.replace(/^[abciow]\//, ''))
}

function add(paths: Set<string | null>, text = ''): void {
  // The form decides which spaces belong to a name. Only the tool's reader decodes quoted names.
  for (const name of [text.trim(), text.trimEnd()])
    if (name !== '' && name !== '/dev/null') paths.add(name.startsWith('"') ? null : name)
}

/**
 * Both names if a single space separates them, or if they are equal after their prefixes; otherwise unknown. For mode
 * changes and empty files, git writes only this header.
 */
function namesOfGitHead(names: string): [string, string] {
  // A quoted name ends the name before it, whatever spaces that contains.
  if (names.includes('"')) return ['"', '"']
  const [old, changed, ...more] = names.split(' ')
  if (old !== undefined && changed !== undefined && more.length === 0) return [old, changed]
  const middle = (names.length - 1) / 2
  const [first, second] = [names.slice(0, middle), names.slice(middle + 1)]
  const isPair = Number.isInteger(middle) && names[middle] === ' ' && first.slice(1) === second.slice(1)
  return isPair ? [first, second] : ['"', '"']
}
