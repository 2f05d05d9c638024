/** Opens files of the state folder: anything but a regular file is refused, and no open waits for a FIFO's writer. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'

const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY

/** @throws {CaissonError} `state_corrupted` for what is no regular file; the system's errors */
export async function openRegular(file: string): Promise<FileHandle> {
  const handle = await open(file, flags)
  try {
    if ((await handle.stat()).isFile()) return handle
  } catch (error) {
    await handle.close()
    throw error
  }
  await handle.close()
  throw notRegular(file)
}

/** All bytes. Throws like {@link openRegular}. */
export async function readRegular(file: string): Promise<Buffer> {
  await using handle = await openRegular(file)
  return await handle.readFile()
}

/** The descriptor. Throws like {@link openRegular}. */
export function openRegularSync(file: string): number {
  const fd = openSync(file, flags)
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
  return new CaissonError('state_corrupted', `${file} is not a regular file, and is not read`)
}
