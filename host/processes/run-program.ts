/**
 * Runs a short-lived program of this machine and reads what it prints: no shell, a deadline, bounded output. Where the
 * program comes from is decided elsewhere (programs.ts).
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { errorMessage } from '#specs/errors.ts'
import { awaitProgram, type ProgramWatch } from '#specs/node/program.ts'
import type { Result } from '#specs/protocol/error.ts'

/** A program that left a process behind with its output open is not waited for beyond this. */
const DRAIN_MS = 500

interface ProgramOptions extends Pick<ProgramWatch, 'input' | 'timeoutMs'> {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd?: string
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
  { env, cwd, ...watch }: ProgramOptions,
): Promise<Result<ProgramEnd, string>> {
  const child = spawn(file, [...argv], { env: { ...env }, ...(cwd === undefined ? {} : { cwd }) })
  return await collectOutput(child, { ...watch, drainMs: DRAIN_MS, kill: () => child.kill('SIGKILL') })
}

/** The output of a child with pipes, as that of {@link runProgram}. */
export async function collectOutput(
  child: ChildProcess,
  { maxBytes, ...watch }: Omit<ProgramWatch, 'take'> & Pick<ProgramOptions, 'maxBytes'>,
): Promise<Result<ProgramEnd, string>> {
  const outputs = { stdout: { bytes: 0, parts: [] as Buffer[] }, stderr: { bytes: 0, parts: [] as Buffer[] } }
  const take: ProgramWatch['take'] = (stream, part) => {
    const output = outputs[stream]
    output.bytes += part.length
    if (output.bytes > maxBytes) return false
    output.parts.push(part)
    return true
  }
  try {
    const { code, ended } = await awaitProgram(child, { ...watch, take })
    const why = {
      timeout: `did not end within ${watch.timeoutMs / 1000} s`,
      output: `printed more than ${maxBytes} bytes`,
      cancelled: 'was not waited for',
    }
    if (ended !== null) return { ok: false, error: why[ended] }
    const [stdout, stderr] = [outputs.stdout, outputs.stderr].map(({ parts }) =>
      Buffer.concat(parts).toString('utf8'),
    ) as [string, string]
    return { ok: true, value: { code, stdout, stderr } }
  } catch (error) {
    return { ok: false, error: `cannot be run: ${errorMessage(error)}` }
  }
}
