/**
 * One run at a time per directory: a lock file in our state folder, named by the directory's device and inode, that
 * says who holds it. A holder that is gone (by process id and start time) is replaced. Also refuses a directory
 * that lies within, or holds, one that is in use.
 */
import { randomBytes } from 'node:crypto'
import { linkSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { z } from 'zod'
import { Count, RunId } from '#specs/protocol/text.ts'
import { contains } from './directory-check.ts'
import { failureOf, type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'

/** A recovery takes milliseconds; one this old was left by a crash. */
const RECOVERY_STALE_MS = 10_000

const Holder = z.strictObject({
  runId: RunId,
  directory: z.string(),
  pid: Count,
  /** What tells this process from a later one with the same id; empty where the system does not say. */
  started: z.string(),
})
type Holder = z.infer<typeof Holder>

export interface LockOptions {
  /** The folder of locks, which exists: `Folders.locks`. */
  readonly locks: string
  /** The real path of the workspace. */
  readonly root: string
  readonly runId: string
}

export interface DirectoryLock extends Disposable {
  readonly file: string
}

/** Locks a directory for a run. Failures: `in_use`, naming the other run; `unreadable`, `internal`. */
export function lockDirectory(options: LockOptions): WorkspaceResult<DirectoryLock> {
  const holder: Holder = {
    runId: options.runId,
    directory: options.root,
    pid: process.pid,
    started: startOf(process.pid),
  }
  try {
    const { dev, ino } = statSync(options.root, { bigint: true })
    const file = path.join(options.locks, `${dev.toString(36)}-${ino.toString(36)}.lock`)
    const other = take(file, holder)
    if (other !== undefined) return inUse(options.root, other)
    const overlapping = findOverlap(options.locks, file, options.root)
    if (overlapping !== undefined) {
      rmSync(file, { force: true })
      return inUse(options.root, overlapping)
    }
    return workspaceSuccess({ file, [Symbol.dispose]: () => release(file, holder) })
  } catch (thrown) {
    return failureOf(`locking the workspace "${options.root}"`, thrown)
  }
}

/** The runs that hold a lock in this folder and whose host process lives. */
export function lockedRuns(locks: string): ReadonlySet<string> {
  const holders = readdirIfThere(locks).map((name) => readHolder(path.join(locks, name)))
  return new Set(
    holders.filter((holder) => holder !== undefined && isAlive(holder)).map((h) => h?.runId ?? ''),
  )
}

function readdirIfThere(folder: string): string[] {
  try {
    return readdirSync(folder).filter((name) => name.endsWith('.lock'))
  } catch {
    return []
  }
}

/** Takes the lock, or gives who holds it. */
function take(file: string, holder: Holder): Holder | undefined {
  for (let tries = 0; tries < 10; tries++) {
    if (create(file, holder)) return
    const other = readHolder(file)
    if (other !== undefined && isAlive(other)) return other
    removeStale(file)
  }
  throw new Error(`the lock ${file} keeps changing hands; start again`)
}

/** Makes the file with its content in one step, so that no one ever reads half a lock. */
function create(file: string, holder: Holder): boolean {
  const draft = `${file}.${randomBytes(6).toString('hex')}.tmp`
  writeFileSync(draft, `${JSON.stringify(holder)}\n`, { flag: 'wx', mode: 0o600 })
  try {
    linkSync(draft, file)
    return true
  } catch (thrown) {
    if (isErrno(thrown, 'EEXIST')) return false
    throw thrown
  } finally {
    rmSync(draft, { force: true })
  }
}

/** Removes a lock whose holder is gone. Only one process does so at a time: it could be someone's new lock else. */
function removeStale(file: string): void {
  const recovery = `${file}.recovery`
  try {
    writeFileSync(recovery, '', { flag: 'wx', mode: 0o600 })
  } catch (thrown) {
    if (!isErrno(thrown, 'EEXIST')) throw thrown
    const age = Date.now() - (statSync(recovery, { throwIfNoEntry: false })?.mtimeMs ?? 0)
    if (age > RECOVERY_STALE_MS) rmSync(recovery, { force: true })
    else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20)
    return
  }
  try {
    const other = readHolder(file)
    if (other === undefined || !isAlive(other)) rmSync(file, { force: true })
  } finally {
    rmSync(recovery, { force: true })
  }
}

function findOverlap(locks: string, own: string, root: string): Holder | undefined {
  for (const name of readdirSync(locks)) {
    const file = path.join(locks, name)
    if (!name.endsWith('.lock') || file === own) continue
    const other = readHolder(file)
    if (other === undefined || !isAlive(other)) continue
    if (contains(other.directory, root) || contains(root, other.directory)) return other
  }
  return
}

function release(file: string, holder: Holder): void {
  const now = readHolder(file)
  if (now?.runId === holder.runId && now.pid === holder.pid && now.started === holder.started) {
    rmSync(file, { force: true })
  }
}

function readHolder(file: string): Holder | undefined {
  try {
    return Holder.parse(JSON.parse(readFileSync(file, 'utf8')))
  } catch {
    return
  }
}

function isAlive(holder: Holder): boolean {
  try {
    process.kill(holder.pid, 0)
  } catch (thrown) {
    // EPERM: it lives, as another user.
    if (!isErrno(thrown, 'EPERM')) return false
  }
  return startOf(holder.pid) === holder.started
}

/** When a process began, in clock ticks since boot, with the boot's id (proc(5), field 22 of stat). */
function startOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
    return fields[0] === 'Z' ? 'zombie' : `${boot}/${fields[19] ?? ''}`
  } catch {
    return ''
  }
}

function inUse(root: string, other: Holder): WorkspaceResult<never> {
  const where = other.directory === root ? `"${root}"` : `"${root}" overlaps with "${other.directory}", which`
  return workspaceFailure(
    'in_use',
    `${where} is in use by ${other.runId} (process ${other.pid}); wait for it to end or cancel it, then start again`,
  )
}

function isErrno(thrown: unknown, code: string): boolean {
  return thrown instanceof Error && 'code' in thrown && thrown.code === code
}
