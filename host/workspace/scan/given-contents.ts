/** Contents that a scan takes in the place of what the disk has. */

/** What says that the disk has another content, so that it is never taken for the copied one without a look at it. */
export function contentOf(content: Buffer) {
  return { size: content.length, inode: 0n, ctimeNs: 0n, content }
}

export function namesByDirectory(paths: Iterable<string>): ReadonlyMap<string, readonly string[]> {
  const names = new Map<string, string[]>()
  for (const file of paths) {
    const slash = file.lastIndexOf('/')
    const directory = slash < 0 ? '' : file.slice(0, slash)
    names.set(directory, [...(names.get(directory) ?? []), file.slice(slash + 1)])
  }
  return names
}

/** Parent directories of a path. */
export function ancestorsOf(path: string): string[] {
  const names = path.split('/')
  return names.slice(1).map((_, at) => names.slice(0, at + 1).join('/'))
}
