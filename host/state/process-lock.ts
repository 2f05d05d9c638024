// One process at a time for one thing, such as an image or a template: a lock file that names its process. A dead
// holder's lock is taken over. Two that take over the same dead lock at once may both go on: what they make is published
// by rename, so that costs time and nothing else.

import { link, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { judgeProcess, ownIdentity } from './process-identity.ts'

const POLL_MS = 100

const Holder = z.strictObject({ pid: z.int().min(1), born: z.string(), world: z.string(), token: z.string() })

export interface ProcessLockOptions {
  readonly signal?: AbortSignal
  /** Called once when another process holds the lock. */
  readonly onWait?: (pid: number) => void
}

/** Waits until `file` is ours. Dispose to release. @throws the signal's reason, and the system's error for a lock that cannot be read */
export async function takeProcessLock(
  file: string,
  options: ProcessLockOptions = {},
): Promise<AsyncDisposable> {
  const token = crypto.randomUUID()
  const own = `${file}.${token}`
  await writeFile(own, JSON.stringify({ ...(await ownIdentity()), token }), { mode: 0o600 })
  let told = false
  try {
    while (!(await tryLink(own, file))) {
      const holder = await readHolder(file)
      if (holder === 'none') continue
      if (holder === 'unreadable' || (await judgeProcess(holder)) === 'dead') {
        await rename(file, `${own}.stale`).catch(() => undefined)
        await rm(`${own}.stale`, { force: true })
        continue
      }
      if (!told) options.onWait?.(holder.pid)
      told = true
      await sleep(POLL_MS, undefined, options.signal === undefined ? {} : { signal: options.signal })
    }
  } finally {
    await rm(own, { force: true })
  }
  await sweepTokens(file)
  return {
    async [Symbol.asyncDispose]() {
      const holder = await readHolder(file).catch(() => 'unreadable' as const)
      if (typeof holder === 'object' && holder.token === token) await rm(file, { force: true })
    },
  }
}

/** Removes what waiters left that were killed. */
async function sweepTokens(file: string): Promise<void> {
  const folder = path.dirname(file)
  const names = (await readdir(folder)).filter((name) => name.startsWith(`${path.basename(file)}.`))
  for (const name of names) {
    const holder = await readHolder(path.join(folder, name)).catch(() => 'unreadable' as const)
    const dead = typeof holder === 'object' && (await judgeProcess(holder)) === 'dead'
    if (dead) await rm(path.join(folder, name), { force: true })
  }
}

/** The lock appears whole, with its content, or not at all. */
async function tryLink(own: string, file: string): Promise<boolean> {
  try {
    await link(own, file)
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false
    throw error
  }
}

async function readHolder(file: string): Promise<z.infer<typeof Holder> | 'none' | 'unreadable'> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    // Gone since. What cannot be read otherwise is nobody's to take over, and would be asked for without an end.
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return 'none'
    throw error
  }
  try {
    return Holder.parse(JSON.parse(text))
  } catch {
    return 'unreadable'
  }
}
