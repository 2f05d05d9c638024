/**
 * Copies files of the host into a VM, as an archive that a program of the guest unpacks. Reads below the one path that the
 * caller gave, follows no link there, and leaves out what is neither file, directory nor symbolic link.
 */
import { constants, type Stats } from 'node:fs'
import { lstat, open, readdir, readlink, stat } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import {
  CopyLog,
  type CopyOptions,
  type CopyResult,
  checkCopy,
  checkCopyOptions,
  type GuestPath,
  readGuestPath,
} from './copy.ts'
import { GuestProgram, type ShellOpener } from './guest-program.ts'
import { encodeEnd, encodeEntry, encodePadding, isPlainName, type TarEntry } from './tar.ts'

const chunkBytes = 256 * 1024
const placeMaxBytes = 64 * 1024
const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants

/** What `$1` leads to, and of what kind it is; `x` where the directory above is missing too. */
const findPlace = `export LC_ALL=C
p=$(realpath -m -- "$1" && echo x) || exit 1
p=\${p%??}
if [ -d "$p" ]; then k=d; elif [ -e "$p" ]; then k=f; elif [ -d "\${p%/*}/" ]; then k=n; else k=x; fi
printf '%s%s' "$k" "$p"`

/** @throws {CaissonError} */
export async function copyIn(
  vm: ShellOpener,
  from: string,
  to: string,
  options: CopyOptions = {},
): Promise<CopyResult> {
  checkCopy(from, options)
  const source = path.resolve(from)
  const isContent = /(?:^|\/)\.$/.test(from) || source === '/'
  const found = await (/\/\.?$/.test(from) || isContent ? stat(source) : lstat(source)).catch((error) => {
    throw notRead(source, error)
  })
  if (!found.isFile() && !found.isDirectory() && !found.isSymbolicLink())
    throw new CaissonError('invalid_options', `${source} is neither file, directory nor symbolic link`)
  const target = readGuestPath(to)
  const { directory, name } = await choosePlace(vm, target, options, {
    isDirectory: found.isDirectory(),
    name: isContent ? '.' : path.basename(source),
  })
  const log = new CopyLog()
  await unpack(vm, directory, archiveOf(source, name, log, options), options)
  return log.result()
}

/** Unpacks an archive into a directory of the VM. @throws {CaissonError} */
export async function writeArchive(
  vm: ShellOpener,
  pieces: AsyncIterable<Uint8Array>,
  to: string,
  options: CopyOptions = {},
): Promise<void> {
  if (typeof pieces !== 'object' || pieces === null || !(Symbol.asyncIterator in pieces))
    throw new CaissonError('invalid_options', 'the archive: must be an async iterable of Uint8Array')
  checkCopyOptions(options)
  const target = readGuestPath(to)
  const { kind, place } = await lookAt(vm, target, options)
  if (kind !== 'd') throw refused(to, 'an archive is unpacked into a directory that exists')
  await unpack(vm, place, pieces, options)
}

async function unpack(
  vm: ShellOpener,
  directory: string,
  pieces: AsyncIterable<Uint8Array>,
  options: CopyOptions,
): Promise<void> {
  const argv = ['tar', '-xpf', '-', '--no-same-owner', '--no-overwrite-dir', '-C', directory]
  await using program = await GuestProgram.start(vm, argv, options)
  await program.write(pieces)
  await program.requireSuccess()
}

/** As `cp` and `docker cp` do it: into a directory that is there, else by the name that was given. */
async function choosePlace(
  vm: ShellOpener,
  target: GuestPath,
  options: CopyOptions,
  source: { readonly isDirectory: boolean; readonly name: string },
): Promise<{ readonly directory: string; readonly name: string }> {
  const { kind, place } = await lookAt(vm, target, options)
  const { given } = target
  if (kind === 'd') return { directory: place, name: source.name }
  if (kind === 'x') throw refused(given, 'the directory above it does not exist', 'file_not_found')
  if (kind === 'f' && source.isDirectory) throw refused(given, 'a directory cannot replace a file')
  if (kind === 'f' && target.isDirectory) throw refused(given, 'it is no directory')
  if (kind === 'n' && target.isDirectory && !source.isDirectory)
    throw refused(given, 'the directory does not exist', 'file_not_found')
  return { directory: path.posix.dirname(place), name: path.posix.basename(place) }
}

/** What the guest says of the path. */
async function lookAt(
  vm: ShellOpener,
  { directory, name, given }: GuestPath,
  options: CopyOptions,
): Promise<{ readonly kind: string; readonly place: string }> {
  const full = path.posix.join(directory, name)
  await using program = await GuestProgram.start(vm, ['/bin/sh', '-c', findPlace, 'sh', full], options)
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of program.output) {
    bytes += piece.length
    if (bytes > placeMaxBytes) break
    pieces.push(piece)
  }
  if (bytes <= placeMaxBytes) await program.requireSuccess()
  const text = Buffer.concat(pieces).toString()
  const [kind = '', place] = [text.slice(0, 1), text.slice(1)]
  if (!/^[dfnx]$/.test(kind) || !place.startsWith('/') || place.includes('\0'))
    throw refused(given, 'the VM answered in an unknown form')
  return { kind, place }
}

/** What `source` and the folders below it have. @param name of the source in the archive; `.`: what is in it */
export async function* archiveOf(
  source: string,
  name: string,
  log: CopyLog,
  options: CopyOptions,
): AsyncGenerator<Buffer> {
  const root = { file: source, name }
  const waiting = [root]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { file, name } = next
    const found = await (next === root && name === '.' ? stat(file) : lstat(file)).catch((error) => {
      throw notRead(file, error)
    })
    const mtimeMs = found.mtimeMs
    const common = { path: name, mode: found.mode & 0o777, mtimeMs, size: 0, target: '' } as const
    if (found.isSymbolicLink()) {
      yield encodeEntry({ ...common, type: 'link', target: await readlink(file) })
      log.count(0)
    } else if (found.isDirectory()) {
      // The directory that is there keeps its mode.
      if (name !== '.') yield encodeEntry({ ...common, path: `${name}/`, type: 'directory' })
      waiting.push(...(await childrenOf(file, name, log)))
    } else if (found.isFile()) yield* contentOf(file, found, { ...common, type: 'file' }, log)
    else {
      log.leaveOut(file, 'neither file, directory nor symbolic link')
      continue
    }
    options.onFile?.(file)
  }
  yield encodeEnd()
}

/** In the reverse of their order, which a stack turns round. */
async function childrenOf(
  directory: string,
  name: string,
  log: CopyLog,
): Promise<{ file: string; name: string }[]> {
  const names = await readdir(directory).catch((error) => {
    throw notRead(directory, error)
  })
  const usable = names.filter((child) => {
    const isUsable = isPlainName(child)
    if (!isUsable)
      log.leaveOut(path.join(directory, child), 'control characters or bytes other than UTF-8 in its name')
    return isUsable
  })
  return usable
    .sort()
    .reverse()
    .map((child) => ({ file: path.join(directory, child), name: name === '.' ? child : `${name}/${child}` }))
}

async function* contentOf(file: string, found: Stats, entry: TarEntry, log: CopyLog): AsyncGenerator<Buffer> {
  const handle = await open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch((error) => {
    throw notRead(file, error)
  })
  try {
    const { size, ino, dev } = await handle.stat()
    if (ino !== found.ino || dev !== found.dev) throw notRead(file, 'it changed meanwhile')
    yield encodeEntry({ ...entry, size })
    for (let at = 0; at < size; ) {
      const piece = Buffer.allocUnsafe(Math.min(chunkBytes, size - at))
      const { bytesRead } = await handle.read(piece, 0, piece.length, at)
      if (bytesRead === 0) throw notRead(file, 'it became shorter meanwhile')
      at += bytesRead
      yield piece.subarray(0, bytesRead)
    }
    yield encodePadding(size)
    log.count(size)
  } finally {
    await handle.close()
  }
}

function notRead(file: string, error: unknown): CaissonError {
  const { code } = CaissonError.from(error)
  const isMissing = errnoOf(error) === 'ENOENT'
  return new CaissonError(
    isMissing ? 'file_not_found' : code === 'internal' ? 'not_possible_now' : code,
    `${file} cannot be read: ${errorMessage(error)}`,
  )
}

function refused(
  given: string,
  why: string,
  code: 'not_possible_now' | 'file_not_found' = 'not_possible_now',
): CaissonError {
  return new CaissonError(code, `${JSON.stringify(given)} of the VM was not written: ${why}`)
}
