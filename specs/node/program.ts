/**
 * Waits for a short-lived child process: passes its output on, and ends it at a deadline, at too much output and when it
 * is cancelled. How the child is started, and what ends with it, is the caller's.
 */
import type { ChildProcess } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { AwakeTimer } from './awake-timer.ts'

export interface ProgramWatch {
  /** Given on standard input, if that is a pipe. */
  readonly input?: string
  readonly timeoutMs: number
  readonly signal?: AbortSignal
  /** How long to wait for output after the exit: another process may keep the pipes open. */
  readonly drainMs: number
  /** Takes a piece of output. False: it is too much, and the program is ended. */
  take(stream: 'stdout' | 'stderr', bytes: Buffer): boolean
  /** Ends the program, with what it started. Harmless after its end. */
  kill(): void
}

export interface ProgramExit {
  /** Exit code; null when a signal ended it, or when it did not end after `kill`. */
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** Why it was ended by us; null: it was not. */
  readonly ended: 'timeout' | 'output' | 'cancelled' | null
}

/** @throws Node's error when the program cannot be started */
export async function awaitProgram(
  child: ChildProcess,
  { input, timeoutMs, signal, drainMs, take, kill }: ProgramWatch,
): Promise<ProgramExit> {
  const exited = Promise.withResolvers<Omit<ProgramExit, 'ended'>>()
  const killed = Promise.withResolvers<void>()
  let ended: ProgramExit['ended'] = null
  const end = (why: Exclude<ProgramExit['ended'], null>): void => {
    ended ??= why
    kill()
    killed.resolve()
  }
  const wait = () => sleep(drainMs, undefined, { ref: false })
  child.once('error', exited.reject)
  child.once('exit', (code, by) => exited.resolve({ code, signal: by }))
  const closed = new Promise((resolve) => child.once('close', resolve))
  for (const name of ['stdout', 'stderr'] as const)
    child[name]
      ?.on('error', () => undefined)
      .on('data', (bytes: Buffer) => take(name, bytes) || end('output'))
  // It may end without reading.
  child.stdin?.on('error', () => undefined).end(input ?? '')
  using _ = new AwakeTimer(timeoutMs, () => end('timeout'))
  const onAbort = (): void => end('cancelled')
  signal?.addEventListener('abort', onAbort, { once: true })
  if (signal?.aborted) onAbort()
  try {
    const unkillable = killed.promise.then(wait).then(() => ({ code: null, signal: null }))
    const exit = await Promise.race([exited.promise, unkillable])
    await Promise.race([closed, wait()])
    return { ...exit, ended }
  } finally {
    signal?.removeEventListener('abort', onAbort)
    child.stdout?.destroy()
    child.stderr?.destroy()
  }
}
