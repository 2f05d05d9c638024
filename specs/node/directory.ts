/**
 * An open directory. Names in it are reached through its descriptor, so changes to the path above it have no effect.
 * Linux: `/proc/self/fd/N/NAME`, with descriptors that only name the directory (O_PATH). Elsewhere (macOS) node:fs
 * has no equivalent: the path is used, and each directory is checked after opening. That refuses links, but not one
 * that another program swaps in for a parent directory between two calls. `isRaceFree` says which applies;
 * specs/security.md explains the consequences.
 */
import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  lstatSync,
  opendirSync,
  openSync,
  readdirSync,
  type Stats,
} from 'node:fs'
import { decodeLatin1Name, encodePath } from './path-text.ts'

/** Whether directories are reached by descriptor alone, so that no race can leave them. */
export const isRaceFree = process.platform === 'linux'

/** Linux's O_PATH (the same number on x86-64 and arm64), which node:fs does not list. */
export const O_PATH = isRaceFree ? 0o10000000 : 0
const OPEN_DIRECTORY = O_PATH | constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW

export type EntryKind = 'file' | 'directory' | 'link' | 'other'

/** One name in a directory. */
export interface DirectoryEntry {
  readonly name: string
  readonly kind: EntryKind
}

/** Owner of created entries. */
export interface Owner {
  readonly uid: number
  readonly gid: number
}

export class Directory implements Disposable {
  readonly fd: number
  readonly #prefix: string
  readonly #prefixBytes: Buffer | undefined

  private constructor(fd: number, path: string | Buffer) {
    this.fd = fd
    this.#prefix = isRaceFree ? `/proc/self/fd/${fd}/` : `${path.toString()}/`
    this.#prefixBytes =
      isRaceFree || typeof path === 'string' ? undefined : Buffer.concat([path, Buffer.from('/')])
  }

  /** Opens a directory by a trusted path, following links. Throws the system's error. */
  static openTrusted(path: string): Directory {
    return new Directory(openSync(path, OPEN_DIRECTORY & ~constants.O_NOFOLLOW), path)
  }

  /** Opens the subdirectory `name`; throws ENOTDIR or ELOOP for a link or anything but a directory. */
  open(name: string): Directory {
    const path = this.at(name)
    const fd = openSync(path, OPEN_DIRECTORY)
    const directory = new Directory(fd, path)
    if (!isRaceFree) directory.#refuseOther(lstatSync(path))
    return directory
  }

  /** Another handle of the same directory. */
  reopen(): Directory {
    return this.open('.')
  }

  /** A path for node:fs to `name`, a single name or `.`. Anything else is misuse and throws. */
  at(name: string): string | Buffer {
    if (name === '' || name === '..' || name.includes('/') || name.includes('\0')) {
      throw new TypeError('expected a single name in a directory')
    }
    if (name.isWellFormed() && (isRaceFree || this.#prefixBytes === undefined)) return this.#prefix + name
    return Buffer.concat([this.#prefixBytes ?? Buffer.from(this.#prefix), encodePath(name)])
  }

  /** All names, in the system's order. */
  list(): DirectoryEntry[] {
    const entries = readdirSync(this.at('.'), { withFileTypes: true, encoding: 'latin1' })
    return entries.map((entry) => ({ name: decodeLatin1Name(entry.name), kind: kindOf(entry) }))
  }

  /** At most `maxCount` names, in the system's order; bounded also for a huge folder. */
  listSome(maxCount: number): { readonly entries: DirectoryEntry[]; readonly isWhole: boolean } {
    const entries: DirectoryEntry[] = []
    const opened = opendirSync(this.at('.').toString(), { encoding: 'latin1', bufferSize: 1_024 })
    try {
      for (let entry = opened.readSync(); entry !== null; entry = opened.readSync()) {
        if (entries.length === maxCount) return { entries, isWhole: false }
        entries.push({ name: decodeLatin1Name(entry.name), kind: kindOf(entry) })
      }
    } finally {
      opened.closeSync()
    }
    return { entries, isWhole: true }
  }

  /** Sets the permission bits. An O_PATH descriptor cannot; its /proc name can. */
  chmod(mode: number): void {
    if (isRaceFree) chmodSync(`/proc/self/fd/${this.fd}`, mode)
    else fchmodSync(this.fd, mode)
  }

  /** Sets the owner. */
  chown(owner: Owner): void {
    if (isRaceFree) chownSync(`/proc/self/fd/${this.fd}`, owner.uid, owner.gid)
    else fchownSync(this.fd, owner.uid, owner.gid)
  }

  [Symbol.dispose](): void {
    closeSync(this.fd)
  }

  #refuseOther(seen: Stats): void {
    const opened = fstatSync(this.fd)
    if (opened.dev === seen.dev && opened.ino === seen.ino) return
    this[Symbol.dispose]()
    throw Object.assign(new Error('ESTALE: the directory changed while it was opened'), { code: 'ESTALE' })
  }
}

/** The kind of a stat or a directory entry, one of four. */
export function kindOf(entry: Pick<Stats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>): EntryKind {
  if (entry.isFile()) return 'file'
  if (entry.isDirectory()) return 'directory'
  return entry.isSymbolicLink() ? 'link' : 'other'
}
