/** Opens files of the state folder: anything but a regular file is refused, and no open waits for a FIFO's writer. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'

/** Ways to open a file; those that add to it create it for this user alone. */
const ways = {
  read: constants.O_RDONLY,
  append: constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT,
}
type Way = keyof typeof ways
const flagsOf = (way: Way) => ways[way] | constants.O_NONBLOCK | constants.O_NOCTTY

/** @throws {CaissonError} `state_corrupted` for what is no regular file; the system's errors */
export async function openRegular(file: string, way: Way = 'read'): Promise<FileHandle> {
  const handle = await open(file, flagsOf(way), 0o600)
  try {
    if ((await handle.stat()).isFile()) return handle
  } catch (error) {
    await handle.close()
    throw error
  }
  await handle.close()
  throw notRegular(file)
}

/** All bytes. Throws like {@link openRegular}, and `state_corrupted` for more than `maxBytes`. */
export async function readRegular(file: string, maxBytes = Number.POSITIVE_INFINITY): Promise<Buffer> {
  await using handle = await openRegular(file)
  const { size } = await handle.stat()
  if (size > maxBytes)
    throw new CaissonError('state_corrupted', `${file} has ${size} bytes; expected at most ${maxBytes}`)
  return await handle.readFile()
}

/** The bytes from its beginning, also of a file that grows meanwhile; null for more than `maxBytes`. */
export async function readBounded(handle: FileHandle, maxBytes: number): Promise<Buffer | null> {
  const bytes = Buffer.alloc(maxBytes + 1)
  let length = 0
  for (let read = -1; read !== 0 && length < bytes.length; length += read)
    read = (await handle.read(bytes, length)).bytesRead
  return length > maxBytes ? null : bytes.subarray(0, length)
}

/** The descriptor. Throws like {@link openRegular}. */
export function openRegularSync(file: string, way: Way = 'read'): number {
  const fd = openSync(file, flagsOf(way), 0o600)
  let isRegular = false
  try {
    isRegular = fstatSync(fd).isFile()
    if (!isRegular) throw notRegular(file)
    return fd
  } finally {
    if (!isRegular) closeSync(fd)
  }
}

/** All bytes. Throws like {@link openRegular}. */
export function readRegularSync(file: string): Buffer {
  const fd = openRegularSync(file)
  try {
    return readFileSync(fd)
  } finally {
    closeSync(fd)
  }
}

function notRegular(file: string): CaissonError {
  return new CaissonError('state_corrupted', `${file} is not a regular file, and is not used`)
}
