/** The file system interface of the skill registry, and Node's implementation. */
import { open, readdir, realpath, stat } from 'node:fs/promises'
import path from 'node:path'

/** Paths are absolute. Every method may reject; the registry reports that as a finding. */
export interface SkillFiles {
  /** Names in a folder, in any order. */
  list(folder: string): Promise<readonly string[]>
  /** Kind and location of a path after resolving links; null when missing. */
  resolve(
    target: string,
  ): Promise<{ readonly path: string; readonly kind: 'folder' | 'file' | 'other' } | null>
  /** At most `maxBytes` of a file as text; null when it is larger. */
  read(file: string, maxBytes: number): Promise<string | null>
}

export const nodeFiles: SkillFiles = {
  list: (folder) => readdir(folder),
  resolve: async (target) => {
    try {
      const real = await realpath(target)
      const stats = await stat(real)
      return { path: real, kind: stats.isDirectory() ? 'folder' : stats.isFile() ? 'file' : 'other' }
    } catch (cause) {
      // ELOOP is a link to itself, so nothing is there.
      const code = cause instanceof Error && 'code' in cause ? cause.code : ''
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') return null
      throw cause
    }
  },
  read: async (file, maxBytes) => {
    await using handle = await open(file, 'r')
    const buffer = Buffer.alloc(maxBytes + 1)
    let total = 0
    for (;;) {
      const { bytesRead } = await handle.read(buffer, total, buffer.length - total, total)
      total += bytesRead
      if (bytesRead === 0 || total > maxBytes) break
    }
    return total > maxBytes ? null : buffer.toString('utf8', 0, total)
  },
}

/** Whether `target` is `root` or inside it; both resolved. */
export function isWithin(root: string, target: string): boolean {
  const relative = path.relative(root, target)
  return (
    relative === '' ||
    (relative !== '..' && !relative.startsWith(`..${path.sep}`) && !path.isAbsolute(relative))
  )
}
