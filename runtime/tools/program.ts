/**
 * Runs one program for `shell_cmd`, without a shell. Ends it and its process group after its time limit, at its
 * output limit, and when it exits. Output is kept in bounded memory. Processes that leave the group (`setsid`) are
 * not tracked.
 */
import { spawn } from 'node:child_process'
import { awaitProgram, type ProgramExit } from '#specs/node/program.ts'
import { endWithUs, harmlessVariables, hasGroups, signalGroup } from '../processes/child-group.ts'
import { OutputKeeper } from './output.ts'

interface ProgramRequest {
  /** Looked up in PATH unless it contains `/`. */
  readonly command: string
  readonly args: readonly string[]
  readonly cwd: string
  readonly timeoutMs: number
}

export interface ProgramEnd extends Pick<ProgramExit, 'signal' | 'ended'> {
  /** Exit code; null when it was ended from outside. */
  readonly exitCode: number | null
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
  // Its descendants end with it.
  const kill = (): void => signalGroup(child, 'SIGKILL')
  child.once('exit', kill)
  endWithUs(child)
  const { code, ...exit } = await awaitProgram(child, {
    timeoutMs: request.timeoutMs,
    signal,
    drainMs: lastOutputMs,
    kill,
    take: (stream, bytes) => {
      const keeper = stream === 'stdout' ? stdout : stderr
      keeper.take(bytes)
      return stdout.totalBytes + stderr.totalBytes <= outputMaxBytes
    },
  })
  const durationMs = Math.round(performance.now() - startedAt)
  return { ...exit, exitCode: code, stdout: stdout.text(), stderr: stderr.text(), durationMs }
}
