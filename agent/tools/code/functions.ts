/**
 * Functions of a workflow that have code: each call runs the code as a program in the sandbox, with its own bounds of time
 * and memory. Arguments and results are JSON, and both are checked; whatever the code does else is a failed call.
 */
import { Buffer } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import * as z from 'zod'
import { openSchema } from '#specs/node/json-schema.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits as limitsOf } from '#specs/protocol/limits.ts'
import { type CodeFunction, findValueProblem } from '#specs/protocol/workflow.ts'
import type { OpenExtension } from '../../extensions/extension.ts'
import type { Helper } from '../../link/root-helper.ts'
import type { ProgramNetwork } from '../../proxy/proxy.ts'
import { truncateMiddle } from '../../text/truncate.ts'
import { defineTool, type Tool, type ToolContext, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { defaultProgramLimits, notRun, programEnvironment } from './code.ts'
import { functionProgram } from './function-program.ts'

const MiB = 1024 * 1024
/** Output with the result; a program that writes more is ended. */
const outputMaxBytes = 2 * MiB
/** Characters of standard error in the message of a failure. */
const errorMaxChars = 2_000
/** How long a program may continue after its result, such as to close files. */
const endGraceMs = 1_000

interface FunctionParts {
  readonly helper: Pick<Helper, 'execInSandbox'>
  /** Network access of the code; absent: none. */
  readonly network?: ProgramNetwork
}

/** The functions of a task's workflow. */
export function openCodeFunctions(parts: FunctionParts): OpenExtension {
  return async ({ task }) => {
    const functions = task.workflow?.functions ?? []
    const mayAdd = Object.values(task.workflow?.steps ?? {}).some((step) => (step.mayAdd?.functions ?? 0) > 0)
    if (functions.length === 0 && !mayAdd) return null
    return {
      ...(mayAdd ? { toolOf: (added: CodeFunction) => toTool(added, parts) } : {}),
      toolsFor: async ({ view }) => functions.map((one) => toTool(one, { ...parts, view })),
      close: () => Promise.resolve(),
    }
  }
}

export function toTool(
  one: CodeFunction,
  parts: FunctionParts & { readonly view?: string | undefined },
): Tool {
  return defineTool({
    name: one.name,
    description: one.description,
    inputSchema: z.record(z.string(), z.unknown()),
    outputSchema: z.unknown(),
    parameters: one.parameters,
    requiresApproval: false,
    readOnly: false,
    isOwn: false,
    inPrograms: false,
    execute: async (input, context) => {
      const given = await check(input, one.parameters)
      if (!given.ok) return toolFailure('invalid_input', `the arguments of ${one.name}: ${given.error}`)
      const made = await runCode(one, input, parts, context)
      if (!made.ok || one.returns === undefined) return made
      const fits = await check(made.value, one.returns)
      return fits.ok ? made : toolFailure('invalid_output', `what ${one.name} returned: ${fits.error}`)
    },
    render: (value) => (typeof value === 'string' ? value : toCanonicalJson(value)),
  })
}

async function check(value: unknown, schema: CodeFunction['parameters']): Promise<Result<unknown, string>> {
  const opened = await openSchema(schema)
  return opened.ok ? opened.value.check(value) : opened
}

async function runCode(
  one: CodeFunction,
  input: Readonly<Record<string, unknown>>,
  { helper, network, view }: FunctionParts & { readonly view?: string | undefined },
  { signal, emitOutput }: ToolContext,
): Promise<Result<unknown>> {
  // Of each call anew, so that nothing printed is taken for the result by accident.
  const mark = randomBytes(12).toString('hex')
  const env = (await network?.prepare())?.env
  const limits = { ...defaultProgramLimits(), memoryBytes: one.memoryMiB * MiB, wallMs: one.timeoutMs }
  using output = new FunctionOutput(mark)
  const ended = await helper.execInSandbox(
    {
      ...functionProgram(one, argumentsOf(one, input), mark),
      ...(view === undefined ? {} : { view }),
      env: { ...programEnvironment, ...env },
      limits,
    },
    {
      signal: AbortSignal.any([signal, output.enough]),
      onOutput: (stream, piece) => output.take(stream, piece),
    },
  )
  if (signal.aborted) return toolFailure('cancelled', 'The call was cancelled.')
  if (output.stderr.trim() !== '') emitOutput('stderr', truncateMiddle(output.stderr, limitsOf.textMaxChars))
  if (output.isTooMuch) return toolFailure('too_large', `${one.name} wrote more than ${outputMaxBytes} bytes`)
  if (output.hasResult && output.enough.aborted) return output.readResult()
  if (!ended.ok) return notRun(ended.error)
  const { timedOut, oomKilled, pidsRefused, exitCode } = ended.value
  if (oomKilled) return toolFailure('limit_reached', `${one.name} needed more than ${one.memoryMiB} MiB`)
  if (timedOut && !output.hasResult)
    return toolFailure('timed_out', `${one.name} was ended after ${one.timeoutMs} ms`)
  if ((exitCode === 0 || timedOut) && output.hasResult) return output.readResult()
  if (pidsRefused > 0)
    return toolFailure('limit_reached', `${one.name} started more than ${limits.pids} processes`)
  return toolFailure('internal', describeEnd(exitCode, output))
}

/** What a program writes: bounded, and searched for its result. */
class FunctionOutput implements Disposable {
  readonly #mark: string
  readonly #kept = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
  readonly #enough = new AbortController()
  #bytes = 0
  /** End of standard output, in which the mark may have begun. */
  #last: Buffer = Buffer.alloc(0)
  #isInResult = false
  #grace: NodeJS.Timeout | undefined

  constructor(mark: string) {
    this.#mark = mark
  }

  /** Aborted when the program has written too much, or does not end after its result. */
  get enough(): AbortSignal {
    return this.#enough.signal
  }

  get isTooMuch(): boolean {
    return this.#bytes > outputMaxBytes
  }

  get hasResult(): boolean {
    return this.#grace !== undefined
  }

  get stderr(): string {
    return Buffer.concat(this.#kept.stderr).toString()
  }

  take(stream: 'stdout' | 'stderr', piece: Buffer): void {
    this.#bytes += piece.length
    if (this.isTooMuch) {
      this.#enough.abort()
      return
    }
    this.#kept[stream].push(Buffer.from(piece))
    if (stream === 'stderr' || this.hasResult) return
    if (this.#endsResult(piece)) this.#grace = setTimeout(() => this.#enough.abort(), endGraceMs)
  }

  /** Whether the line with the mark is complete. */
  #endsResult(piece: Buffer): boolean {
    if (this.#isInResult) return piece.includes('\n')
    this.#last = Buffer.concat([this.#last, piece])
    const at = this.#last.indexOf(this.#mark)
    this.#isInResult = at >= 0
    if (this.#isInResult) return this.#last.includes('\n', at)
    this.#last = this.#last.subarray(-this.#mark.length)
    return false
  }

  /** JSON behind the mark, on the last line that has it. */
  readResult(): Result<unknown> {
    const stdout = Buffer.concat(this.#kept.stdout).toString()
    const [text = ''] = stdout.slice(stdout.lastIndexOf(this.#mark) + this.#mark.length).split('\n')
    if (text.length > limitsOf.documentMaxChars)
      return toolFailure(
        'too_large',
        `the result has ${text.length} characters; at most ${limitsOf.documentMaxChars} are kept`,
      )
    const value = parseJson(text)
    const problem = value === undefined ? 'is no JSON' : findValueProblem(value)
    return problem === null ? toolSuccess(value) : toolFailure('invalid_output', `the result ${problem}`)
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#grace)
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text, (_, value) => (typeof value === 'string' ? value.toWellFormed() : value))
  } catch {
    return undefined
  }
}

/** Standard error, which has the exception; else how the program ended. */
function describeEnd(exitCode: number | null, { stderr, hasResult }: FunctionOutput): string {
  const said = stderr.trim()
  if (said !== '') return truncateMiddle(said.toWellFormed(), errorMaxChars)
  const code = exitCode === null ? 'a signal' : `exit code ${exitCode}`
  // What Node gives where a promise that the module waits for can never settle.
  if (exitCode === 13) return 'the function waits for a promise that never settles (exit code 13)'
  return hasResult
    ? `the code ended with ${code}`
    : `the code ended before the function returned, with ${code}`
}

/** The arguments in the order of the parameters; null where one in between is missing. */
function argumentsOf({ parameters }: CodeFunction, input: Readonly<Record<string, unknown>>): unknown[] {
  const names = Object.keys(parameters.properties ?? {})
  const count = names.findLastIndex((name) => Object.hasOwn(input, name)) + 1
  return names.slice(0, count).map((name) => (Object.hasOwn(input, name) ? input[name] : null))
}
