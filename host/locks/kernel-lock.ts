/**
 * Locks a file or directory through the kernel (flock(2)): the lock belongs to the open descriptor, so the kernel gives it
 * up when its process dies, however that happens, and keeps it while the process is stopped or out of sight in another
 * container. Refuses to guess: whatever keeps the kernel from answering is an error, never "not locked".
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { describeLeftOut, searchProgram } from '../processes/programs.ts'

/** `shared`: with others that ask for a shared lock. */
export type LockKind = 'exclusive' | 'shared'

/**
 * Opens `place` with the lock; undefined when another descriptor has it. Close the handle to release.
 * @param flags of open(2), without any about locks
 * @throws {CaissonError} `state_unavailable`, and the system's error when the file cannot be opened
 */
export async function openLocked(
  place: string,
  flags: number,
  kind: LockKind,
): Promise<FileHandle | undefined> {
  if (process.platform !== 'linux') return await openWithLock(place, flags, kind)
  const handle = await open(place, flags, 0o600)
  try {
    if (await askFlock(handle.fd, place, kind)) return handle
  } catch (error) {
    await handle.close()
    throw error
  }
  await handle.close()
  return undefined
}

/** O_SHLOCK and O_EXLOCK of macOS and the BSDs (fcntl.h); Node has no names for them. */
const LOCK_FLAGS = { shared: 0x10, exclusive: 0x20 } as const

/** There open(2) itself takes the lock. */
async function openWithLock(place: string, flags: number, kind: LockKind): Promise<FileHandle | undefined> {
  try {
    return await open(place, flags | LOCK_FLAGS[kind] | constants.O_NONBLOCK, 0o600)
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    if (code === 'EAGAIN' || code === 'EWOULDBLOCK') return undefined
    if (code === 'ENOTSUP' || code === 'EOPNOTSUPP') throw unsupported(place, reasonOf(error))
    throw error
  }
}

/** Where the program flock is; searched for once. */
let program: Promise<string> | undefined

/**
 * Linux has the lock only as a system call, which Node does not make: the program flock (util-linux, BusyBox) makes it
 * on the descriptor that it inherits, and ends. The lock stays with the descriptor, which this process has as well.
 */
async function askFlock(fd: number, place: string, kind: LockKind): Promise<boolean> {
  program ??= findFlock()
  // Asked for again by the next lock: it may have been installed by then.
  program.catch(() => {
    program = undefined
  })
  const child = spawn(await program, [kind === 'shared' ? '-s' : '-x', '-n', '3'], {
    stdio: ['ignore', 'ignore', 'pipe', fd],
    env: {},
    cwd: '/',
    // Ctrl-C in the terminal is for the host alone.
    detached: true,
  })
  let complaint = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    complaint += text
  })
  const [code, signal] = await once(child, 'close').catch((error: unknown) => {
    throw new CaissonError(
      'state_unavailable',
      `cannot lock ${place}: the program flock did not start: ${reasonOf(error)}`,
      {
        cause: error,
      },
    )
  })
  if (code === 0) return true
  if (code === 1 && complaint === '') return false
  const seen = complaint.trim().slice(0, 500) || `it ended with ${signal ?? `code ${code}`}`
  if (signal !== null)
    throw new CaissonError('state_unavailable', `cannot lock ${place}: flock: ${seen}; try again`)
  throw unsupported(place, seen)
}

async function findFlock(): Promise<string> {
  const found = await searchProgram('flock')
  if (found.path !== undefined) return found.path
  throw new CaissonError(
    'state_unavailable',
    `cannot lock files: the program flock is missing${describeLeftOut(found)}; install util-linux`,
  )
}

function unsupported(place: string, seen: string): CaissonError {
  return new CaissonError(
    'lock_unsupported',
    `cannot lock ${place}: ${seen}; use a folder on a file system with locks (CAISSON_HOME, CAISSON_CACHE)`,
  )
}
