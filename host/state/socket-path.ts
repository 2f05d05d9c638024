/**
 * Unix sockets whose path is longer than the kernel's 107 bytes: on Linux they are reached through a descriptor of their
 * folder. Elsewhere such a path is refused with what to do.
 */

import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'

/** Shorter than `sun_path` everywhere (104 with its NUL on macOS, 108 on Linux). */
const maxPathBytes = 100

/** A path by which the socket can be bound or connected to, as long as this is not disposed. */
export interface ReachablePath extends AsyncDisposable {
  readonly path: string
}

/** @throws when the path is too long here, or its folder is not there */
export async function reachSocket(file: string): Promise<ReachablePath> {
  if (Buffer.byteLength(file) <= maxPathBytes) return { path: file, [Symbol.asyncDispose]: async () => {} }
  if (process.platform !== 'linux') {
    throw new CaissonError(
      'state_unavailable',
      `the path of a socket is longer than ${maxPathBytes} bytes: ${file}`,
      { remedy: 'set CAISSON_HOME to a shorter folder' },
    )
  }
  const folder: FileHandle = await open(path.dirname(file), 'r')
  return {
    path: `/proc/self/fd/${folder.fd}/${path.basename(file)}`,
    [Symbol.asyncDispose]: () => folder.close(),
  }
}
