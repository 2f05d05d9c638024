/** Patterns of paths, matched in time that grows with their length alone: `*` and `?` within a name, `**` across names. */

/**
 * Whether `path` fits.
 * @param pattern without `/` it is about the last name, wherever that is; with one, about the whole path
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

/** Every item has its place in the pattern, in order; a star takes any number. One step back, to the last star, is enough. */
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
