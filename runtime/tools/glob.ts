/** Matches path patterns in linear time: `*` and `?` within a name, `**` across names. */

/**
 * Whether `path` matches.
 * @param pattern without `/` it applies to the last name at any depth; otherwise to the whole path
 */
export function matchesGlob(path: string, pattern: string): boolean {
  if (!pattern.includes('/')) return fits(path.slice(path.lastIndexOf('/') + 1), pattern)
  const names = path.split('/')
  const parts = pattern.replace(/^\.?\//, '').split('/')
  return matches(names, parts, (part) => part === '**', fits)
}

function fits(name: string, pattern: string): boolean {
  const isEqual = (letter: string, wanted: string) => wanted === '?' || wanted === letter
  return matches([...name], [...pattern], (letter) => letter === '*', isEqual)
}

/** Matches items in order; a star takes any number. Backtracking to the last star suffices. */
function matches(
  items: readonly string[],
  pattern: readonly string[],
  isStar: (part: string) => boolean,
  isEqual: (item: string, part: string) => boolean,
): boolean {
  let at = 0
  let star = -1
  let taken = 0
  for (let item = 0; item < items.length; ) {
    const part = pattern[at]
    if (part !== undefined && isStar(part)) {
      star = at++
      taken = item
    } else if (part !== undefined && isEqual(items[item] ?? '', part)) {
      at++
      item++
    } else if (star >= 0) {
      at = star + 1
      item = ++taken
    } else return false
  }
  return pattern.slice(at).every(isStar)
}
