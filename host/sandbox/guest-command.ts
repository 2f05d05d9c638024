/**
 * One command in a VM, from its start to its end: input, output as it comes, a time limit. Keeps a bounded part of the
 * output. A command that fails is a value; only a caller's mistake, a lost VM and a cancelled call are thrown.
 */
import { constants } from 'node:os'
import { StringDecoder } from 'node:string_decoder'
import * as z from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Shell, ShellEnd } from '../control/shell.ts'
import type { VmClient } from '../control/vm-client.ts'
import {
  checkArguments,
  FunctionOption,
  type Names,
  OptionsError,
  SignalOption,
} from '../files/check-arguments.ts'

/** Where the workspace is in the guest. */
export const guestWorkspace = '/mnt/workspace'

export interface ExecOptions {
  /** The working directory: absolute, or below /mnt/workspace. Default /mnt/workspace. */
  readonly cwd?: string
  /** Variables over those that every command has. */
  readonly env?: Readonly<Record<string, string>>
  /** Standard input. Absent: none. */
  readonly input?: string | Uint8Array
  /** Ends the command; `exec` then rejects with `cancelled`. */
  readonly signal?: AbortSignal
  /** Milliseconds after which the command is ended. Absent: no limit. */
  readonly timeoutMs?: number
  /** Bytes of each output that the result keeps, at most 64 MiB. Default 1 MiB. */
  readonly maxOutputBytes?: number
  /** Called with all of the output as it comes. The command waits while a promise that it returns is pending. */
  readonly onStdout?: (text: string) => unknown
  readonly onStderr?: (text: string) => unknown
}

export interface ExecResult {
  /**
   * As of a shell: 128 and the signal's number where one ended the command, 127 where it is not there. Null:
   * the time limit ended it.
   */
  readonly exitCode: number | null
  /** Whether `timeoutMs` ended it. */
  readonly timedOut: boolean
  /** Whether the guest's kernel killed a process of it because memory ran out. */
  readonly outOfMemory: boolean
  /** The first `maxOutputBytes` as UTF-8. Text of the guest: make it safe before a terminal or a page shows it. */
  readonly stdout: string
  readonly stderr: string
  /** Whether an output was longer than `maxOutputBytes`. */
  readonly truncated: boolean
}

/** Bytes of program, arguments and variables together: escaped, they fit into one message to the guest. */
const commandMaxBytes = 128 * 1024
const argumentsMaxCount = 800
const variablesMaxCount = 200
const defaultOutputBytes = 1024 * 1024
const outputMaxBytes = 64 * 1024 * 1024

const guestText = z
  .string()
  .refine((text) => !text.includes('\0') && text.isWellFormed(), 'expected text without NUL')
export const GuestBytes = z.union([z.string(), z.instanceof(Uint8Array)], {
  error: 'expected text or a Uint8Array',
})

const Command = z.union([guestText.min(1), z.array(guestText).min(1).max(argumentsMaxCount)], {
  error: `expected a command as text, or a list of 1 to ${argumentsMaxCount} texts`,
})
const Options = z.strictObject({
  cwd: guestText.min(1).max(limits.pathMaxBytes).optional(),
  env: z
    .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'expected the name of a variable'), guestText)
    .refine((env) => Object.keys(env).length <= variablesMaxCount, `expected at most ${variablesMaxCount}`)
    .optional(),
  input: GuestBytes.optional(),
  signal: SignalOption,
  timeoutMs: z.int().min(1).max(0x7fff_ffff).optional(),
  maxOutputBytes: z.int().min(0).max(outputMaxBytes).optional(),
  onStdout: FunctionOption,
  onStderr: FunctionOption,
})
const names: Names = { '': Object.keys(Options.shape) }

/** What is read of a VM. */
export type ShellOpener = Pick<VmClient, 'openShell'>

/** Why a command ended that did not end itself. */
type Stopped = 'timeout' | 'cancelled' | 'failed'

/**
 * @param command text for bash, or program and arguments, which no shell reads
 * @throws {CaissonError} `invalid_options`, `cancelled`, `limit_reached`, `agent_lost`
 */
export async function execute(
  vm: ShellOpener,
  command: string | readonly string[],
  options: ExecOptions = {},
): Promise<ExecResult> {
  checkArguments('the command cannot be run', Command, command)
  checkArguments('the options of the command cannot be used', Options, options, names)
  const { maxOutputBytes = defaultOutputBytes, onStdout, onStderr, input, signal, timeoutMs } = options
  const stdout = new Output(maxOutputBytes, onStdout)
  const stderr = new Output(maxOutputBytes, onStderr)
  const { end, timedOut } = await runInGuest(vm, argvOf(command, options), {
    input,
    signal,
    timeoutMs,
    onStdout: (bytes) => stdout.take(bytes),
    onStderr: (bytes) => stderr.take(bytes),
  })
  await Promise.all([stdout.end(), stderr.end()])
  return {
    exitCode: end === null ? null : exitCodeOf(end),
    timedOut,
    outOfMemory: end?.outOfMemory ?? false,
    stdout: stdout.text(),
    stderr: stderr.text(),
    truncated: stdout.truncated || stderr.truncated,
  }
}

/** A signal to a program of the command is an exit code already; one to all of it is reported by name. */
function exitCodeOf(end: Exclude<ShellEnd, { kind: 'lost' }>): number {
  if (end.kind === 'exited') return end.exitCode
  return 128 + ((constants.signals as Readonly<Record<string, number>>)[end.signal] ?? 0)
}

interface GuestRun {
  readonly input?: string | Uint8Array | undefined
  readonly signal?: AbortSignal | undefined
  readonly timeoutMs?: number | undefined
  readonly onStdout: (bytes: Buffer) => void | Promise<void>
  readonly onStderr: (bytes: Buffer) => void | Promise<void>
}

interface GuestRunEnd {
  /** Null where the time limit ended it. */
  readonly end: Exclude<ShellEnd, { kind: 'lost' }> | null
  readonly timedOut: boolean
}

/** Runs a program on pipes and hands on all its output. @throws {CaissonError} */
export async function runInGuest(
  vm: ShellOpener,
  argv: readonly string[],
  { input, signal, timeoutMs, onStdout, onStderr }: GuestRun,
): Promise<GuestRunEnd> {
  requireGoing(signal)
  const opened = vm.openShell({ argv: [...argv], terminal: null })
  let stopped: Stopped | null = null
  const stop = (why: Stopped): void => {
    stopped ??= why
    opened.then(
      (shell) => shell.kill(),
      () => undefined,
    )
  }
  const onAbort = (): void => stop('cancelled')
  signal?.addEventListener('abort', onAbort, { once: true })
  const timer = timeoutMs === undefined ? undefined : setTimeout(() => stop('timeout'), timeoutMs)
  try {
    const shell = await opened
    shell.stdin.end(input)
    const copy = async (from: Shell['stdout'], to: GuestRun['onStdout']): Promise<void> => {
      try {
        for await (const piece of from) await to(piece as Buffer)
      } catch (error) {
        stop('failed')
        if (error instanceof CaissonError) throw error
        const message = `a callback for its output threw, so the command was ended: ${errorMessage(error)}`
        throw new CaissonError('cancelled', message, { cause: error })
      }
    }
    await settleAll([copy(shell.stdout, onStdout), copy(shell.stderr, onStderr)])
    const end = await shell.ended
    if (end.kind !== 'lost') return { end, timedOut: false }
    if ((stopped as Stopped | null) === 'timeout') return { end: null, timedOut: true }
    requireGoing(signal)
    throw lostError(end)
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', onAbort)
  }
}

function requireGoing(signal: AbortSignal | undefined): void {
  if (signal?.aborted !== true) return
  const why = errorMessage(signal.reason)
  throw new CaissonError('cancelled', `cancelled by the caller: ${why}`, { cause: signal.reason })
}

/** Waits for all, then throws what the first one threw. */
async function settleAll(works: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(works)) if (result.status === 'rejected') throw result.reason
}

function lostError({ code, message }: Extract<ShellEnd, { kind: 'lost' }>): CaissonError {
  if (code !== 'busy') return new CaissonError('agent_lost', `the command was cut off: ${message}`)
  return new CaissonError('limit_reached', `the command did not start: ${message}`, {
    remedy: 'wait for the end of another command of this sandbox',
  })
}

/** Sets directory and variables, then becomes the command. */
const prelude =
  'cd -P -- "$1" || exit 126; shift; while [ "$1" != -- ]; do export "$1"; shift; done; shift; exec "$@"'

/** @throws {OptionsError} for a command that is too large */
function argvOf(command: string | readonly string[], { cwd, env = {} }: ExecOptions): string[] {
  const program = typeof command === 'string' ? ['/bin/bash', '-c', command] : [...command]
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const bytes = [...program, ...variables].reduce((sum, text) => sum + Buffer.byteLength(text) + 1, 0)
  if (bytes > commandMaxBytes) {
    const message = `expected at most ${commandMaxBytes} bytes with the variables, got ${bytes}; pass data as input`
    throw new OptionsError('the command cannot be run', [{ field: '', message }])
  }
  if (cwd === undefined && variables.length === 0) return program
  const directory =
    cwd === undefined ? guestWorkspace : cwd.startsWith('/') ? cwd : `${guestWorkspace}/${cwd}`
  return ['/bin/sh', '-c', prelude, 'sh', directory, ...variables, '--', ...program]
}

/** One output: handed on as text, its beginning kept. */
class Output {
  readonly #maxBytes: number
  readonly #hand: ((text: string) => unknown) | undefined
  readonly #decoder = new StringDecoder('utf8')
  readonly #kept: Buffer[] = []
  #bytes = 0
  truncated = false

  constructor(maxBytes: number, hand: ((text: string) => unknown) | undefined) {
    this.#maxBytes = maxBytes
    this.#hand = hand
  }

  async take(bytes: Buffer): Promise<void> {
    const part = bytes.subarray(0, this.#maxBytes - this.#bytes)
    if (part.length > 0) this.#kept.push(part)
    this.#bytes += part.length
    if (part.length < bytes.length) this.truncated = true
    if (this.#hand !== undefined) await this.#pass(this.#decoder.write(bytes))
  }

  async end(): Promise<void> {
    await this.#pass(this.#decoder.end())
  }

  text(): string {
    const bytes = Buffer.concat(this.#kept)
    // The last character may be cut.
    return this.truncated ? new StringDecoder('utf8').write(bytes) : bytes.toString()
  }

  async #pass(text: string): Promise<void> {
    if (text !== '') await this.#hand?.(text)
  }
}
