/**
 * Locks a workspace across state folders, containers and users: exclusively, and each possible workspace above it in
 * shared mode, so that nested workspaces exclude each other. Creates no file there.
 */

import { constants, type Stats, statSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { type LockKind, openLocked } from '../locks/kernel-lock.ts'
import { contains } from './directory-check.ts'

/** A lock that is being released, or briefly held by a program such as systemd-tmpfiles, is not a conflict. */
const TRIES = 4
const PAUSE_MS = 50

/**
 * `held`: another process works in the directory, above it or below it. `unsupported`: the file system has no directory
 * locks, like NFS. Dispose to release.
 * @param root the real path of the workspace
 */
export async function lockTree(root: string): Promise<AsyncDisposable | 'held' | 'unsupported'> {
  await using undo = new AsyncDisposableStack()
  const own = await openDirectory(root, 'exclusive')
  if (own === 'held' || own === 'unsupported') return own
  undo.use(own)
  for (const above of workspacesAbove(root)) {
    const shared = await openDirectory(above, 'shared')
    if (shared === 'held') return 'held'
    if (shared !== 'unsupported') undo.use(shared)
  }
  return undo.move()
}

async function openDirectory(place: string, kind: LockKind): Promise<FileHandle | 'held' | 'unsupported'> {
  for (let tries = 1; ; tries++) {
    try {
      const handle = await openLocked(place, constants.O_RDONLY | constants.O_DIRECTORY, kind)
      if (handle !== undefined) return handle
    } catch (error) {
      // A parent directory that cannot be opened is not a workspace of this user.
      const isClosed = errnoOf(error) === 'EACCES'
      if (hasCode(error, 'lock_unsupported') || (isClosed && kind === 'shared')) return 'unsupported'
      throw error
    }
    if (tries >= TRIES) return 'held'
    await sleep(PAUSE_MS)
  }
}

/** Parent directories that this user could use as a workspace: not the root, no home folder, nothing of other users. */
function workspacesAbove(root: string): string[] {
  const me = process.geteuid?.()
  const homes = [homedir(), process.env.HOME ?? homedir()]
  const found: string[] = []
  for (let at = path.dirname(root); at !== path.dirname(at); at = path.dirname(at)) {
    const stat = statIfThere(at)
    if (stat?.uid === me && !homes.some((home) => contains(at, home))) found.push(at)
  }
  return found
}

function statIfThere(place: string): Stats | undefined {
  try {
    return statSync(place)
  } catch {
    return undefined
  }
}
