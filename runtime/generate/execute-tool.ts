/**
 * Executes one call of a model: finds the tool, validates arguments, asks permission where required, and returns a
 * message. Errors of model and tool are results; only misuse throws.
 */
import { CaissonError, errorMessage, requireObject, requireSignal, requireText } from '#specs/errors.ts'
import { readArguments } from '../arguments/read.ts'
import type { EvidenceKind, LLMChatMessage, LLMToolCall, ToolPermission } from '../contract/contract.ts'
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
import {
  checkErrorMode,
  LLMToolError,
  type ToolErrorMode,
  type ToolFailureCode,
  toFailureArtifact,
} from './tool-failure.ts'

export interface ExecuteToolOptions extends Partial<ToolSelection>, Omit<ConvenienceOptions, 'provider'> {
  readonly abortSignal?: AbortSignal
  /**
   * Under the tool permission `ask`: decides whether a call that may change something runs. Absent: it does not.
   * Receives the call in its final form: the tool's own name and its coerced arguments.
   */
  readonly askPermission?: (call: LLMToolCall) => Promise<boolean> | boolean
  /** What becomes of a call that fails; default `text`. */
  readonly errorMode?: ToolErrorMode
}

export interface LLMToolResult {
  readonly ok: boolean
  /** Text for the model. */
  readonly content: string
  /** The same as a message for the transcript. */
  readonly message: LLMChatMessage
  /** Corrections of the arguments, in text; absent when there were none. */
  readonly corrections?: readonly string[]
  /** What the call proves; absent when it failed or proves nothing. */
  readonly evidence?: Exclude<EvidenceKind, 'none'>
}

/**
 * Executes `call`. Pass the same tools and permission as for the request that produced it.
 * @param environment as for that request; undefined for the one that the options create
 * @throws {CaissonError} `invalid_options` for a tool without `execute`: the application executes its calls
 * @throws {LLMToolError} for a call that failed, with the error mode `throw`
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
  const errorMode = checkErrorMode(options.errorMode)
  const { abortSignal = new AbortController().signal } = options
  const used =
    environment === undefined
      ? cachedEnvironment({ ...options, provider: '' })
      : checkEnvironment(environment)
  const toolPermission = checkPermission(options.toolPermission ?? used.defaults.toolPermission)
  const outcome = await callTool(used, call, { ...options, toolPermission, abortSignal })
  const { ok, corrections, evidence } = outcome
  const content = cutResult(inErrorMode(outcome, call, errorMode))
  return {
    ok,
    content,
    message: { role: 'tool', tool_call_id: call.id, content },
    ...(corrections.length === 0 ? {} : { corrections }),
    ...(!ok || evidence === 'none' ? {} : { evidence }),
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
  readonly evidence: EvidenceKind
  /** Absent for a call that did not fail, and for a question that waits for its answer. */
  readonly failure?: ToolFailureCode
}

/** The content of a failed call in the form of `mode`. @throws {LLMToolError} */
function inErrorMode({ content, failure }: Outcome, call: LLMToolCall, mode: ToolErrorMode): string {
  if (failure === undefined || mode === 'text') return content
  const message = content.replace(/^Error: /, '')
  const artifact = toFailureArtifact(call, failure, message)
  if (mode === 'throw') throw new LLMToolError(artifact)
  return failure === 'invalid_arguments' ? content : JSON.stringify(artifact)
}

async function callTool(environment: LLMEnvironment, call: LLMToolCall, options: Settled): Promise<Outcome> {
  const { toolPermission, abortSignal: signal } = options
  const workingDirectory = directoryOf(options)
  const cancelled = fail('cancelled', `the call of ${call.function.name.slice(0, 100)} was cancelled`)
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
    const called = JSON.stringify(call.function.name.slice(0, 100))
    return fail('unknown_tool', `there is no tool ${called}; there are: ${names.join(', ')}`)
  }
  const ask = permissionOf(tool, toolPermission, options.askPermission)
  if (typeof ask === 'string') return fail('not_allowed', ask)
  const schema = tool.definition.parameters
  const read = await readArguments({ ...tool, schema }, call.function.arguments)
  if (!read.ok) return { ...fail('invalid_arguments', ''), content: read.error }
  const { given, input, corrections } = read.value
  // The decider sees the final call, however the model wrote it.
  const plain = { ...call, function: { name: tool.name, arguments: JSON.stringify(given) } }
  if (!(await ask(plain))) return fail('not_allowed', `${tool.name} was not allowed by the person asked`)
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
  const { evidence } = tool
  try {
    const { ok, content } = await untilAborted(tool.execute(input, context), signal)
    const done = { ok, content: toText(content), corrections, evidence }
    return ok || isPending(content) ? done : { ...done, failure: 'failed' }
  } catch (cause) {
    if (signal.aborted) return cancelled
    return fail('failed', `${tool.name} failed: ${errorMessage(cause)}`)
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

function fail(failure: ToolFailureCode, words: string): Outcome {
  return { ok: false, content: `Error: ${words}`, corrections: [], evidence: 'none', failure }
}

/** Whether a tool's value is a question without an answer yet. */
function isPending(content: unknown): boolean {
  return typeof content === 'object' && content !== null && 'pending' in content && content.pending === true
}

function toText(value: unknown): string {
  if (typeof value === 'string') return value === '' ? '(no output)' : value
  return JSON.stringify(value) ?? '(no output)'
}
