/** What happens to a run of the soak, at a random moment. Kills only what belongs to the lane's own state folder. */
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from './random.ts'

export type Cause =
  | 'nothing'
  | 'QEMU'
  | 'QEMU twice'
  | 'QEMU stands still'
  | 'host'
  | 'host stands still'
  | 'host of a saved VM'
  | 'full disk'

interface Target {
  readonly random: Random
  readonly home: string
  /** Types of the run's events until now; grows. */
  readonly events: readonly string[]
  readonly ended: Promise<unknown>
  readonly hostPid: number
  resizeDisk(isFull: boolean): void
}

const LONGEST_MOMENT_MS = 2_500
const SAVED_LIMIT_MS = 60_000

/** @returns whether the run was still at work then */
export async function strike(cause: Cause, target: Target): Promise<boolean> {
  const { random, hostPid } = target
  if (cause === 'nothing') return true
  if (cause === 'host of a saved VM') {
    const isSaved = await until(() => target.events.includes('vm-sleep'), target.ended)
    return isSaved && kill(hostPid, 'SIGKILL')
  }
  // Without room no VM starts, and the run says so.
  if (cause === 'full disk' && !(await until(() => target.events.includes('vm-ready'), target.ended)))
    return false
  if (!(await moment(target))) return false
  switch (cause) {
    case 'host':
      return kill(hostPid, 'SIGKILL')
    case 'host stands still':
      return await standStill(hostPid, random.between(500, 6_000))
    case 'QEMU':
      return kill(findQemu(target.home), 'SIGKILL')
    case 'QEMU twice': {
      const isDead = kill(findQemu(target.home), 'SIGKILL')
      if (isDead && (await moment(target))) kill(findQemu(target.home), 'SIGKILL')
      return isDead
    }
    case 'QEMU stands still':
      return await standStill(findQemu(target.home), random.between(500, 6_000))
    case 'full disk': {
      target.resizeDisk(true)
      await sleep(random.between(500, 3_000))
      target.resizeDisk(false)
      return true
    }
  }
}

/** A moment from now; false where the run ended before. */
async function moment({ random, ended }: Target): Promise<boolean> {
  return await Promise.race([
    ended.then(() => false),
    sleep(random.next() * LONGEST_MOMENT_MS).then(() => true),
  ])
}

async function until(is: () => boolean, ended: Promise<unknown>): Promise<boolean> {
  const over = ended.then(() => true)
  for (let waited = 0; waited < SAVED_LIMIT_MS; waited += 20) {
    if (is()) return true
    if (await Promise.race([over, sleep(20, false)])) return false
  }
  return false
}

async function standStill(pid: number | undefined, ms: number): Promise<boolean> {
  if (!kill(pid, 'SIGSTOP')) return false
  await sleep(ms)
  kill(pid, 'SIGCONT')
  return true
}

function kill(pid: number | undefined, signal: NodeJS.Signals): boolean {
  try {
    return pid !== undefined && pid > 0 && process.kill(pid, signal)
  } catch {
    return false
  }
}

/** The one QEMU of a state folder, if it runs. */
function findQemu(home: string): number | undefined {
  return findQemus(home)[0]
}

export function findQemus(home: string): number[] {
  const ids = listFolders(path.join(home, 'vms'))
  return listFolders('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      const command = read(`/proc/${pid}/cmdline`)
      return (
        read(`/proc/${pid}/comm`).startsWith('qemu-system') &&
        ids.some((id) => command.includes(`caisson-${id}`))
      )
    })
    .map(Number)
}

function listFolders(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
