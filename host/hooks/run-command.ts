/**
 * Runs the command of a hook: JSON in, bounded output, a deadline, and an end for every process of its group however it
 * ends, also with this process. Never in a workspace; without the keys and variables of this process.
 */
import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import type { Result } from '#specs/protocol/error.ts'
import { spawnHeld } from '../processes/held-process.ts'
import { trustedSearchPath } from '../processes/programs.ts'
import { collectOutput, type ProgramEnd } from '../processes/run-program.ts'

/** A command that left a process behind with its output open is not waited for beyond this. */
const drainMs = 200
/** Bytes of each output. */
const outputMaxBytes = 256 * 1024
/** Tells the processes of one call from all others. */
const markVariable = 'CAISSON_HOOK_CALL'
/** What a command is given of the user's environment. */
const passedVariables = ['LANG', 'LC_ALL', 'LC_CTYPE', 'LOGNAME', 'TMPDIR', 'TZ', 'USER']

interface CommandOptions {
  readonly input: string
  /** Further variables. */
  readonly variables: Readonly<Record<string, string>>
  readonly timeoutMs: number
  readonly signal: AbortSignal
  /** The user's environment. Only some variables are passed on. */
  readonly env: Readonly<Record<string, string | undefined>>
}

/** The error says why there is no end of its own, without anything that the command printed. */
export async function runCommand(
  file: string,
  argv: readonly string[],
  { input, variables, timeoutMs, signal, env }: CommandOptions,
): Promise<Result<ProgramEnd, string>> {
  const home = env.HOME || homedir()
  const PATH = await trustedSearchPath(env.PATH)
  if (signal.aborted) return { ok: false, error: 'was not waited for' }
  const mark = randomBytes(16).toString('hex')
  const own = { ...pick(env), HOME: home, PATH, ...variables, [markVariable]: mark }
  const child = spawnHeld({ file, args: argv }, [], { env: own, cwd: home, talks: true })
  // Also what the command started and left behind.
  child.once('exit', () => killGroup(child))
  const kill = (): void => killGroup(child)
  const ran = await collectOutput(child, {
    input,
    timeoutMs,
    signal,
    maxBytes: outputMaxBytes,
    drainMs,
    kill,
  })
  // One that ended by itself may leave on purpose what it put into another group.
  if (!ran.ok) await killMarked(mark)
  return ran
}

/** Ends what a command that was given up started, also in other groups and sessions. Linux alone tells which that is. */
async function killMarked(mark: string): Promise<void> {
  if (process.platform !== 'linux') return
  const word = `${markVariable}=${mark}`
  const find = async (): Promise<number[]> => {
    const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
    const marked = await Promise.all(
      pids.map(async (pid) => {
        const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '')
        return environment.split('\0').includes(word) ? Number(pid) : undefined
      }),
    )
    return marked.filter((pid) => pid !== undefined)
  }
  // Again, as one that is being ended may have started another.
  for (let round = 0, pids = await find(); pids.length > 0 && round < 10; round += 1, pids = await find()) {
    for (const pid of pids) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // It ended by itself.
      }
    }
  }
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // No process of the group is left.
  }
}

function pick(env: CommandOptions['env']): Record<string, string> {
  const entries = passedVariables.flatMap((name) => {
    const value = env[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return Object.fromEntries(entries)
}
