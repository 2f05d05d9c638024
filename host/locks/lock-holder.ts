/**
 * Ends the process that holds a lock, where it does not do so itself: stopped, or stuck. Refuses to end a process that
 * does not have the lock's file open, whatever the file says. Linux only: it reads /proc.
 */
import { readdir, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import { isLocked, readLockFile } from './file-lock.ts'

/** Time for the kernel to end the process and to give its locks up. */
const endMs = 10_000
const lookMs = 20

/**
 * Ends the holder of a lock with SIGKILL, which works on a stopped process too. Does nothing when nobody holds it.
 * @returns the id of the process that was ended
 * @throws {CaissonError} `not_possible_now` when the holder is not known for certain, or does not end
 */
export async function endHolder(file: string): Promise<number | undefined> {
  if (!(await isLocked(file))) return undefined
  const pid = (await readLockFile(file))?.pid
  if (typeof pid !== 'number' || pid === process.pid || !(await hasOpen(pid, file)))
    throw new CaissonError('not_possible_now', `the process that holds ${file} is not known for certain`, {
      remedy: 'end that process yourself, then try again',
    })
  process.kill(pid, 'SIGKILL')
  for (const until = performance.now() + endMs; performance.now() < until; await sleep(lookMs))
    if (!(await isLocked(file))) return pid
  throw new CaissonError('not_possible_now', `process ${pid} was killed and still holds ${file}`)
}

/** Whether the process has the file open. False where it is of another user, or the system has no /proc. */
async function hasOpen(pid: number, file: string): Promise<boolean> {
  try {
    const wanted = await stat(file, { bigint: true })
    for (const name of await readdir(`/proc/${pid}/fd`)) {
      const open = await stat(`/proc/${pid}/fd/${name}`, { bigint: true }).catch(() => undefined)
      if (open?.dev === wanted.dev && open.ino === wanted.ino) return true
    }
    return false
  } catch {
    return false
  }
}
