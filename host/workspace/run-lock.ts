/**
 * The lock of a run, held by one process at a time: to write its journal, to change or remove its files, and with
 * {@link RunLock.holdDirectory} to copy, change or restore its workspace. The lock file names that directory meanwhile.
 */

import { mkdir, readdir } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { RunId } from '#specs/protocol/text.ts'
import {
  type FileLock,
  isLocked,
  LockHeldError,
  readLockFile,
  stateFileWaitMs,
  takeLock,
} from '../locks/file-lock.ts'
import { endHolder } from '../locks/lock-holder.ts'
import { contains } from './directory-check.ts'
import { lockTree } from './directory-lock.ts'
import { failureOf, type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'

const SUFFIX = '.lock'

/** How long to wait for a directory: copying, applying and undoing usually take less than a second. */
const DIRECTORY_WAIT_MS = 30_000
const DIRECTORY_ASK_MS = 100

/** How to wait for a directory that another process holds. */
export interface DirectoryWait {
  /** Absent: 30 s. */
  readonly waitMs?: number
  readonly signal?: AbortSignal
  /** Called once, when another run has the directory. */
  readonly onWait?: () => void
}

/** A run whose process was killed while it held a directory. */
interface KilledRun {
  readonly runId: string
  readonly directory: string
}

export class RunLock implements AsyncDisposable {
  readonly #locks: string
  readonly #runId: string
  readonly #lock: FileLock

  private constructor(locks: string, runId: string, lock: FileLock) {
    this.#locks = locks
    this.#runId = runId
    this.#lock = lock
  }

  /**
   * @param locks folder of locks: `Folders.locks`
   * @throws {CaissonError} `run_busy` while another process has it
   */
  static async take(locks: string, runId: string): Promise<RunLock> {
    await mkdir(locks, { recursive: true, mode: 0o700 })
    try {
      return new RunLock(locks, runId, await takeLock(path.join(locks, `${runId}${SUFFIX}`)))
    } catch (error) {
      if (!(error instanceof LockHeldError)) throw error
      throw new CaissonError(
        'run_busy',
        `${runId} is in use by ${error.holder}; wait until it ends or cancel it, then try again`,
        { cause: error },
      )
    }
  }

  /**
   * Holds a directory for this run until the result is disposed: to copy it, or to change it. Waits while another
   * process does so. Failures: `in_use`, naming the other run; `cancelled`, `unreadable`, `internal`.
   * @param root the real path of the workspace
   * @param onKilled receives runs whose process was killed in this directory, before anything else happens there
   */
  async holdDirectory(
    root: string,
    onKilled: (killed: KilledRun) => void = () => undefined,
    { waitMs = DIRECTORY_WAIT_MS, signal, onWait }: DirectoryWait = {},
  ): Promise<WorkspaceResult<AsyncDisposable>> {
    for (let attempt = 1, startedAt = performance.now(); ; attempt += 1) {
      const held = await this.#tryDirectory(root, onKilled)
      const isOver = performance.now() - startedAt >= waitMs
      if (held.ok || held.error.code !== 'in_use' || isOver) return held
      if (attempt === 1) onWait?.()
      try {
        await sleep(DIRECTORY_ASK_MS, undefined, signal === undefined ? {} : { signal })
      } catch (thrown) {
        return failureOf(`waiting for the workspace "${root}"`, thrown)
      }
    }
  }

  async #tryDirectory(
    root: string,
    onKilled: (killed: KilledRun) => void,
  ): Promise<WorkspaceResult<AsyncDisposable>> {
    try {
      // One check at a time, or two overlapping runs would both be refused.
      await using _ = await takeLock(path.join(this.#locks, 'directories.lock'), { waitMs: stateFileWaitMs })
      const overlapping = await this.#findOverlapping(root)
      for (const other of overlapping)
        if (await isLocked(this.#fileOf(other.runId))) return inUse(root, other)
      const tree = await lockTree(root)
      if (tree === 'held') return inUseElsewhere(root)
      await using undo = new AsyncDisposableStack()
      if (tree !== 'unsupported') undo.use(tree)
      for (const killed of overlapping) await this.#settle(killed, onKilled)
      const described = this.#lock.describe({ runId: this.#runId, directory: root })
      // The directory's own lock works without the description.
      await (tree === 'unsupported' ? described : described.catch(() => undefined))
      undo.defer(() => this.#lock.describe({ runId: this.#runId }).catch(() => undefined))
      return workspaceSuccess(undo.move())
    } catch (thrown) {
      return failureOf(`locking the workspace "${root}"`, thrown)
    }
  }

  /** See {@link FileLock.isOwn}. */
  isOwn(): boolean {
    return this.#lock.isOwn()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#lock[Symbol.asyncDispose]()
  }

  #fileOf(runId: string): string {
    return path.join(this.#locks, `${runId}${SUFFIX}`)
  }

  /** Other runs that hold, or held when killed, a directory within this one or around it. */
  async #findOverlapping(root: string): Promise<(KilledRun & { readonly pid: unknown })[]> {
    const runIds = (await runIdsIn(this.#locks)).filter((runId) => runId !== this.#runId)
    const holders = await Promise.all(
      runIds.map(async (runId) => ({ runId, ...(await readLockFile(this.#fileOf(runId))) })),
    )
    return holders.flatMap(({ runId, pid, directory }: Record<string, unknown> & { runId: string }) =>
      typeof directory === 'string' && (contains(directory, root) || contains(root, directory))
        ? [{ runId, pid, directory }]
        : [],
    )
  }

  /** Removes its lock file once its leftovers are handled. */
  async #settle({ runId, directory }: KilledRun, onKilled: (killed: KilledRun) => void): Promise<void> {
    const left = await takeLock(this.#fileOf(runId)).catch(() => undefined)
    if (left === undefined) return
    await using _ = left
    await left.describe({ runId, directory }).catch(() => undefined)
    onKilled({ runId, directory })
  }
}

/**
 * Whether a process works on the run now. @throws {CaissonError} `state_unavailable`, and the system's error when its
 * lock cannot be read
 */
export async function isRunLocked(locks: string, runId: string): Promise<boolean> {
  return await isLocked(path.join(locks, `${runId}${SUFFIX}`))
}

/**
 * Ends the process that works on the run, which may be stopped. Does nothing when there is none.
 * @throws {CaissonError} `not_possible_now` when the process is not known for certain, or does not end
 */
export async function endRunHolder(locks: string, runId: string): Promise<number | undefined> {
  return await endHolder(path.join(locks, `${runId}${SUFFIX}`))
}

/** Id of the process that works on the run, as its lock says. Undefined: none, or not known. */
export async function findRunHolder(locks: string, runId: string): Promise<number | undefined> {
  const file = path.join(locks, `${runId}${SUFFIX}`)
  const lock = await readLockFile(file).catch(() => undefined)
  return typeof lock?.pid === 'number' ? lock.pid : undefined
}

/** The runs with an active process. A run whose lock cannot be read counts as active. */
export async function lockedRuns(locks: string): Promise<ReadonlySet<string>> {
  const runIds = await runIdsIn(locks)
  const held = await Promise.all(
    runIds.map((runId) => isLocked(path.join(locks, `${runId}${SUFFIX}`)).catch(() => true)),
  )
  return new Set(runIds.filter((_, at) => held[at]))
}

async function runIdsIn(locks: string): Promise<string[]> {
  const names = await readdir(locks).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return []
    throw error
  })
  const runIds = names.filter((name) => name.endsWith(SUFFIX)).map((name) => name.slice(0, -SUFFIX.length))
  return runIds.filter((runId) => RunId.safeParse(runId).success)
}

function inUse(
  root: string,
  { runId, directory, pid }: KilledRun & { readonly pid: unknown },
): WorkspaceResult<never> {
  const where = directory === root ? `"${root}"` : `"${root}" overlaps with "${directory}", which`
  return workspaceFailure(
    'in_use',
    `${where} is being copied or changed by ${runId} (process ${pid}); wait until that is done, then start again`,
  )
}

function inUseElsewhere(root: string): WorkspaceResult<never> {
  return workspaceFailure(
    'in_use',
    `"${root}", or a directory within it or above it, is locked by a process that does not belong to this state folder, ` +
      'such as an apply with another CAISSON_HOME; wait until it ends, then start again',
  )
}
