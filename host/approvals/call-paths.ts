/**
 * Identifies path arguments of a call and normalizes them for rules. Resolves nothing: links belong to the guest, so
 * only the guest could resolve a path with `..`.
 */

/** Mount point of the workspace in the guest; tools take paths below it, or relative to it. */
const guestWorkspace = ['mnt', 'workspace']

/** Arguments that every tool uses only for workspace paths. */
const pathArguments: ReadonlySet<string> = new Set(['path', 'from', 'to'])

/** Tools that act on a folder and all its contents. */
const wholeFolderTools: ReadonlySet<string> = new Set(['delete_file', 'move_file'])

/** Whether the argument `name` of a call is a path. */
export function isPathArgument(name: string): boolean {
  return pathArguments.has(name)
}

/** Whether the tool, given a folder, acts on all its contents. */
export function takesWholeFolders(tool: string): boolean {
  return wholeFolderTools.has(tool)
}

/**
 * The path relative to the workspace, without `.`, doubled or trailing slashes; `.` for the workspace itself. Null if
 * it is outside the workspace or contains `..`.
 */
export function plainPath(path: string): string | null {
  const names = path.split('/').filter((name) => name !== '' && name !== '.')
  if (names.includes('..') || path.includes('\0')) return null
  if (path.startsWith('/') && !guestWorkspace.every((name) => names.shift() === name)) return null
  return names.length === 0 ? '.' : names.join('/')
}

/**
 * A pattern for normalized paths. A trailing slash stays, so that a preceding `*` matches no more; no normalized path
 * has one.
 */
export function plainPattern(pattern: string): string {
  const plain = plainPath(pattern)
  if (plain === null) return pattern
  return pattern.endsWith('/') && plain !== '.' ? `${plain}/` : plain
}

/** All spellings of a normalized path that a pattern may use. */
export function spellings(plain: string): string[] {
  const absolute = `/${guestWorkspace.join('/')}`
  return plain === '.'
    ? ['.', './', absolute, `${absolute}/`]
    : [plain, `./${plain}`, `${absolute}/${plain}`].flatMap((path) => [path, `${path}/`])
}
