/**
 * Copies files out of a VM. The guest sends an archive, and all of it may be forged. Writes below the one path that the
 * caller gave, follows no link there, and leaves out what is neither file, directory nor symbolic link.
 */
import { randomBytes } from 'node:crypto'
import { type FileHandle, lstat, mkdir, open, realpath, rename, rm, stat, symlink } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import { formatBytes } from '../files/format.ts'
import { readFreeBytes } from '../vm/vm-options.ts'
import {
  CopyLog,
  type CopyOptions,
  type CopyResult,
  checkCopy,
  checkCopyOptions,
  copyDefaults,
  type GuestPath,
  readGuestPath,
} from './copy.ts'
import { GuestProgram, requireGoing, type ShellOpener } from './guest-program.ts'
import { isPlainName, type TarEntry, TarReader } from './tar.ts'

const entriesMaxCount = 500_000
const depthMax = 200
/** Larger files are compared with the free space first. */
const checkedBytes = 1024 * 1024
const reserveBytes = 64 * 1024 * 1024
/** Bytes of an archive that are no content: headers and names. */
const headersMaxBytes = entriesMaxCount * 2048
/** Characters of the links' names and targets, which are held until the end. */
const linksMaxChars = 64 * 1024 * 1024
/** Characters of the known directories. */
const knownMaxChars = 64 * 1024 * 1024

/** @throws {CaissonError} */
export async function copyOut(
  vm: ShellOpener,
  from: string,
  to: string,
  options: CopyOptions = {},
): Promise<CopyResult> {
  const source = readGuestPath(from)
  checkCopy(to, options)
  await using program = await openArchive(vm, source, options)
  const reader = new TarReader(limitBytes(program.output, options))
  const extraction = new Extraction(source, to, options)
  let count = 0
  for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
    if (++count > entriesMaxCount)
      throw new CaissonError(
        'limit_reached',
        `${JSON.stringify(from)} has more than ${entriesMaxCount} files`,
      )
    await extraction.take(entry, reader)
  }
  await program.requireSuccess(count === 0)
  return await extraction.end()
}

/** Ends an archive whose headers and names are too many. */
async function* limitBytes(pieces: AsyncIterable<Buffer>, options: CopyOptions): AsyncGenerator<Buffer> {
  let bytes = 0
  for await (const piece of pieces) {
    bytes += piece.length
    requireBelow(bytes - headersMaxBytes, options)
    yield piece
  }
}

/** The same as the bytes of an archive, which are the guest's. @throws {CaissonError} */
export async function* readArchive(
  vm: ShellOpener,
  from: string,
  options: CopyOptions = {},
): AsyncGenerator<Buffer> {
  checkCopyOptions(options)
  await using program = await openArchive(vm, readGuestPath(from), options)
  let bytes = 0
  for await (const piece of program.output) {
    bytes += piece.length
    requireBelow(bytes, options)
    yield piece
  }
  await program.requireSuccess(bytes === 0)
}

async function openArchive(vm: ShellOpener, source: GuestPath, options: CopyOptions): Promise<GuestProgram> {
  const { directory, name } = source
  const argv = ['tar', '--format=gnu', '--hard-dereference', '-cf', '-', '-C', directory, '--', name]
  return await GuestProgram.start(vm, argv, options)
}

function requireBelow(bytes: number, { maxBytes = copyDefaults.maxBytes }: CopyOptions): void {
  if (bytes <= maxBytes) return
  throw new CaissonError('limit_reached', `the VM sent more than ${formatBytes(maxBytes)}`, {
    remedy: 'raise the limit (maxBytes, --max-size), or copy less',
  })
}

/** What is written on the host. */
class Extraction {
  readonly #source: GuestPath
  readonly #to: string
  readonly #options: CopyOptions
  readonly #log = new CopyLog()
  /** Directories that are none of a link, by path. */
  readonly #known = new Set<string>()
  #knownChars = 0
  /** Made last, so that nothing is written through one. */
  readonly #links: { readonly path: string; readonly target: string }[] = []
  #linksChars = 0
  /** Of all files, those that are left out too. */
  #contentBytes = 0
  /** Where the first entry goes; those below it go below. */
  #root: string | undefined

  constructor(source: GuestPath, to: string, options: CopyOptions) {
    this.#source = source
    this.#to = to
    this.#options = options
  }

  async take(entry: TarEntry, reader: TarReader): Promise<void> {
    const parts = this.#partsOf(entry.path)
    if (this.#root === undefined) {
      if (parts.length > 0) throw forged(entry.path, 'it does not begin with what was asked for')
      this.#root = await this.#placeRoot(entry.type)
    }
    this.#contentBytes += entry.size
    requireBelow(this.#contentBytes, this.#options)
    const problem = problemOf(parts, entry)
    if (problem !== undefined) {
      this.#log.leaveOut(entry.path, problem)
      return
    }
    const file = path.join(this.#root, ...parts)
    await this.#withPath(file, async () => {
      await this.#makeParents(parts)
      if (entry.type === 'directory') await this.#makeDirectory(file, entry.mode)
      else if (entry.type === 'link') this.#holdLink(parts.join('/'), entry.target)
      else await this.#writeFile(file, entry, reader)
    })
    this.#options.onFile?.(entry.path)
  }

  async end(): Promise<CopyResult> {
    for (const link of this.#links) {
      requireGoing(this.#options)
      const file = path.join(this.#root ?? '', link.path)
      await this.#withPath(file, async () => {
        await this.#makeParents(link.path === '' ? [] : link.path.split('/'))
        // Replaces no directory, so none of the known ones becomes a link.
        await this.#replace(file, (draft) => symlink(link.target, draft))
      })
      this.#log.count(0)
    }
    return this.#log.result()
  }

  #holdLink(link: string, target: string): void {
    this.#linksChars += link.length + target.length
    if (this.#linksChars > linksMaxChars)
      throw new CaissonError(
        'limit_reached',
        `${JSON.stringify(this.#source.given)} has links whose names and targets have more than ${linksMaxChars} characters`,
      )
    this.#links.push({ path: link, target })
  }

  /** The names below the root. @throws {CaissonError} for a path that leads elsewhere */
  #partsOf(entry: string): string[] {
    const parts = entry.split('/').filter((part) => part !== '' && part !== '.')
    if (entry.startsWith('/') || parts.includes('..')) throw forged(entry, 'it leads out of the destination')
    if (parts.length > depthMax || Buffer.byteLength(entry) > limits.pathMaxBytes)
      throw forged(entry.slice(0, 200), 'it is too long')
    if (this.#source.name === '.') return parts
    if (parts[0] !== this.#source.name) throw forged(entry, 'it is not below what was asked for')
    return parts.slice(1)
  }

  /** As `cp` and `docker cp` do it: into a directory that is there, else by the name that was given. */
  async #placeRoot(type: TarEntry['type']): Promise<string> {
    const to = path.resolve(this.#to)
    const existing = await stat(to).catch(() => null)
    if (type === 'other')
      throw new CaissonError(
        'invalid_options',
        `${JSON.stringify(this.#source.given)} is neither file nor directory`,
      )
    if (existing === null) {
      if (type !== 'directory' && /\/\.?$/.test(this.#to)) throw missing(to)
      const above = await stat(path.dirname(to)).catch(() => null)
      if (above?.isDirectory() !== true) throw missing(path.dirname(to))
      return to
    }
    if (existing.isDirectory()) {
      const place = await realpath(to)
      return this.#source.name === '.' ? place : path.join(place, this.#source.name)
    }
    if (type === 'directory') throw refused(to, 'a directory cannot replace it')
    if (!existing.isFile()) throw refused(to, 'it is neither a file nor a directory')
    return await realpath(to)
  }

  /** The directories above an entry, from the root on. */
  async #makeParents(parts: readonly string[]): Promise<void> {
    for (let depth = 0; depth < parts.length; depth++)
      await this.#makeDirectory(path.join(this.#root ?? '', ...parts.slice(0, depth)), 0o777)
  }

  async #makeDirectory(directory: string, mode: number): Promise<void> {
    if (this.#known.has(directory)) return
    const existing = await lstat(directory).catch(() => null)
    if (existing === null) await mkdir(directory, { mode: mode | 0o700 })
    else if (!existing.isDirectory()) throw refused(directory, 'a directory cannot replace it')
    this.#knownChars += directory.length
    if (this.#knownChars > knownMaxChars) {
      this.#known.clear()
      this.#knownChars = directory.length
    }
    this.#known.add(directory)
  }

  async #writeFile(file: string, { mode, mtimeMs, size }: TarEntry, reader: TarReader): Promise<void> {
    const folder = path.dirname(file)
    if (size > checkedBytes && (await readFreeBytes(folder)) < size + reserveBytes)
      throw new CaissonError(
        'no_space',
        `${file} has ${formatBytes(size)}, and ${folder} has too little space`,
      )
    await this.#replace(file, async (draft) => {
      const handle = await open(draft, 'wx', mode)
      try {
        await writeAll(handle, reader)
        if (Number.isFinite(mtimeMs)) await handle.utimes(new Date(), new Date(mtimeMs))
      } finally {
        await handle.close()
      }
    })
    this.#log.count(size)
  }

  /** Makes it under another name first: what was there stays until it is whole. */
  async #replace(file: string, make: (draft: string) => Promise<void>): Promise<void> {
    const existing = await lstat(file).catch(() => null)
    if (existing?.isDirectory() === true) throw refused(file, 'it is a directory, which no file replaces')
    const draft = path.join(path.dirname(file), `.caisson-${randomBytes(8).toString('hex')}`)
    try {
      await make(draft)
      await rename(draft, file)
    } catch (error) {
      await rm(draft, { force: true })
      throw error
    }
  }

  async #withPath(file: string, work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (error instanceof CaissonError) throw error
      throw new CaissonError(
        CaissonError.from(error).code,
        `${file} was not written: ${errorMessage(error)}`,
        {
          cause: error,
        },
      )
    }
  }
}

async function writeAll(handle: FileHandle, reader: TarReader): Promise<void> {
  for await (const piece of reader.content()) await handle.writeFile(piece)
}

/** Why the entry is left out; undefined for one to write. */
function problemOf(parts: readonly string[], { type, target }: TarEntry): string | undefined {
  if (type === 'other') return 'neither file, directory nor symbolic link'
  if (!parts.every(isPlainName)) return 'control characters or bytes other than UTF-8 in its name'
  if (type !== 'link') return undefined
  const isUsable = target !== '' && Buffer.byteLength(target) <= limits.pathMaxBytes && isPlainName(target)
  return isUsable ? undefined : 'a link to no usable name'
}

function forged(entry: string, why: string): CaissonError {
  return new CaissonError(
    'protocol_violation',
    `the VM sent the path ${JSON.stringify(entry)}, refused: ${why}`,
  )
}

function refused(file: string, why: string): CaissonError {
  return new CaissonError('not_possible_now', `${file} was not written: ${why}`)
}

function missing(directory: string): CaissonError {
  return new CaissonError('file_not_found', `the directory ${directory} does not exist`)
}
