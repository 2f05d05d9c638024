/**
 * Runs the command of a hook: JSON in, bounded output, a deadline, and an end for every process of its group however it ends.
 * No shell; never in a workspace; without the keys and variables of this process.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { homedir } from 'node:os'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Result } from '#specs/protocol/error.ts'
import { trustedSearchPath } from '../programs/programs.ts'

/** A command that left a process behind with its output open is not waited for beyond this. */
const drainMs = 200
/** Bytes of each output. */
const outputMaxBytes = 256 * 1024
/** What a command is given of the user's environment. */
const passedVariables = ['LANG', 'LC_ALL', 'LC_CTYPE', 'LOGNAME', 'TMPDIR', 'TZ', 'USER']

export interface CommandEnd {
  /** Null when a signal ended it. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface CommandOptions {
  readonly input: string
  /** Further variables. */
  readonly variables: Readonly<Record<string, string>>
  readonly timeoutMs: number
  readonly signal: AbortSignal
  /** The user's environment, of which a few are passed on. */
  readonly env: Readonly<Record<string, string | undefined>>
}

/** The error says why there is no end of its own, without anything that the command printed. */
export async function runCommand(
  file: string,
  argv: readonly string[],
  { input, variables, timeoutMs, signal, env }: CommandOptions,
): Promise<Result<CommandEnd, string>> {
  const home = env.HOME || homedir()
  const PATH = await trustedSearchPath(env.PATH)
  if (signal.aborted) return { ok: false, error: 'was not waited for' }
  const child = spawn(file, [...argv], {
    cwd: home,
    env: { ...pick(env), HOME: home, PATH, ...variables },
    // A group of its own, so that its end is the end of whatever it started.
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  const failed = Promise.withResolvers<Result<CommandEnd, string>>()
  const fail = (error: string): void => failed.resolve({ ok: false, error })
  const timer = setTimeout(() => fail(`did not end within ${timeoutMs / 1000} s`), timeoutMs)
  const onAbort = (): void => fail('was not waited for')
  signal.addEventListener('abort', onAbort, { once: true })
  child.on('error', (error) => fail(`cannot be run: ${error.message}`))
  // It may end without reading.
  child.stdin.on('error', () => undefined)
  child.stdin.end(input)
  const tooLong = (): void => fail(`printed more than ${outputMaxBytes} bytes`)
  const [stdout, stderr] = [collect(child.stdout, tooLong), collect(child.stderr, tooLong)]
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const ended = new Promise<Result<CommandEnd, string>>((resolve) =>
    child.once('exit', async (code) => {
      killGroup(child)
      await Promise.race([closed, sleep(drainMs)])
      resolve({ ok: true, value: { code, stdout: stdout(), stderr: stderr() } })
    }),
  )
  try {
    return await Promise.race([ended, failed.promise])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
    if (child.exitCode === null && child.signalCode === null) killGroup(child)
    child.stdout.destroy()
    child.stderr.destroy()
  }
}

/** Also what the command started and left behind. */
function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // Nobody of the group is left.
  }
}

function pick(env: CommandOptions['env']): Record<string, string> {
  const entries = passedVariables.flatMap((name) => {
    const value = env[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return Object.fromEntries(entries)
}

function collect(stream: Readable, onMore: () => void): () => string {
  const parts: Buffer[] = []
  let length = 0
  stream.on('error', () => undefined)
  stream.on('data', (part: Buffer) => {
    length += part.length
    if (length > outputMaxBytes) onMore()
    else parts.push(part)
  })
  return () => Buffer.concat(parts).toString('utf8')
}
