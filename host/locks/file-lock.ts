/**
 * A lock file: held by one process at a time, there only while it is held, and saying who holds it. A file that a killed
 * process left is taken by the next one, since the kernel's lock on it is gone. Refuses to wait without an end.
 */

import { constants, fstatSync, statSync } from 'node:fs'
import { type FileHandle, lstat, readFile, rm, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { parseJson } from '../files/json.ts'
import { openLocked } from './kernel-lock.ts'

const { O_CREAT, O_NOFOLLOW, O_RDONLY, O_RDWR } = constants

/** How often a waiter looks whether the file is gone, which costs nothing; by chance, so that waiters come one by one. */
const LOOK_MS = { least: 10, most: 40 }
/** How often it asks the kernel meanwhile, for a holder that was killed leaves its file. */
const ASK_MS = { first: 50, most: 1_000 }
/**
 * Another process that only checks a lock holds it for some milliseconds; a caller that does not wait still waits this
 * long.
 */
const GLANCE_MS = 300

/** For locks of small state files, which are held for milliseconds: a longer holder must be stopped. */
export const stateFileWaitMs = 30_000

/** What a lock file says of its holder, for messages; nothing is decided by it. */
const Holder = z.looseObject({ pid: z.int().min(1) })

interface LockOptions {
  /** How long to wait for another holder; default: just long enough to be sure that there is one. */
  readonly waitMs?: number
  readonly signal?: AbortSignal
  /** Called once when another process holds the lock. */
  readonly onWait?: (holder: string) => void
}

/** Another process held the lock for as long as the caller was willing to wait. */
export class LockHeldError extends CaissonError {
  /** Such as `process 123`. */
  readonly holder: string

  constructor(file: string, holder: string, waitedMs: number) {
    const seconds = Math.round(waitedMs / 1_000)
    const since = seconds > 1 ? ` for more than ${seconds} s` : ''
    super('state_unavailable', `${holder} holds the lock ${file}${since}`, {
      remedy: 'wait until it ends, or end it, then try again',
    })
    this.holder = holder
  }
}

export interface FileLock extends AsyncDisposable {
  readonly file: string
  /** Whether the file is still this one. Another process has the lock when somebody removed the file meanwhile. */
  isOwn(): boolean
  /** Tells others more about the holder than its process id. */
  describe(about: Readonly<Record<string, unknown>>): Promise<void>
}

/** Locks of this process, by path: to ask the kernel starts a program, and a service has many. */
const own = new Map<string, FileLock>()

/** Takes the lock. Dispose to release. @throws {LockHeldError} {CaissonError} the signal's reason, and the system's errors */
export async function takeLock(file: string, options: LockOptions = {}): Promise<FileLock> {
  const { waitMs = GLANCE_MS, signal, onWait } = options
  const startedAt = performance.now()
  const waited = () => performance.now() - startedAt
  for (let askMs: number = ASK_MS.first, hasReported = false; ; askMs = Math.min(2 * askMs, ASK_MS.most)) {
    signal?.throwIfAborted()
    const handle = await openLocked(file, O_RDWR | O_CREAT | O_NOFOLLOW, 'exclusive')
    if (handle !== undefined) {
      const lock = await claim(file, handle)
      if (lock !== undefined) return lock
      continue
    }
    const left = waitMs - waited()
    if (left <= 0) throw new LockHeldError(file, await nameHolder(file), waited())
    if (!hasReported && waited() > Math.min(waitMs, GLANCE_MS) / 2) {
      onWait?.(await nameHolder(file))
      hasReported = true
    }
    await waitForChange(file, Math.min(askMs, left), signal)
  }
}

/**
 * Whether a process holds the lock now. @throws {CaissonError} `state_unavailable`, and the system's error
 * for a file that cannot be read
 */
export async function isLocked(file: string): Promise<boolean> {
  if (own.get(file)?.isOwn() === true) return true
  try {
    const handle = await openLocked(file, O_RDONLY | O_NOFOLLOW, 'shared')
    await handle?.close()
    return handle === undefined
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false
    throw error
  }
}

/** What the lock file says; undefined when it is gone or says nothing. @throws the system's error for one that cannot be read */
export async function readLockFile(file: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return ''
    throw error
  })
  const parsed = Holder.safeParse(parseJson(text))
  return parsed.success ? parsed.data : undefined
}

/** Whether it is a lock file that a killed process left. False where the kernel or the file cannot be asked. */
export async function isLeftLock(file: string): Promise<boolean> {
  try {
    const found = await lstat(file)
    if (!found.isFile()) return false
    const saysHolder = found.size === 0 || (await readLockFile(file)) !== undefined
    return saysHolder && !(await isLocked(file))
  } catch {
    return false
  }
}

/** Removes the file that a killed process left; one that is held stays. */
export async function removeLeftLock(file: string): Promise<void> {
  await using _ = await takeLock(file)
}

/** The lock, unless the last holder removed the file after it was opened: then another file is the lock by now. */
async function claim(file: string, handle: FileHandle): Promise<FileLock | undefined> {
  const lock: FileLock = {
    file,
    isOwn() {
      const mine = fstatSync(handle.fd, { bigint: true })
      const there = statSync(file, { bigint: true, throwIfNoEntry: false })
      return there?.dev === mine.dev && there.ino === mine.ino
    },
    async describe(about) {
      const text = Buffer.from(`${JSON.stringify({ pid: process.pid, ...about })}\n`)
      await handle.truncate(0)
      await handle.write(text, 0, text.length, 0)
    },
    async [Symbol.asyncDispose]() {
      if (own.get(file) === lock) own.delete(file)
      try {
        // While it is still locked, so that only its own file is removed.
        if (await isAt(file, handle)) await rm(file, { force: true })
      } finally {
        await handle.close()
      }
    },
  }
  try {
    if (await isAt(file, handle)) {
      // Only for messages: a full disk must not prevent a lock.
      await lock.describe({}).catch(() => undefined)
      own.set(file, lock)
      return lock
    }
  } catch (error) {
    await handle.close()
    throw error
  }
  await handle.close()
  return undefined
}

async function isAt(file: string, handle: FileHandle): Promise<boolean> {
  const [there, own] = await Promise.all([inodeOf(file), handle.stat({ bigint: true })])
  return there === `${own.dev} ${own.ino}`
}

async function inodeOf(file: string): Promise<string | undefined> {
  const found = await stat(file, { bigint: true }).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  })
  return found === undefined ? undefined : `${found.dev} ${found.ino}`
}

/** Until the file is another or gone, which is how its holder releases it, or the time is over. */
async function waitForChange(file: string, maxMs: number, signal: AbortSignal | undefined): Promise<void> {
  const until = performance.now() + maxMs
  const before = await inodeOf(file)
  while (before !== undefined && performance.now() < until) {
    const lookMs = LOOK_MS.least + Math.random() * (LOOK_MS.most - LOOK_MS.least)
    await sleep(
      // The time may end between the look at it above and this one.
      Math.max(0, Math.min(lookMs, until - performance.now())),
      undefined,
      signal === undefined ? {} : { signal },
    )
    if ((await inodeOf(file)) !== before) return
  }
}

async function nameHolder(file: string): Promise<string> {
  const holder = await readLockFile(file).catch(() => undefined)
  return holder === undefined ? 'another process' : `process ${holder.pid}`
}
