/**
 * One name in an open directory and its operations: never through a link, never blocking on a device or FIFO. Created
 * by a {@link Root}; failures are values.
 */
import {
  type BigIntStats,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  type Stats,
  symlinkSync,
  unlinkSync,
} from 'node:fs'
import type { Result } from '#specs/protocol/error.ts'
import { type Directory, isRaceFree, kindOf, O_PATH, type Owner } from './directory.ts'
import { attempt, failure, fileFailure, ifPermitted } from './file-error.ts'
import { decodePath, quotePath, toSystemPath } from './path-text.ts'

const SAFE_OPEN = constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

/** An open regular file. */
export class OpenFile implements Disposable {
  readonly fd: number
  /** State at opening. */
  readonly stat: Stats

  constructor(fd: number, stat: Stats) {
    this.fd = fd
    this.stat = stat
  }

  [Symbol.dispose](): void {
    closeSync(this.fd)
  }
}

export class Place implements Disposable {
  /** The last name, or `.` for the root itself. */
  readonly name: string
  /** The resolved path below the root, without links; empty for the root itself. */
  readonly path: string
  readonly directory: Directory
  readonly #owner: Owner | undefined

  /** Takes ownership of `directory` and closes it. */
  constructor(directory: Directory, name: string, parentPath: string, owner?: Owner) {
    this.directory = directory
    this.name = name
    this.path = name === '.' ? parentPath : parentPath === '' ? name : `${parentPath}/${name}`
    this.#owner = owner
  }

  /** Another name in the same directory, which must outlive it: it is not disposed. */
  sibling(name: string): Place {
    return new Place(
      this.directory,
      name,
      this.path.slice(0, Math.max(0, this.path.lastIndexOf('/'))),
      this.#owner,
    )
  }

  /** The entry, links not followed. */
  stat(): Result<Stats> {
    return attempt(`cannot inspect ${this}`, () => lstatSync(this.directory.at(this.name)))
  }

  /** The same with nanosecond times. */
  statExact(): Result<BigIntStats> {
    return attempt(`cannot inspect ${this}`, () => lstatSync(this.directory.at(this.name), { bigint: true }))
  }

  /** Whether the name exists, including as a link. */
  exists(): boolean {
    return this.stat().ok
  }

  /**
   * Opens an existing regular file; a directory, link, device or FIFO is `not_a_file` and never opened.
   * @param access `write` opens for reading and writing
   */
  openFile(access: 'read' | 'write' = 'read'): Result<OpenFile> {
    const flags = access === 'read' ? constants.O_RDONLY : constants.O_RDWR
    try {
      return isRaceFree ? this.#openByDescriptor(flags) : this.#openByName(flags)
    } catch (thrown) {
      return fileFailure(`cannot open ${this}`, thrown)
    }
  }

  /** Creates an empty file; `already_exists` if the name is taken, even by a link. */
  createFile(mode = 0o666): Result<OpenFile> {
    return attempt(`cannot create ${this}`, () => {
      const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | SAFE_OPEN
      return this.#adopt(openSync(this.directory.at(this.name), flags, mode))
    })
  }

  /** Opens the directory of this name. */
  openDirectory(): Result<Directory> {
    return attempt(`cannot open the directory ${this}`, () => this.directory.open(this.name))
  }

  makeDirectory(mode = 0o777): Result<void> {
    return attempt(`cannot make the directory ${this}`, () => {
      mkdirSync(this.directory.at(this.name), mode)
      const owner = this.#owner
      if (owner === undefined) return
      using made = this.directory.open(this.name)
      ifPermitted(() => made.chown(owner))
    })
  }

  /** The target of a link, as text. */
  readLink(): Result<string> {
    return attempt(`cannot read the link ${this}`, () =>
      decodePath(readlinkSync(this.directory.at(this.name), { encoding: 'buffer' })),
    )
  }

  makeLink(target: string): Result<void> {
    return attempt(`cannot make the link ${this}`, () =>
      symlinkSync(toSystemPath(target), this.directory.at(this.name)),
    )
  }

  /** Removes any entry except a directory. */
  unlink(): Result<void> {
    return attempt(`cannot delete ${this}`, () => unlinkSync(this.directory.at(this.name)))
  }

  /** Removes an empty directory. */
  removeDirectory(): Result<void> {
    return attempt(`cannot delete the directory ${this}`, () => rmdirSync(this.directory.at(this.name)))
  }

  /** Sets the permission bits of a file or directory, never of a link's target. */
  setMode(mode: number): Result<void> {
    const seen = this.stat()
    if (!seen.ok) return seen
    if (seen.value.isDirectory()) {
      return attempt(`cannot change the mode of ${this}`, () => {
        using directory = this.directory.open(this.name)
        directory.chmod(mode)
      })
    }
    const opened = this.openFile('read')
    if (!opened.ok) return opened
    using file = opened.value
    return attempt(`cannot change the mode of ${this}`, () => fchmodSync(file.fd, mode))
  }

  /** Sets access and change time, in seconds, of the name itself. */
  setTimes(accessSeconds: number, changeSeconds: number): Result<void> {
    return attempt(`cannot set the times of ${this}`, () =>
      lutimesSync(this.directory.at(this.name), accessSeconds, changeSeconds),
    )
  }

  /**
   * Renames atomically. With `replace: false` a taken name is `already_exists`: atomically for files and links (link
   * and unlink), for directories checked just before.
   */
  renameTo(target: Place, options: { readonly replace: boolean }): Result<void> {
    const from = this.directory.at(this.name)
    const to = target.directory.at(target.name)
    return attempt(`cannot move ${this} to ${target}`, () => {
      if (options.replace) return renameSync(from, to)
      if (!lstatSync(from).isDirectory()) {
        linkSync(from, to)
        return unlinkSync(from)
      }
      if (target.exists()) throw Object.assign(new Error('EEXIST'), { code: 'EEXIST' })
      renameSync(from, to)
    })
  }

  [Symbol.dispose](): void {
    this.directory[Symbol.dispose]()
  }

  /** The path in quotes, for messages. */
  toString(): string {
    return quotePath(this.path === '' ? '.' : this.path)
  }

  /** Opens the name as a path first, checks its kind, and then opens exactly that file. */
  #openByDescriptor(flags: number): Result<OpenFile> {
    const named = openSync(this.directory.at(this.name), O_PATH | constants.O_NOFOLLOW)
    try {
      const stat = fstatSync(named)
      if (!stat.isFile()) return this.#notAFile(stat)
      const opened = openSync(`/proc/self/fd/${named}`, flags | constants.O_NONBLOCK | constants.O_NOCTTY)
      return { ok: true, value: new OpenFile(opened, fstatSync(opened)) }
    } finally {
      closeSync(named)
    }
  }

  #openByName(flags: number): Result<OpenFile> {
    const path = this.directory.at(this.name)
    const before = lstatSync(path)
    if (!before.isFile()) return this.#notAFile(before)
    const fd = openSync(path, flags | SAFE_OPEN)
    const stat = fstatSync(fd)
    if (stat.isFile() && stat.dev === before.dev && stat.ino === before.ino) {
      return { ok: true, value: new OpenFile(fd, stat) }
    }
    closeSync(fd)
    return failure('unavailable', `${this} changed while it was opened; try again.`, true)
  }

  #notAFile(stat: Stats): ReturnType<typeof failure> {
    const kind = kindOf(stat)
    const what = {
      file: 'a file',
      directory: 'a directory',
      link: 'a symbolic link',
      other: 'a device, FIFO or socket',
    }
    return failure('not_a_file', `${this} is ${what[kind]}, not a regular file.`)
  }

  #adopt(fd: number): OpenFile {
    const owner = this.#owner
    try {
      if (owner !== undefined) ifPermitted(() => fchownSync(fd, owner.uid, owner.gid))
      return new OpenFile(fd, fstatSync(fd))
    } catch (thrown) {
      closeSync(fd)
      throw thrown
    }
  }
}
