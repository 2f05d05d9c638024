/**
 * Executes one call of a model: finds the tool, validates arguments, asks permission where required, and returns a
 * message. Errors of model and tool are results; only misuse throws.
 */
import { CaissonError, errorMessage, requireObject, requireSignal, requireText } from '#specs/errors.ts'
import { readArguments } from '../arguments/read.ts'
import type { LLMChatMessage, LLMToolCall, ToolPermission } from '../contract/contract.ts'
import {
  type ConvenienceOptions,
  cachedEnvironment,
  checkEnvironment,
  checkPermission,
  type LLMEnvironment,
} from '../environment/environment.ts'
import { type ResolvedTool, resolveTools, type ToolSelection } from '../environment/tool-set.ts'
import { cutResult } from '../mcp/result.ts'
import { untilAborted } from '../processes/until-aborted.ts'
import { directoryOf } from '../tools/selection.ts'

export interface ExecuteToolOptions extends Partial<ToolSelection>, Omit<ConvenienceOptions, 'provider'> {
  readonly abortSignal?: AbortSignal
  /**
   * Under the tool permission `ask`: decides whether a call that may change something runs. Absent: it does not.
   * Receives the call in its final form: the tool's own name and its coerced arguments.
   */
  readonly askPermission?: (call: LLMToolCall) => Promise<boolean> | boolean
}

export interface LLMToolResult {
  readonly ok: boolean
  /** Text for the model. */
  readonly content: string
  /** The same as a message for the transcript. */
  readonly message: LLMChatMessage
  /** Corrections of the arguments, in text; absent when there were none. */
  readonly corrections?: readonly string[]
}

/**
 * Executes `call`. Pass the same tools and permission as for the request that produced it.
 * @param environment as for that request; undefined for the one that the options create
 * @throws {CaissonError} `invalid_options` for a tool without `execute`: the application executes its calls
 */
export async function executeTool(
  environment: LLMEnvironment | undefined,
  call: LLMToolCall,
  options: ExecuteToolOptions = {},
): Promise<LLMToolResult> {
  requireObject('the call', call)
  requireObject('the function of the call', call.function)
  requireText('the name of the function', call.function.name)
  requireObject('the options', options)
  requireSignal('abortSignal', options.abortSignal)
  const { abortSignal = new AbortController().signal } = options
  const used =
    environment === undefined
      ? cachedEnvironment({ ...options, provider: '' })
      : checkEnvironment(environment)
  const toolPermission = checkPermission(options.toolPermission ?? used.defaults.toolPermission)
  const outcome = await callTool(used, call, { ...options, toolPermission, abortSignal })
  const content = cutResult(outcome.content)
  return {
    ok: outcome.ok,
    content,
    message: { role: 'tool', tool_call_id: call.id, content },
    ...(outcome.corrections.length === 0 ? {} : { corrections: outcome.corrections }),
  }
}

type Settled = ExecuteToolOptions & {
  readonly toolPermission: ToolPermission
  readonly abortSignal: AbortSignal
}

interface Outcome {
  readonly ok: boolean
  readonly content: string
  readonly corrections: readonly string[]
}

async function callTool(environment: LLMEnvironment, call: LLMToolCall, options: Settled): Promise<Outcome> {
  const { toolPermission, abortSignal: signal } = options
  const workingDirectory = directoryOf(options)
  const cancelled = fail(`the call of ${call.function.name.slice(0, 100)} was cancelled`)
  if (signal.aborted) return cancelled
  const tools = await untilAborted(
    resolveTools(environment, { ...options, toolPermission: 'auto' }),
    signal,
  ).catch((cause: unknown) => {
    if (signal.aborted) return null
    throw cause
  })
  if (tools === null) return cancelled
  const tool = tools.find(call.function.name)
  if (tool === undefined) {
    const names = tools.definitions.slice(0, 50).map(({ name }) => name)
    return fail(
      `there is no tool ${JSON.stringify(call.function.name.slice(0, 100))}; there are: ${names.join(', ')}`,
    )
  }
  const ask = permissionOf(tool, toolPermission, options.askPermission)
  if (typeof ask === 'string') return fail(ask)
  const schema = tool.definition.parameters
  const read = await readArguments({ ...tool, schema }, call.function.arguments)
  if (!read.ok) return { ok: false, content: read.error, corrections: [] }
  const { given, input, corrections } = read.value
  // The decider sees the final call, however the model wrote it.
  const plain = { ...call, function: { name: tool.name, arguments: JSON.stringify(given) } }
  if (!(await ask(plain))) return fail(`${tool.name} was not allowed by the person asked`)
  if (tool.execute === null)
    throw new CaissonError(
      'invalid_options',
      `the tool ${tool.name} has no execute: the application carries its calls out itself`,
    )
  const context = {
    toolCallId: call.id,
    signal,
    ...(workingDirectory === undefined ? {} : { workingDirectory }),
  }
  try {
    const { ok, content } = await untilAborted(tool.execute(input, context), signal)
    return { ok, content: toText(content), corrections }
  } catch (cause) {
    if (signal.aborted) return cancelled
    return fail(`${tool.name} failed: ${errorMessage(cause)}`)
  }
}

/** The permission check for a call; a string is the reason for refusal. */
function permissionOf(
  { name, readOnly }: ResolvedTool,
  permission: ToolPermission,
  ask: ExecuteToolOptions['askPermission'],
): NonNullable<ExecuteToolOptions['askPermission']> | string {
  if (readOnly || permission === 'auto') return () => true
  if (permission === 'read') return `${name} is not allowed: only tools that read may be used`
  return ask ?? `${name} was not allowed: nobody could be asked`
}

function fail(words: string): Outcome {
  return { ok: false, content: `Error: ${words}`, corrections: [] }
}

function toText(value: unknown): string {
  if (typeof value === 'string') return value === '' ? '(no output)' : value
  return JSON.stringify(value) ?? '(no output)'
}
