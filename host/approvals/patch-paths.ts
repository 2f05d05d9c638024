/**
 * The paths that a patch of `apply_patch` may touch, for rules that speak of paths. Rather too many than too few: a line that could
 * be a head counts as one, and where it is not sure whether diff put something before a path, the path stands with and
 * without it. Applies nothing.
 */

/** Heads whose paths are as they stand. */
const plainHeads = [
  /^\*\*\* (?:Add|Update|Delete) File: *(.+)$/s,
  /^\*\*\* Move to: *(.+)$/s,
  /^(?:rename|copy) (?:from|to) (.+)$/s,
]
const diffHead = /^(?:---|\+\+\+)\s+([^\t]+)/

/** Null stands for a path that the host cannot tell. */
export function patchPaths(patch: string): (string | null)[] {
  const paths = new Set<string | null>()
  // A mark of the byte order before it is no part of its first line, neither here nor for the tool.
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
  // Then the tool takes both marks away, and the folders are not named a and b.
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
  // Which blanks before a name belong to it depends on the form.
  // Quoted names have escapes, which only the tool's own reader undoes.
  for (const name of [text.trim(), text.trimEnd()])
    if (name !== '' && name !== '/dev/null') paths.add(name.startsWith('"') ? null : name)
}

/**
 * Both names where a single space parts them, or they are the same behind their marks; otherwise nothing that the host could tell.
 * Where git writes no other heads, as of modes and empty files, this one alone has the names.
 */
function namesOfGitHead(names: string): [string, string] {
  // Where a quoted name begins, the one before it ends, whatever blanks are in it.
  if (names.includes('"')) return ['"', '"']
  const [old, changed, ...more] = names.split(' ')
  if (old !== undefined && changed !== undefined && more.length === 0) return [old, changed]
  const middle = (names.length - 1) / 2
  const [first, second] = [names.slice(0, middle), names.slice(middle + 1)]
  const isPair = Number.isInteger(middle) && names[middle] === ' ' && first.slice(1) === second.slice(1)
  return isPair ? [first, second] : ['"', '"']
}
