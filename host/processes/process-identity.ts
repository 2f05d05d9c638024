// Tells a process from another that got the same number later, and finds processes by an argument.
// It never signals anything.

import { execFile } from 'node:child_process'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { promisify } from 'node:util'
import { z } from 'zod'

const run = promisify(execFile)

/** A process as a file can record it. */
export const ProcessIdentity = z.strictObject({
  pid: z.int().positive(),
  /** Differs for every process that ever had this pid on this machine. */
  born: z.string(),
  /** Which numbering the pid belongs to; processes of another one cannot be judged from here. */
  world: z.string(),
})
export type ProcessIdentity = Readonly<z.infer<typeof ProcessIdentity>>

/** The identity of this process. */
export async function ownIdentity(): Promise<ProcessIdentity> {
  return { pid: process.pid, born: (await readBirth(process.pid)) ?? '', world: await readWorld() }
}

/**
 * `alive`, `dead`, or `unknown` when it runs in another container on the same boot.
 * After a restart of the machine, everything from before is dead.
 */
export async function judgeProcess(recorded: ProcessIdentity): Promise<'alive' | 'dead' | 'unknown'> {
  const world = await readWorld()
  if (world !== recorded.world) {
    const [boot] = world.split('/')
    return recorded.world.startsWith(`${boot}/`) ? 'unknown' : 'dead'
  }
  const born = await readBirth(recorded.pid)
  return born !== undefined && born === recorded.born ? 'alive' : 'dead'
}

/** Pids of running processes that have `argument` among their arguments, exactly. */
export async function findProcessesByArgument(argument: string): Promise<number[]> {
  if (process.platform !== 'linux') {
    const { stdout } = await run('/bin/ps', ['-axo', 'pid=,command=']).catch(() => ({ stdout: '' }))
    const lines = stdout.split('\n').filter((line) => line.split(/\s+/).includes(argument))
    return lines.map((line) => Number.parseInt(line, 10))
  }
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(
    pids.map(async (pid) => {
      const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
      return commandLine.split('\0').includes(argument) ? Number(pid) : undefined
    }),
  )
  return found.filter((pid) => pid !== undefined)
}

/** When the process started, as its system says; undefined when there is none or only its zombie. */
async function readBirth(pid: number): Promise<string | undefined> {
  try {
    if (process.platform !== 'linux') {
      const { stdout } = await run('/bin/ps', ['-o', 'lstart=', '-p', String(pid)])
      return stdout.trim() || undefined
    }
    const text = await readFile(`/proc/${pid}/stat`, 'utf8')
    // The name in parentheses may itself hold spaces and parentheses; state is field 3, start time field 22.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}

async function readWorld(): Promise<string> {
  if (process.platform !== 'linux') return 'machine/'
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '')
  const namespace = await readlink('/proc/self/ns/pid').catch(() => '')
  return `${boot.trim()}/${namespace}`
}
