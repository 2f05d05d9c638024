/**
 * Runs one program for `shell_cmd`, without a shell. Ends it and its process group after its time limit, at its
 * output limit, and when it exits. Output is kept in bounded memory. Processes that leave the group (`setsid`) are
 * not tracked.
 */
import { spawn } from 'node:child_process'
import { endWithUs, harmlessVariables, hasGroups, signalGroup } from '../processes/child-group.ts'
import { OutputKeeper } from './output.ts'

export interface ProgramRequest {
  /** Looked up in PATH unless it contains `/`. */
  readonly command: string
  readonly args: readonly string[]
  readonly cwd: string
  readonly timeoutMs: number
}

export interface ProgramEnd {
  /** Exit code; null when it was ended from outside. */
  readonly exitCode: number | null
  readonly signal: string | null
  /** Why it was ended by us; null: it was not. */
  readonly ended: 'timeout' | 'output' | 'cancelled' | null
  readonly stdout: string
  readonly stderr: string
  readonly durationMs: number
}

const stdoutBounds = { headBytes: 14 * 1024, tailBytes: 14 * 1024 }
const stderrBounds = { headBytes: 4 * 1024, tailBytes: 4 * 1024 }
const outputMaxBytes = 16 * 1024 * 1024
/** How long to wait for remaining output, in case another process keeps its pipes open. */
const lastOutputMs = 250

/** Rejects with Node's error when the program cannot be started. */
export async function runProgram(request: ProgramRequest, signal: AbortSignal): Promise<ProgramEnd> {
  const startedAt = performance.now()
  const child = spawn(request.command, [...request.args], {
    cwd: request.cwd,
    env: harmlessVariables(),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: hasGroups,
    windowsHide: true,
  })
  const stdout = new OutputKeeper(stdoutBounds)
  const stderr = new OutputKeeper(stderrBounds)
  let ended: ProgramEnd['ended'] = null
  const end = (why: Exclude<ProgramEnd['ended'], null>): void => {
    ended ??= why
    signalGroup(child, 'SIGKILL')
  }
  const take = (keeper: OutputKeeper) => (bytes: Uint8Array) => {
    keeper.take(bytes)
    if (stdout.totalBytes + stderr.totalBytes > outputMaxBytes) end('output')
  }
  child.stdout.on('data', take(stdout))
  child.stderr.on('data', take(stderr))
  const exited = Promise.withResolvers<{ exitCode: number | null; signal: string | null }>()
  const closed = Promise.withResolvers<void>()
  child.once('error', exited.reject)
  child.once('exit', (exitCode, by) => exited.resolve({ exitCode, signal: by }))
  child.once('close', () => closed.resolve())
  endWithUs(child)
  const timer = setTimeout(() => end('timeout'), request.timeoutMs)
  const onAbort = (): void => end('cancelled')
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) onAbort()
  try {
    const how = await exited.promise
    // Its descendants end with it.
    signalGroup(child, 'SIGKILL')
    const late = setTimeout(() => closed.resolve(), lastOutputMs)
    await closed.promise
    clearTimeout(late)
    const durationMs = Math.round(performance.now() - startedAt)
    return { ...how, ended, stdout: stdout.text(), stderr: stderr.text(), durationMs }
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
    child.stdout.destroy()
    child.stderr.destroy()
  }
}
