/**
 * Which arguments of a call are paths, and the one spelling under which rules meet a path. Resolves nothing: links are
 * the guest's, so a path with `..` names a place that only the guest could tell.
 */

/** Where the workspace is in the guest; tools take paths below it, or relative to it. */
const guestWorkspace = ['mnt', 'workspace']

/** Arguments that every tool uses for paths of the workspace, and for nothing else. */
const pathArguments: ReadonlySet<string> = new Set(['path', 'from', 'to'])

/** Tools that act on a folder with all that is in it. */
const wholeFolderTools: ReadonlySet<string> = new Set(['delete_file', 'move_file'])

/** Whether the argument `name` of a call is a path. */
export function isPathArgument(name: string): boolean {
  return pathArguments.has(name)
}

/** Whether the tool, given a folder, acts on everything in it. */
export function takesWholeFolders(tool: string): boolean {
  return wholeFolderTools.has(tool)
}

/**
 * The path relative to the workspace, without `.`, doubled or trailing slashes; `.` for the workspace itself. Null when
 * it leads outside, or has `..` and so could.
 */
export function plainPath(path: string): string | null {
  const names = path.split('/').filter((name) => name !== '' && name !== '.')
  if (names.includes('..') || path.includes('\0')) return null
  if (path.startsWith('/') && !guestWorkspace.every((name) => names.shift() === name)) return null
  return names.length === 0 ? '.' : names.join('/')
}

/** A pattern for plain paths. A slash at its end stays, lest `*` before it stand for more; no plain path ends so. */
export function plainPattern(pattern: string): string {
  const plain = plainPath(pattern)
  if (plain === null) return pattern
  return pattern.endsWith('/') && plain !== '.' ? `${plain}/` : plain
}

/** Every way to write a plain path that a pattern may have in mind. */
export function spellings(plain: string): string[] {
  const absolute = `/${guestWorkspace.join('/')}`
  return plain === '.'
    ? ['.', './', absolute, `${absolute}/`]
    : [plain, `./${plain}`, `${absolute}/${plain}`].flatMap((path) => [path, `${path}/`])
}
