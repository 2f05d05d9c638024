/**
 * Runs a short-lived program of this machine and reads what it prints: no shell, a deadline, bounded output. Where the
 * program comes from is decided elsewhere (programs.ts).
 */
import { spawn } from 'node:child_process'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Result } from '#specs/protocol/error.ts'

/** A program that left a process behind with its output open is not waited for beyond this. */
const DRAIN_MS = 500

interface ProgramOptions {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd?: string
  /** Given on standard input, which is empty otherwise. */
  readonly input?: string
  readonly timeoutMs: number
  /** Bytes of each output; more ends the program. */
  readonly maxBytes: number
}

export interface ProgramEnd {
  /** Null when a signal ended it. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** The error says why there is no end of its own, without anything that the program printed. */
export async function runProgram(
  file: string,
  argv: readonly string[],
  { env, cwd, input, timeoutMs, maxBytes }: ProgramOptions,
): Promise<Result<ProgramEnd, string>> {
  const child = spawn(file, [...argv], {
    env: { ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
    ...(cwd === undefined ? {} : { cwd }),
  })
  const failed = Promise.withResolvers<Result<ProgramEnd, string>>()
  const fail = (error: string): void => {
    child.kill('SIGKILL')
    failed.resolve({ ok: false, error })
  }
  const timer = setTimeout(() => fail(`did not end within ${timeoutMs / 1000} s`), timeoutMs)
  child.on('error', (error) => fail(`cannot be run: ${error.message}`))
  // It may end without reading.
  child.stdin.on('error', () => undefined)
  child.stdin.end(input ?? '')
  const tooLong = (): void => fail(`printed more than ${maxBytes} bytes`)
  const [stdout, stderr] = [
    collect(child.stdout, maxBytes, tooLong),
    collect(child.stderr, maxBytes, tooLong),
  ]
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const ended = new Promise<Result<ProgramEnd, string>>((resolve) =>
    child.once('exit', async (code) => {
      await Promise.race([closed, sleep(DRAIN_MS)])
      resolve({ ok: true, value: { code, stdout: stdout(), stderr: stderr() } })
    }),
  )
  try {
    return await Promise.race([ended, failed.promise])
  } finally {
    clearTimeout(timer)
    child.stdout.destroy()
    child.stderr.destroy()
  }
}

function collect(stream: Readable, maxBytes: number, onMore: () => void): () => string {
  const parts: Buffer[] = []
  let length = 0
  stream.on('error', () => undefined)
  stream.on('data', (part: Buffer) => {
    length += part.length
    if (length > maxBytes) onMore()
    else parts.push(part)
  })
  return () => Buffer.concat(parts).toString('utf8')
}
