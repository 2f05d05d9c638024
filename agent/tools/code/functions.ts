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
import { limits } from '#specs/protocol/limits.ts'
import type { CodeFunction } from '#specs/protocol/workflow.ts'
import type { OpenExtension } from '../../extensions/extension.ts'
import type { Helper } from '../../link/root-helper.ts'
import type { ProgramNetwork } from '../../proxy/proxy.ts'
import { truncateMiddle } from '../../text/truncate.ts'
import { defineTool, type Tool, type ToolContext, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { defaultProgramLimits, programEnvironment } from './code.ts'
import { pythonCommand } from './python-runner.ts'

const MiB = 1024 * 1024
/** Output with the result; a program that writes more is ended. */
const outputMaxBytes = 2 * MiB
/** Characters of standard error in the message of a failure. */
const errorMaxChars = 2_000

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
  const tooMuch = new AbortController()
  const kept = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
  let bytes = 0
  const { argv, stdin } = commandOf(one, input, mark)
  const env = (await network?.prepare())?.env
  const ended = await helper.execInSandbox(
    {
      argv,
      stdin,
      ...(view === undefined ? {} : { view }),
      env: { ...programEnvironment, ...env },
      limits: { ...defaultProgramLimits(), memoryBytes: one.memoryMiB * MiB, wallMs: one.timeoutMs },
    },
    {
      signal: AbortSignal.any([signal, tooMuch.signal]),
      onOutput: (stream, piece) => {
        bytes += piece.length
        if (bytes > outputMaxBytes) tooMuch.abort()
        else kept[stream].push(Buffer.from(piece))
      },
    },
  )
  if (signal.aborted) return toolFailure('cancelled', 'The call was cancelled.')
  if (tooMuch.signal.aborted)
    return toolFailure('too_large', `${one.name} wrote more than ${outputMaxBytes} bytes`)
  if (!ended.ok)
    return toolFailure('unavailable', `${one.name} could not be run: ${ended.error.message}`, true)
  const stderr = Buffer.concat(kept.stderr).toString()
  if (stderr !== '') emitOutput('stderr', truncateMiddle(stderr, limits.textMaxChars))
  const { timedOut, oomKilled, exitCode } = ended.value
  if (timedOut) return toolFailure('timed_out', `${one.name} was ended after ${one.timeoutMs} ms`)
  if (oomKilled) return toolFailure('limit_reached', `${one.name} needed more than ${one.memoryMiB} MiB`)
  const result = readResult(Buffer.concat(kept.stdout).toString(), mark)
  if (exitCode === 0 && result.ok) return toolSuccess(result.value)
  const why = stderr.trim() === '' ? (result.ok ? `exit code ${exitCode}` : result.error) : stderr.trim()
  return toolFailure('internal', truncateMiddle(why.toWellFormed(), errorMaxChars))
}

/** JSON behind the mark, on the last line that has it. */
function readResult(stdout: string, mark: string): Result<unknown, string> {
  const at = stdout.lastIndexOf(mark)
  if (at < 0) return { ok: false, error: 'the code ended before the function returned' }
  const [text = ''] = stdout.slice(at + mark.length).split('\n')
  if (text.length > limits.documentMaxChars)
    return {
      ok: false,
      error: `the result has ${text.length} characters; at most ${limits.documentMaxChars} are kept`,
    }
  try {
    return { ok: true, value: JSON.parse(text) }
  } catch {
    return { ok: false, error: 'the result is no JSON' }
  }
}

/** The arguments in the order of the parameters; null where one in between is missing. */
function argumentsOf({ parameters }: CodeFunction, input: Readonly<Record<string, unknown>>): unknown[] {
  const names = Object.keys(parameters.properties ?? {})
  const count = names.findLastIndex((name) => Object.hasOwn(input, name)) + 1
  return names.slice(0, count).map((name) => (Object.hasOwn(input, name) ? input[name] : null))
}

function commandOf(
  one: CodeFunction,
  input: Readonly<Record<string, unknown>>,
  mark: string,
): { readonly argv: readonly string[]; readonly stdin: string } {
  // A string of JSON is one of both languages.
  const given = JSON.stringify(JSON.stringify(argumentsOf(one, input)))
  const { name, code } = one
  if (one.language === 'python')
    return { argv: pythonCommand([]), stdin: `${code}\n${pythonEnd(name, given, mark)}` }
  // Node strips types that can be erased.
  return {
    argv: ['node', '--no-warnings', '--input-type=module-typescript', '-'],
    stdin: `${code}\n${javascriptEnd(name, given, mark)}`,
  }
}

const javascriptEnd = (name: string, given: string, mark: string) => `;{
  if (typeof ${name} !== 'function') throw new TypeError('the code defines no function ${name}')
  const caissonValue = await ${name}(...JSON.parse(${given}))
  const caissonText = JSON.stringify(caissonValue === undefined ? null : caissonValue)
  if (caissonText === undefined) throw new TypeError('${name} returned what JSON does not have')
  process.stdout.write('\\n${mark}' + caissonText + '\\n')
}
`

const pythonEnd = (name: string, given: string, mark: string) => `
def _caisson_call():
    import asyncio, inspect, json, sys
    function = globals().get('${name}')
    if not callable(function):
        raise TypeError('the code defines no function ${name}')
    value = function(*json.loads(${given}))
    if inspect.isawaitable(value):
        async def finish():
            return await value
        value = asyncio.run(finish())
    sys.stdout.write('\\n${mark}' + json.dumps(value, allow_nan=False) + '\\n')
    sys.stdout.flush()
_caisson_call()
`
