/**
 * Carries out one call of a model for the application: finds the tool, checks the arguments, asks where that is wanted, and
 * makes a message of whatever comes. What the model did wrong, and what a tool did, is an answer; only misuse throws.
 */
import type { Result } from '#specs/protocol/error.ts'
import { type ToolValidationFailure, toolValidationFailureType } from '#specs/protocol/validation-failure.ts'
import type { LLMChatMessage, LLMTool, LLMToolCall, ToolPermission } from './contract.ts'
import {
  type ConvenienceOptions,
  cachedEnvironment,
  checkEnvironment,
  checkPermission,
  type LLMEnvironment,
} from './environment.ts'
import { parseModelJson } from './llm/repair.ts'
import { cutResult } from './mcp/result.ts'
import { describeIssues, openSchema } from './structured/schema.ts'
import { isZod, type ResolvedTool, resolveTools, type ToolSelection } from './tool-set.ts'
import { untilAborted } from './until-aborted.ts'

export interface ExecuteToolOptions extends Partial<ToolSelection>, Omit<ConvenienceOptions, 'provider'> {
  readonly workingDirectory?: string
  readonly abortSignal?: AbortSignal
  /** Under the tool permission `ask`: whether a call that may change something is to go on. Absent: it is not. */
  readonly askPermission?: (call: LLMToolCall) => Promise<boolean> | boolean
}

export interface LLMToolResult {
  readonly ok: boolean
  /** What the model is told. */
  readonly content: string
  /** The same, to be put into the transcript. */
  readonly message: LLMChatMessage
}

/**
 * The result of `call`. Give the same tools and permission as to the request that it came of.
 * @param environment as for that request; undefined for the one that the options make
 * @throws TypeError for a tool without `execute`: its calls are the application's own
 */
export async function executeTool(
  environment: LLMEnvironment | undefined,
  call: LLMToolCall,
  options: ExecuteToolOptions = {},
): Promise<LLMToolResult> {
  const { abortSignal = new AbortController().signal } = options
  const used =
    environment === undefined
      ? cachedEnvironment({ ...options, provider: '' })
      : checkEnvironment(environment)
  const toolPermission = checkPermission(options.toolPermission ?? used.defaults.toolPermission)
  const outcome = await carryOut(used, call, { ...options, toolPermission, abortSignal })
  const content = cutResult(outcome.ok ? outcome.value : outcome.error)
  return { ok: outcome.ok, content, message: { role: 'tool', tool_call_id: call.id, content } }
}

type Settled = ExecuteToolOptions & {
  readonly toolPermission: ToolPermission
  readonly abortSignal: AbortSignal
}

async function carryOut(
  environment: LLMEnvironment,
  call: LLMToolCall,
  options: Settled,
): Promise<Result<string, string>> {
  const { toolPermission, abortSignal: signal, workingDirectory } = options
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
  const refusal = await refusePermission(tool, call, toolPermission, options.askPermission)
  if (refusal !== null) return fail(refusal)
  const input = await readArguments(tool, call.function.arguments)
  if (!input.ok) return input
  if (tool.execute === null)
    throw new TypeError(`the tool ${tool.name} has no execute: the application carries its calls out itself`)
  const context = {
    toolCallId: call.id,
    signal,
    ...(workingDirectory === undefined ? {} : { workingDirectory }),
  }
  try {
    const { ok, content } = await untilAborted(tool.execute(input.value, context), signal)
    return ok ? { ok, value: toText(content) } : { ok, error: toText(content) }
  } catch (cause) {
    if (signal.aborted) return cancelled
    return fail(`${tool.name} failed: ${cause instanceof Error ? cause.message : String(cause)}`)
  }
}

/** Why the call may not be carried out; null when it may. */
async function refusePermission(
  tool: ResolvedTool,
  call: LLMToolCall,
  permission: ToolPermission,
  ask: ExecuteToolOptions['askPermission'],
): Promise<string | null> {
  if (tool.readOnly || permission === 'auto') return null
  if (permission === 'read') return `${tool.name} is not allowed: only tools that read may be used`
  if (ask === undefined) return `${tool.name} was not allowed: nobody could be asked`
  return (await ask(call)) ? null : `${tool.name} was not allowed by the person asked`
}

async function readArguments(tool: ResolvedTool, text: string): Promise<Result<unknown, string>> {
  const json = parseModelJson(text.trim() === '' ? '{}' : text, { dropProse: false })
  if (!json.ok) return { ok: false, error: artifact(tool.name, 'invalid_json', json.error, []) }
  const { value, corrections } = json.value
  if (tool.parameters === null) return { ok: true, value }
  const checked = await check(tool.parameters, value)
  return checked.ok
    ? checked
    : { ok: false, error: artifact(tool.name, 'invalid_arguments', checked.error, corrections) }
}

async function check(parameters: LLMTool['parameters'], value: unknown): Promise<Result<unknown, string>> {
  if (isZod(parameters)) {
    const parsed = await parameters.safeParseAsync(value)
    return parsed.success
      ? { ok: true, value: parsed.data }
      : { ok: false, error: describeIssues(parsed.error) }
  }
  const schema = await openedSchema(parameters)
  // A schema that cannot be checked is the application's; its tool gets what the model wrote.
  return schema.ok ? schema.value.check(value) : { ok: true, value }
}

const openedSchemas = new WeakMap<object, ReturnType<typeof openSchema>>()

function openedSchema(parameters: Readonly<Record<string, unknown>>): ReturnType<typeof openSchema> {
  const known = openedSchemas.get(parameters) ?? openSchema(parameters)
  openedSchemas.set(parameters, known)
  return known
}

/** The durable artifact of arguments that do not fit. */
function artifact(toolName: string, code: string, problem: string, corrections: readonly string[]): string {
  const value: ToolValidationFailure = {
    ok: false,
    status: 'error',
    errorType: toolValidationFailureType,
    toolName,
    message: `the arguments do not fit ${toolName}, and nothing was done: correct them and call again`,
    issues: [{ path: '', code, message: problem }],
    corrections: [...corrections],
  }
  return JSON.stringify(value)
}

function fail(words: string): { ok: false; error: string } {
  return { ok: false, error: `Error: ${words}` }
}

function toText(value: unknown): string {
  if (typeof value === 'string') return value === '' ? '(no output)' : value
  return JSON.stringify(value) ?? '(no output)'
}
