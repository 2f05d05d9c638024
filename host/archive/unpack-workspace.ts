/**
 * Makes a folder of a tar archive that anybody can have made: whole, or not at all. Refuses what is no ordinary file,
 * directory or symbolic link within the folder, and what is beyond the bounds.
 */
import { chmod, type FileHandle, lstat, mkdir, mkdtemp, open, rename, rm, symlink } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import { isPlainName, type TarEntry, TarReader } from '../control/tar.ts'
import { formatBytes } from '../files/format.ts'
import { stagePrefix } from '../state/folders.ts'
import { readFreeBytes } from '../vm/vm-options.ts'

export const uploadLimits = {
  /** Of the archive. */
  maxBytes: 1024 ** 3,
  maxEntries: 100_000,
  maxDepth: 100,
  /** Bytes of one name. */
  maxNameBytes: 255,
  /** Characters of all paths and targets, which are held until the end. */
  maxPathChars: 32 * 1024 ** 2,
} as const
/** What the disk must still have then. */
const reserveBytes = 256 * 1024 ** 2
/** Links that one name may lead through. */
const maxLinks = 40

export interface UnpackWorkspaceOptions {
  /** Bytes of the archive. Default: 1 GiB, which is also the most. */
  readonly maxBytes?: number
  /** Files, directories and links. Default: 100,000, which is also the most. */
  readonly maxEntries?: number
  readonly signal?: AbortSignal
}

export interface UnpackedWorkspace {
  readonly directory: string
  /** Files, directories and links. */
  readonly entries: number
  /** Of all files. */
  readonly contentBytes: number
}

/**
 * @param to a new folder in one that exists; it is for this user alone
 * @throws {CaissonError} `invalid_archive`, `limit_reached`, `no_space`; `not_possible_now` when `to` exists; nothing is left
 */
export async function unpackWorkspace(
  from: AsyncIterable<Uint8Array>,
  to: string,
  {
    maxBytes = uploadLimits.maxBytes,
    maxEntries = uploadLimits.maxEntries,
    signal,
  }: UnpackWorkspaceOptions = {},
): Promise<UnpackedWorkspace> {
  if ((await lstat(to).catch(() => undefined)) !== undefined)
    throw new CaissonError('not_possible_now', `${to} exists; expected the name of a new folder`)
  const stage = await mkdtemp(path.join(path.dirname(to), stagePrefix))
  try {
    const bounded = limitBytes(from, Math.min(maxBytes, uploadLimits.maxBytes), stage, signal)
    const reader = new TarReader(bounded, { readsPax: true, refuse: invalid })
    const unpacking = new Unpacking(stage, Math.min(maxEntries, uploadLimits.maxEntries))
    for (let entry = await reader.next(); entry !== null; entry = await reader.next())
      await unpacking.take(entry, reader)
    await reader.end()
    const made = await unpacking.end()
    await rename(stage, to)
    return { directory: to, ...made }
  } catch (error) {
    await rm(stage, { recursive: true, force: true })
    if (error instanceof CaissonError) throw error
    signal?.throwIfAborted()
    const { code } = CaissonError.from(error)
    throw new CaissonError(code, `the archive was not unpacked: ${errorMessage(error)}`, { cause: error })
  }
}

async function* limitBytes(
  pieces: AsyncIterable<Uint8Array>,
  maxBytes: number,
  folder: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  let bytes = 0
  let checkedAt = 0
  for await (const piece of pieces) {
    signal?.throwIfAborted()
    bytes += piece.length
    if (bytes > maxBytes)
      throw new CaissonError('limit_reached', `the archive has more than ${formatBytes(maxBytes)}`)
    if (bytes >= checkedAt) {
      checkedAt = bytes + reserveBytes / 4
      if ((await readFreeBytes(folder)) < reserveBytes)
        throw new CaissonError('no_space', `${folder} has less than ${formatBytes(reserveBytes)} left`)
    }
    yield piece
  }
}

/** What was made so far in a folder that nobody else writes to. */
class Unpacking {
  readonly #root: string
  readonly #maxEntries: number
  /** Of each path what it is; a link has its target. */
  readonly #made = new Map<string, 'file' | 'directory' | 'implied' | { readonly target: string }>()
  #chars = 0
  #contentBytes = 0

  constructor(root: string, maxEntries: number) {
    this.#root = root
    this.#maxEntries = maxEntries
  }

  async take(entry: TarEntry, reader: TarReader): Promise<void> {
    const parts = partsOf(entry)
    const name = parts.join('/')
    if (name === '') return
    const file = path.join(this.#root, name)
    if (entry.type === 'directory' && this.#made.get(name) === 'implied') {
      this.#made.set(name, 'directory')
      return await chmod(file, entry.mode | 0o700)
    }
    this.#hold(name, entry)
    await this.#makeParents(parts)
    if (entry.type === 'directory') await mkdir(file, { mode: entry.mode | 0o700 })
    else if (entry.type === 'file') await this.#writeFile(file, entry, reader)
  }

  /** Makes the links last, so that nothing is written through one. */
  async end(): Promise<{ entries: number; contentBytes: number }> {
    for (const [name, made] of this.#made) {
      if (typeof made === 'string') continue
      if (!this.#staysInside(name)) throw refused(name, 'the link leads out of the workspace, or in a circle')
      await symlink(made.target, path.join(this.#root, name))
    }
    return { entries: this.#made.size, contentBytes: this.#contentBytes }
  }

  #hold(name: string, { type, target }: TarEntry): void {
    const known = this.#made.get(name)
    if (known !== undefined) throw refused(name, 'the archive has it twice')
    if (type === 'other') throw refused(name, 'it is no ordinary file, directory or symbolic link')
    if (type === 'link') {
      const isUsable =
        target !== '' && Buffer.byteLength(target) <= limits.pathMaxBytes && isPlainName(target)
      if (!isUsable || target.startsWith('/')) throw refused(name, 'the link leads out of the workspace')
    }
    this.#chars += name.length + target.length
    if (this.#made.size >= this.#maxEntries || this.#chars > uploadLimits.maxPathChars)
      throw new CaissonError(
        'limit_reached',
        `the archive has more than ${this.#maxEntries} entries, or longer paths than can be held`,
      )
    this.#made.set(name, type === 'link' ? { target } : type)
  }

  async #makeParents(parts: readonly string[]): Promise<void> {
    for (let depth = 1; depth < parts.length; depth += 1) {
      const above = parts.slice(0, depth).join('/')
      const known = this.#made.get(above)
      if (known === 'directory' || known === 'implied') continue
      if (known !== undefined) throw refused(parts.join('/'), `it is below ${above}, which is no directory`)
      this.#hold(above, { ...implied, path: above })
      this.#made.set(above, 'implied')
      await mkdir(path.join(this.#root, above), { mode: 0o755 })
    }
  }

  async #writeFile(file: string, { mode, mtimeMs, size }: TarEntry, reader: TarReader): Promise<void> {
    this.#contentBytes += size
    await using handle = await open(file, 'wx', mode | 0o600)
    await writeAll(handle, reader)
    if (Number.isFinite(mtimeMs)) await handle.utimes(new Date(), new Date(mtimeMs))
  }

  /** Follows a path as the system does, through the links of the archive. Names that are not there end it within. */
  #staysInside(name: string): boolean {
    const at: string[] = []
    const ahead = name.split('/')
    for (let links = 0; ahead.length > 0; ) {
      const part = ahead.shift() ?? ''
      if (part === '' || part === '.') continue
      if (part === '..') {
        if (at.pop() === undefined) return false
        continue
      }
      at.push(part)
      const made = this.#made.get(at.join('/'))
      if (typeof made !== 'object') continue
      links += 1
      if (links > maxLinks) return false
      at.pop()
      ahead.unshift(...made.target.split('/'))
    }
    return true
  }
}

const implied = { type: 'directory', mode: 0o755, mtimeMs: Number.NaN, size: 0, target: '' } as const

/** The names of a path. @throws {CaissonError} `invalid_archive` for one that leads elsewhere, or no program can show */
function partsOf({ path: name, type }: TarEntry): string[] {
  const parts = name.split('/').filter((part) => part !== '' && part !== '.')
  if (name.startsWith('/') || parts.includes('..')) throw refused(name, 'the path leads out of the workspace')
  const { maxDepth, maxNameBytes } = uploadLimits
  if (
    parts.length > maxDepth ||
    Buffer.byteLength(name) > limits.pathMaxBytes ||
    parts.some((part) => Buffer.byteLength(part) > maxNameBytes)
  )
    throw refused(name, `expected at most ${maxDepth} names of ${maxNameBytes} bytes`)
  if (!parts.every(isPlainName)) throw refused(name, 'it has control characters, or bytes other than UTF-8')
  if (parts.length === 0 && type !== 'directory') throw refused(name, 'the workspace itself is a directory')
  return parts
}

async function writeAll(handle: FileHandle, reader: TarReader): Promise<void> {
  for await (const piece of reader.content()) await handle.writeFile(piece)
}

function invalid(what: string): CaissonError {
  return new CaissonError('invalid_archive', `the archive cannot be read: it has ${what}`, {
    remedy: 'send an uncompressed tar archive',
  })
}

function refused(name: string, why: string): CaissonError {
  return new CaissonError(
    'invalid_archive',
    `${JSON.stringify(name.slice(0, 200))} of the archive is refused: ${why}; nothing was unpacked`,
    { remedy: 'leave it out of the archive' },
  )
}
