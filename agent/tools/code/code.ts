/**
 * The tools that run programs: `run_bash`, `run_python` and `run_javascript`. Owns limits on time, memory and
 * processes, and how output is kept and shown. A program that fails, is killed or never stops is a value, not a tool
 * error.
 */
import type { Buffer } from 'node:buffer'
import { availableParallelism } from 'node:os'
import * as z from 'zod'
import { type OutputBounds, OutputKeeper } from '#runtime/tools/output.ts'
import type { Result, ToolErrorCode } from '#specs/protocol/error.ts'
import type {
  ExecRequest,
  Helper,
  HelperError,
  HelperErrorCode,
  HelperExecResult,
  HelperResult,
} from '../../link/root-helper.ts'
import type { ProgramNetwork } from '../../proxy/proxy.ts'
import { defineTool, type Tool, type ToolContext, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import type { RunSandboxed } from '../files/search.ts'
import { javascriptCommand } from './javascript-runner.ts'
import { ProgramChannel } from './program-channel.ts'
import { ProgramTime } from './program-time.ts'
import { pythonCommand } from './python-runner.ts'

const KiB = 1024
const MiB = 1024 * KiB
const DEFAULT_TIMEOUT_MS = 120_000
const MAX_TIMEOUT_MS = 600_000
/** Of a program that calls tools: the agent keeps its time, which stands still meanwhile. */
const HELPER_MAX_WALL_MS = 24 * 3_600_000
/** Free space below which a failed program's result mentions the full disk, in bytes. */
const DISK_FULL_BYTES = 1 * MiB

/** Limits, each with a default; sizes in bytes. */
export interface CodeToolsOptions {
  /** Kept standard output. Default: the first and last 24 KiB. */
  readonly stdout?: OutputBounds
  /** Kept standard error. Default: the first 4 KiB and the last 8 KiB. */
  readonly stderr?: OutputBounds
  /** Output shown during a call, both streams together. Default 256 KiB. */
  readonly shownMaxBytes?: number
  /** Output after which a program is ended. Default 64 MiB. */
  readonly outputMaxBytes?: number
  /** Memory of one call with all its processes. Default 768 MiB; the VM's own limit may be lower. */
  readonly memoryBytes?: number
  /** Maximum processes and threads of one call. Default 512. */
  readonly pids?: number
  /** CPU share in percent; 100 is one core. Default all cores. */
  readonly cpuPercent?: number
  /** The view that programs use as their workspace; absent: the workspace itself. */
  readonly view?: string
  /** Network access of programs; absent: none. */
  readonly network?: ProgramNetwork
}

const defaults = {
  stdout: { headBytes: 24 * KiB, tailBytes: 24 * KiB },
  stderr: { headBytes: 4 * KiB, tailBytes: 8 * KiB },
  shownMaxBytes: 256 * KiB,
  outputMaxBytes: 64 * MiB,
  memoryBytes: 768 * MiB,
  pids: 512,
} as const

/** Default limits of one program with all its processes. */
export function defaultProgramLimits(): Pick<ExecRequest['limits'], 'memoryBytes' | 'pids' | 'cpuPercent'> {
  const { memoryBytes, pids } = defaults
  return { memoryBytes, pids, cpuPercent: availableParallelism() * 100 }
}

/** Makes programs non-interactive and keeps caches out of the workspace. */
export const programEnvironment = {
  PYTHONDONTWRITEBYTECODE: '1',
  PYTHONUNBUFFERED: '1',
  GIT_TERMINAL_PROMPT: '0',
  PAGER: 'cat',
  GIT_PAGER: 'cat',
} as const

const timeoutMs = z
  .int()
  .min(1)
  .max(MAX_TIMEOUT_MS)
  .default(DEFAULT_TIMEOUT_MS)
  .describe('Milliseconds after which it is ended with everything that it started')

const bashInput = z.strictObject({
  command: z.string().min(1).max(100_000).describe('A command line or script for bash'),
  timeoutMs,
})

const codeInput = (language: string, place: string) =>
  z.strictObject({
    code: z.string().min(1).max(200_000).describe(`A ${language} program`),
    args: z.array(z.string().max(32_768)).max(256).default([]).describe(place),
    timeoutMs,
  })
const pythonInput = codeInput('Python', 'sys.argv[1:]')
const javascriptInput = codeInput('JavaScript', 'process.argv.slice(2)')

const outputSchema = z.strictObject({
  /** Output as text; long output is cut in the middle with a note. */
  stdout: z.string(),
  stderr: z.string(),
  /** Exit code; null when the program was ended from outside. */
  exitCode: z.int().nullable(),
  /** What ended it from outside. */
  signal: z.string().nullable(),
  timedOut: z.boolean(),
  oomKilled: z.boolean(),
  /** Number of forks refused at the process limit. */
  pidsRefused: z.int().min(0),
  /** Whether it was ended for too much output. */
  outputExceeded: z.boolean(),
  /** Whether it failed while the workspace's disk was full. */
  diskFull: z.boolean(),
  /** Connections that were refused while it ran, one line each; programs such as git hide the reason. */
  refusedConnections: z.array(z.string().max(700)).max(32),
  durationMs: z.int().min(0),
})
type CodeOutput = z.output<typeof outputSchema>

/** Creates the tools over one helper. */
export function createCodeTools(helper: Helper, options: CodeToolsOptions = {}): Tool[] {
  const common = {
    outputSchema,
    // Their effects in the VM can be undone, and approval would not stop a script with the same effect.
    requiresApproval: false,
    readOnly: false,
    // A program starts others itself.
    inPrograms: false,
    // A read-only workspace prevents the changes that they could make.
    mayPlan: true,
    render: (value: CodeOutput) => describeOutput(value, options),
  }
  const where =
    'Each call starts anew in the workspace, with a clean environment and no terminal; /tmp and the home directory last. Output is cut in its middle when it is long. What it leaves running is ended with it. The network is what the policy allows, by http and https through the proxy that the environment names; what was refused is listed at the end, with how to ask for it.'
  return [
    defineTool({
      ...common,
      name: 'run_bash',
      description: `Runs a bash command and gives its output and exit code. ${where}`,
      inputSchema: bashInput,
      execute: ({ command, timeoutMs: wallMs }, context) =>
        run(helper, { argv: ['/bin/bash', '-c', command], wallMs }, options, context),
    }),
    defineTool({
      ...common,
      name: 'run_python',
      description: `Runs a Python 3.11 program (standard library) and gives its output and exit code. For many calls of tools, write one program: your other tools are functions of \`tools\`, such as tools.read_file(path='a.txt')['content']. They return data, raise tools.ToolError, and only what you print comes back; tools.NAME.__doc__ says what one returns. ${where}`,
      inputSchema: pythonInput,
      execute: ({ code, args, timeoutMs: wallMs }, context) =>
        run(helper, { argv: pythonCommand(args), stdin: code, wallMs }, options, context),
    }),
    defineTool({
      ...common,
      name: 'run_javascript',
      description: `Runs JavaScript in Node 24, an ES module or CommonJS, and gives its output and exit code. Your other tools are functions of \`tools\` as in run_python, such as (await tools.read_file({ path: 'a.txt' })).content; tools.NAME.doc says what one returns. Otherwise it is as run_python.`,
      inputSchema: javascriptInput,
      execute: ({ code, args, timeoutMs: wallMs }, context) =>
        run(helper, { argv: javascriptCommand(args), stdin: code, wallMs }, options, context),
    }),
  ]
}

/** Runs the file tools' own programs in the sandbox, with raw output and no input. */
export function createRunSandboxed(helper: Helper, options: CodeToolsOptions = {}): RunSandboxed {
  return async ({ argv, timeoutMs: wallMs }, { signal, onOutput }) => {
    const request = requestOf({ argv, wallMs }, options)
    const ended = await helper.execInSandbox(request, { signal, onOutput })
    return ended.ok ? toolSuccess(ended.value) : notRun(ended.error)
  }
}

interface Program {
  readonly argv: readonly string[]
  readonly stdin?: string
  readonly wallMs: number
}

function requestOf(
  { argv, stdin, wallMs }: Program,
  options: CodeToolsOptions,
  env: Readonly<Record<string, string>> = {},
): ExecRequest {
  return {
    argv,
    ...(options.view === undefined ? {} : { view: options.view }),
    ...(stdin === undefined ? {} : { stdin }),
    env: { ...programEnvironment, ...env },
    limits: {
      ...defaultProgramLimits(),
      ...(options.memoryBytes === undefined ? {} : { memoryBytes: options.memoryBytes }),
      ...(options.pids === undefined ? {} : { pids: options.pids }),
      ...(options.cpuPercent === undefined ? {} : { cpuPercent: options.cpuPercent }),
      wallMs,
    },
  }
}

async function run(
  helper: Helper,
  program: Program,
  options: CodeToolsOptions,
  context: ToolContext,
): Promise<Result<CodeOutput>> {
  const startedAt = performance.now()
  const tooMuch = new AbortController()
  const output = new Output(options, context, () => tooMuch.abort())
  const network = await options.network?.prepare()
  const refusals = options.network?.watch()
  const ended = await perform(program, context, async ({ wallMs, env }, timeOver) => {
    const request = requestOf({ ...program, wallMs }, options, { ...network?.env, ...env })
    const result = await helper.execInSandbox(request, {
      signal: AbortSignal.any([context.signal, tooMuch.signal, timeOver]),
      onOutput: (stream, bytes) => output.take(stream, bytes),
    })
    return timeOver.aborted && !result.ok
      ? { ok: true, value: { ...endedByUs(performance.now() - startedAt), timedOut: true } }
      : result
  })
  if (context.signal.aborted) return toolFailure('cancelled', 'The call was cancelled.')
  output.finish()
  const outputExceeded = tooMuch.signal.aborted
  if (!ended.ok && !outputExceeded) return notRun(ended.error)
  const result = ended.ok ? ended.value : endedByUs(performance.now() - startedAt)
  context.tell?.({ exitCode: result.exitCode, signal: result.signal, ...output.dropped })
  const diskFull = result.exitCode !== 0 && (await isDiskFull(helper))
  const refused = refusals?.list() ?? []
  const refusedConnections = network?.problem == null ? refused : [network.problem, ...refused]
  return toolSuccess({ ...output.texts(), ...result, outputExceeded, diskFull, refusedConnections })
}

/** Runs the program; one of a language that has the tools as functions can call them until it ends. */
async function perform(
  { wallMs, stdin }: Program,
  { program }: ToolContext,
  execute: (
    parts: { readonly wallMs: number; readonly env: Readonly<Record<string, string>> },
    timeOver: AbortSignal,
  ) => Promise<HelperResult<HelperExecResult>>,
): Promise<HelperResult<HelperExecResult>> {
  if (program === undefined || stdin === undefined) return await execute({ wallMs, env: {} }, never)
  using time = new ProgramTime(wallMs)
  await using channel = await ProgramChannel.open(program, (isBusy) => time.hold(isBusy))
  return await execute({ wallMs: HELPER_MAX_WALL_MS, env: channel.env }, time.signal)
}

const never = new AbortController().signal

/** The two streams of one call: kept for the result, shown while they arrive. */
class Output {
  readonly #kept: Record<'stdout' | 'stderr', OutputKeeper>
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  readonly #context: ToolContext
  readonly #onTooMuch: () => void
  readonly #maxBytes: number
  #mayShow: number

  constructor(options: CodeToolsOptions, context: ToolContext, onTooMuch: () => void) {
    this.#kept = {
      stdout: new OutputKeeper(options.stdout ?? defaults.stdout),
      stderr: new OutputKeeper(options.stderr ?? defaults.stderr),
    }
    this.#context = context
    this.#onTooMuch = onTooMuch
    this.#maxBytes = options.outputMaxBytes ?? defaults.outputMaxBytes
    this.#mayShow = options.shownMaxBytes ?? defaults.shownMaxBytes
  }

  take(stream: 'stdout' | 'stderr', bytes: Buffer): void {
    this.#kept[stream].take(bytes)
    if (this.totalBytes > this.#maxBytes) this.#onTooMuch()
    if (this.#mayShow <= 0) return
    const shown = bytes.subarray(0, this.#mayShow)
    this.#mayShow -= shown.length
    this.#show(stream, this.#decoders[stream].decode(shown, { stream: true }))
    if (this.#mayShow <= 0) this.#show(stream, '\n[… what follows is not shown while the call runs …]\n')
  }

  /** Shows an incomplete character that a decoder still holds. */
  finish(): void {
    for (const stream of ['stdout', 'stderr'] as const) this.#show(stream, this.#decoders[stream].decode())
  }

  get totalBytes(): number {
    return this.#kept.stdout.totalBytes + this.#kept.stderr.totalBytes
  }

  /** How much there was, if not all of it is kept. */
  get dropped(): { outputBytes?: number } {
    const isWhole = this.#kept.stdout.isWhole && this.#kept.stderr.isWhole
    return isWhole ? {} : { outputBytes: this.totalBytes }
  }

  texts(): { stdout: string; stderr: string } {
    return { stdout: this.#kept.stdout.text(), stderr: this.#kept.stderr.text() }
  }

  #show(stream: 'stdout' | 'stderr', text: string): void {
    if (text !== '') this.#context.emitOutput(stream, text)
  }
}

function endedByUs(durationMs: number): HelperExecResult {
  const ended = { exitCode: null, signal: 'SIGKILL', timedOut: false, oomKilled: false, pidsRefused: 0 }
  return { ...ended, durationMs: Math.round(durationMs) }
}

async function isDiskFull(helper: Helper): Promise<boolean> {
  const status = await helper.readStatus()
  return status.ok && status.value.scratch.freeBytes < DISK_FULL_BYTES
}

const toolCodes: Record<HelperErrorCode, { code: ToolErrorCode; retryable: boolean }> = {
  bad_request: { code: 'invalid_input', retryable: false },
  not_ready: { code: 'unavailable', retryable: true },
  busy: { code: 'unavailable', retryable: true },
  no_space: { code: 'no_space', retryable: false },
  internal: { code: 'internal', retryable: false },
  cancelled: { code: 'cancelled', retryable: false },
  unavailable: { code: 'unavailable', retryable: true },
}

/** The failure of a call whose program could not be run. */
export function notRun(error: HelperError): { ok: false; error: ReturnType<typeof toolFailure>['error'] } {
  const { code, retryable } = toolCodes[error.code]
  return toolFailure(code, `The program could not be run: ${error.message}`, retryable)
}

/** The output, then standard error, then notes about the end in brackets. */
function describeOutput(value: CodeOutput, options: CodeToolsOptions): string {
  const parts = [value.stdout.trimEnd()]
  if (value.stderr.trim() !== '') parts.push(`[standard error]\n${value.stderr.trimEnd()}`)
  const refused = value.refusedConnections.map((line) => `no connection: ${line}`)
  parts.push(...[...refused, ...describeEnd(value, options)].map((note) => `[${note}]`))
  return parts.filter((part) => part !== '').join('\n')
}

function describeEnd(value: CodeOutput, options: CodeToolsOptions): string[] {
  const notes: string[] = []
  const seconds = (value.durationMs / 1000).toFixed(1)
  if (value.timedOut)
    notes.push(`ended after ${seconds} s because its time was over, with everything it had started`)
  if (value.oomKilled)
    notes.push(
      `ended because memory ran out (at most ${(options.memoryBytes ?? defaults.memoryBytes) / MiB} MiB for one call)`,
    )
  if (value.outputExceeded) notes.push('ended because it did not stop writing output')
  if (value.pidsRefused > 0)
    notes.push(
      `${value.pidsRefused} forks were refused: at most ${options.pids ?? defaults.pids} processes and threads at once`,
    )
  if (value.diskFull) notes.push('the disk is full: delete what is not needed')
  if (value.exitCode !== null && !value.timedOut) notes.push(describeExit(value.exitCode, seconds))
  else if (notes.length === 0)
    notes.push(`ended by ${value.signal ?? 'an unknown signal'} after ${seconds} s`)
  return notes
}

function describeExit(exitCode: number, seconds: string): string {
  const signal = exitCode > 128 && exitCode < 160 ? `, as when signal ${exitCode - 128} ends a program` : ''
  return `exit code ${exitCode}${signal}, after ${seconds} s`
}
