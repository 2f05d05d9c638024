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
  | 'host of a sleeping run'
  | 'agent'
  | 'link'
  | 'full disk'

export interface Target {
  readonly random: Random
  readonly home: string
  /** Types of the run's events until now; grows. */
  readonly events: readonly string[]
  readonly ended: Promise<unknown>
  readonly hostPid: number
  /** The processes of the run's VM that can be seen from here. */
  findVm(): { readonly qemu: number | undefined; readonly agent: number | undefined }
  /** Cuts the link to the agent, these bytes from now. */
  cutLink(bytes: number): void
  resizeDisk(isFull: boolean): void
}

const LONGEST_MOMENT_MS = 2_500
const LONGEST_AGENT_MOMENT_MS = 600
const LONGEST_CUT_BYTES = 3_000
const SAVED_LIMIT_MS = 60_000

/** @returns whether the run was still at work then */
export async function strike(cause: Cause, target: Target): Promise<boolean> {
  const { random, hostPid } = target
  if (cause === 'nothing') return true
  if (cause === 'host of a saved VM' || cause === 'host of a sleeping run') {
    const type = cause === 'host of a saved VM' ? 'vm-sleep' : 'run-sleep'
    const isResting = await until(() => target.events.includes(type), target.ended)
    return isResting && kill(hostPid, 'SIGKILL')
  }
  // Without room no VM starts, and the run says so.
  if (cause === 'full disk' && !(await until(() => target.events.includes('vm-ready'), target.ended)))
    return false
  // Runs of the machine whose agents can be killed are quick.
  if (cause === 'agent' && !(await until(() => target.events.includes('vm-ready'), target.ended)))
    return false
  if (!(await moment(target, cause === 'agent' ? LONGEST_AGENT_MOMENT_MS : LONGEST_MOMENT_MS))) return false
  switch (cause) {
    case 'host':
      return kill(hostPid, 'SIGKILL')
    case 'host stands still':
      return await standStill(hostPid, random.between(500, 6_000))
    case 'QEMU':
      return kill(target.findVm().qemu, 'SIGKILL')
    case 'QEMU twice': {
      const isDead = kill(target.findVm().qemu, 'SIGKILL')
      if (isDead && (await moment(target))) kill(target.findVm().qemu, 'SIGKILL')
      return isDead
    }
    case 'agent':
      return kill(target.findVm().agent, 'SIGKILL')
    case 'link':
      // Two sessions, and what is on the way in each.
      target.cutLink(random.between(0, LONGEST_CUT_BYTES))
      if (await moment(target)) target.cutLink(random.between(0, LONGEST_CUT_BYTES))
      return true
    case 'QEMU stands still':
      return await standStill(target.findVm().qemu, random.between(500, 6_000))
    case 'full disk': {
      target.resizeDisk(true)
      await sleep(random.between(500, 3_000))
      target.resizeDisk(false)
      return true
    }
  }
}

/** A moment from now; false where the run ended before. */
async function moment({ random, ended }: Target, longestMs = LONGEST_MOMENT_MS): Promise<boolean> {
  return await Promise.race([ended.then(() => false), sleep(random.next() * longestMs).then(() => true)])
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

/** The QEMUs of a state folder. */
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
