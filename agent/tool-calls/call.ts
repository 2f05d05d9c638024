/**
 * Runs one tool call: finds the tool, validates arguments, asks the host's hooks, requests approval, validates the
 * output and logs the call. Nothing that a tool or a model does makes a call throw.
 */
import type { Logger } from 'pino'
import { correctionsMaxCount, validationFailure } from '#runtime/arguments/failure.ts'
import type { ToolCallRequest } from '#runtime/llm/messages.ts'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import type { Result, ToolError } from '#specs/protocol/error.ts'
import type { HookDecision } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { translateArguments } from './aliases.ts'
import { type ParsedArguments, parseArguments } from './arguments.ts'
import {
  boundError,
  describeError,
  describeResult,
  interruptedCall,
  refusedTool,
  unknownTool,
} from './call-texts.ts'
import { findTool, type InvokeOptions, type Registry } from './registry.ts'
import { type CallFacts, type Picture, type Tool, type ToolContext, toolFailure } from './tool.ts'

/** What a call needs from its run. */
export interface InvokeContext extends ToolContext {
  /** Tools that require approval for every call, besides those that always do. */
  readonly askTools: ReadonlySet<string>
  /** Called once before anything runs: the tool's own name when known, and canonical arguments. */
  onStart(tool: string, canonicalArguments: string): Promise<void>
  requestApproval(question: ApprovalQuestion): Promise<ApprovalDecision>
  /** The host's hooks around the call; absent: none concerns tools. */
  readonly hooks?: CallHooks
  /** Receives the value of the tool before it becomes text; hooks may still withhold it. */
  onValue?(value: unknown): void
  /** Cuts a tool's output to the conversation's limit; absent: its middle is cut at `outputMaxChars`. */
  cutOutput?(tool: string, text: string): string
}

/** The host's hooks before and after a call; undefined when none concerns the tool. Arguments are canonical JSON. */
export interface CallHooks {
  /** Whether any hook inspects the results of the tool. */
  looksAfter(tool: string): boolean
  /** @param defaults names of arguments that the model did not give */
  before(tool: string, given: string, defaults: readonly string[]): Promise<HookDecision | undefined>
  after(tool: string, given: string, output: string, error?: ToolError): Promise<HookDecision | undefined>
}

export interface ApprovalQuestion {
  readonly callId: string
  readonly parentCallId?: string
  readonly tool: string
  readonly arguments: string
  /** Names of arguments that the model did not give. */
  readonly defaults?: string[]
  readonly preview: string
}

/** Names of arguments that approval and hook requests list as not given. */
export const defaultsMaxCount = 64

/** The result of a call. */
export interface Invocation {
  readonly callId: string
  readonly tool: string
  readonly arguments: string
  /** Text for the model; never empty. */
  readonly output: string
  /** Absent when the call succeeded. */
  readonly error?: ToolError
  /** Whether a call that its program made was denied. Absent: no. */
  readonly hasDeniedCall?: true
  /** Corrections of the call, in text; the model receives them too. */
  readonly corrections: readonly string[]
  readonly facts: CallFacts
  /** Goes to the model behind the results of the turn. Absent: none. */
  readonly picture?: Picture
  /** Whether `output` is only a part, and the bytes of all of it. */
  readonly isCut: boolean
  readonly outputBytes: number
  readonly durationMs: number
}

/** Maximum characters that the model receives of one call. */
export const defaultOutputMaxChars = 64 * 1024

/** Executes a call as the model wrote it. Rejects only if `context` rejects. */
export async function invokeTool(
  { byName, options }: Registry,
  call: ToolCallRequest,
  context: InvokeContext,
): Promise<Invocation> {
  const now = options.now ?? (() => performance.now())
  const startedAt = now()
  const tool = findTool(byName, call.name)
  const refused = tool === undefined ? findTool(options.refused ?? new Map(), call.name)?.name : undefined
  const name = tool?.name ?? refused ?? truncateMiddle(call.name === '' ? '(no name)' : call.name, 64)
  const parsed =
    refused !== undefined
      ? refusedTool(name)
      : tool === undefined
        ? unknownTool(name, byName)
        : readArguments(tool, call)
  const shown = parsed.ok ? parsed.value.canonical : call.argumentsText
  await context.onStart(name, truncateMiddle(shown, limits.documentMaxChars))
  const notes: string[] = []
  let facts: CallFacts = {}
  let picture: Picture | undefined
  const show = (given: Picture): void => {
    picture = given
  }
  const told: InvokeContext = {
    ...context,
    ...(context.parentCallId === undefined ? { show } : {}),
    tell: (given) => {
      facts = given
    },
  }
  const result =
    parsed.ok && tool !== undefined
      ? await aroundCall(tool, parsed.value, context, notes, (allowed) =>
          guard(tool, call, allowed, told, options),
        )
      : null
  const corrections = [
    ...(tool !== undefined && tool.name !== call.name
      ? [`${truncateMiddle(call.name, 64)}: taken as ${name}`]
      : []),
    ...(parsed.ok ? parsed.value.corrections : []),
  ].slice(0, correctionsMaxCount)
  const error = parsed.ok ? (result?.ok === false ? result.error : undefined) : parsed.error.error
  let whole = ''
  let isCut = false
  const cut = (text: string): string => {
    const kept = cutOutput(name, text, context, options)
    whole = text
    isCut = kept !== text
    return kept
  }
  // The message of a failed validation has its own bound and must stay whole.
  const output = parsed.ok ? describeResult(result, corrections, notes, cut) : parsed.error.output
  const outputBytes = facts.outputBytes ?? Buffer.byteLength(isCut ? whole : output)
  const invocation: Invocation = {
    callId: call.id,
    tool: name,
    arguments: shown,
    output,
    ...(error === undefined ? {} : { error }),
    corrections: [...corrections, ...notes].slice(0, correctionsMaxCount),
    facts,
    ...(picture === undefined || error !== undefined ? {} : { picture }),
    isCut: isCut || facts.outputBytes !== undefined,
    outputBytes,
    durationMs: Math.max(0, Math.round(now() - startedAt)),
  }
  logCall(invocation, options.logger)
  return invocation
}

/** Also accepts an alias from another system. */
function readArguments(
  tool: Tool,
  { name, argumentsText }: ToolCallRequest,
): ReturnType<typeof parseArguments> {
  const translated = translateArguments(name, argumentsText)
  if (translated.ok) return parseArguments(tool, translated.value)
  return { ok: false, error: validationFailure(tool.name, translated.error, []) }
}

/**
 * Runs the call between its hooks, with the arguments and the result that they allow.
 * @param notes receives the hooks' notes
 */
async function aroundCall(
  tool: Tool,
  parsed: ParsedArguments,
  { hooks, signal }: { readonly hooks?: CallHooks; readonly signal: AbortSignal },
  notes: string[],
  run: (parsed: ParsedArguments) => Promise<Result<string>>,
): Promise<Result<string>> {
  if (hooks === undefined || signal.aborted) return await run(parsed)
  if (parsed.canonical.length > limits.documentMaxChars)
    return toolFailure(
      'too_large',
      `the arguments are too long for the host’s hooks (${parsed.canonical.length} characters)`,
    )
  const before = await hooks.before(tool.name, parsed.canonical, parsed.defaults)
  if (signal.aborted) return interruptedCall()
  if (before?.decision === 'deny')
    return toolFailure(
      'denied',
      `a hook of the host refused this call of ${tool.name}: ${before.reason ?? 'no reason given'}`,
    )
  const allowed = before?.arguments === undefined ? parsed : changeArguments(tool, before.arguments)
  if (allowed === null)
    return toolFailure('denied', `a hook of the host gave ${tool.name} arguments that do not fit it`)
  if (allowed !== parsed)
    notes.push(`a hook changed the arguments to ${truncateMiddle(allowed.canonical, 300)}`)
  const result = await run(allowed)
  // Cancelled: a result that a hook must inspect first is withheld.
  if (signal.aborted) return result.ok && hooks.looksAfter(tool.name) ? interruptedCall() : result
  const told = result.ok ? result.value : describeError(result.error)
  const after = await hooks.after(tool.name, allowed.canonical, told, result.ok ? undefined : result.error)
  for (const note of [before?.note, after?.note]) if (note !== undefined) notes.push(`a hook says: ${note}`)
  if (after?.decision !== 'deny') return result
  return toolFailure(
    'denied',
    `the call of ${tool.name} was executed, but a hook of the host withholds its result: ${after.reason ?? 'no reason given'}`,
  )
}

/** The hook's arguments unchanged, or null when the tool does not accept them. */
function changeArguments(tool: Tool, given: string): ParsedArguments | null {
  const parsed = parseArguments({ ...tool, readOnly: false, destructive: true }, given)
  return parsed.ok ? parsed.value : null
}

/** Executes the call; a thrown error becomes `internal`, with details only in the log. */
async function guard(
  tool: Tool,
  call: ToolCallRequest,
  parsed: ParsedArguments,
  context: InvokeContext,
  options: InvokeOptions,
): Promise<Result<string>> {
  try {
    if (context.signal.aborted) return interruptedCall()
    const gated = await gate(tool, call, parsed, context)
    if (!gated.ok) return gated
    if (context.signal.aborted) return interruptedCall()
    const allowed = gated.value === undefined ? {} : { allowed: gated.value }
    const execution = tool.execute(parsed.input, { ...context, ...allowed })
    const result = await withGrace(execution, context.signal, options.cancelGraceMs ?? 1_000)
    if (result === 'given up') return interruptedCall()
    if (!result.ok) return { ok: false, error: boundError(result.error) }
    const output = tool.outputSchema.safeParse(result.value)
    if (!output.success) {
      options.logger.error(
        { tool: tool.name, callId: call.id, issues: output.error.issues.slice(0, 5) },
        'tool output invalid',
      )
      return toolFailure(
        'invalid_output',
        `${tool.name} did its work but returned a value that breaks its own schema`,
      )
    }
    context.onValue?.(output.data)
    const text = tool.render === undefined ? (JSON.stringify(output.data) ?? '') : tool.render(output.data)
    return { ok: true, value: text.trim() === '' ? '(no output)' : text.toWellFormed() }
  } catch (error) {
    if (context.signal.aborted) return interruptedCall()
    options.logger.error({ tool: tool.name, callId: call.id, err: error }, 'tool threw')
    return toolFailure('internal', `${tool.name} failed with an internal error of the tool; try another way`)
  }
}

/** Whether the call may run, with the host's message. The digest covers exactly the input that is then executed. */
async function gate(
  tool: Tool,
  call: ToolCallRequest,
  parsed: ParsedArguments,
  context: InvokeContext,
): Promise<Result<string | undefined>> {
  // The host asks about its own tools itself.
  if (tool.runs === 'host') return { ok: true, value: undefined }
  const asks =
    tool.requiresApproval || context.askTools.has(tool.name) || (await tool.asks?.(parsed.input)) === true
  if (!asks) return { ok: true, value: undefined }
  if (parsed.canonical.length > limits.documentMaxChars) {
    return toolFailure(
      'too_large',
      `the arguments are too long to be shown to a person (${parsed.canonical.length} characters, the bound is ${limits.documentMaxChars})`,
    )
  }
  const preview = tool.preview === undefined ? '' : await tool.preview(parsed.input, context)
  const answer = await context.requestApproval({
    callId: call.id,
    tool: tool.name,
    arguments: parsed.canonical,
    ...(parsed.defaults.length === 0 ? {} : { defaults: parsed.defaults.slice(0, defaultsMaxCount) }),
    preview: truncateMiddle(preview.toWellFormed(), limits.textMaxChars),
  })
  if (answer.decision === 'allow') return { ok: true, value: answer.hint }
  const hint = answer.hint === undefined || answer.hint.trim() === '' ? '' : ` They said: ${answer.hint}`
  return toolFailure(
    'denied',
    `this call of ${tool.name} was denied; do not try it again in another way.${hint}`,
  )
}

/** The tool's result, or `given up` when it does not end within the grace period after the signal. */
async function withGrace<T>(work: Promise<T>, signal: AbortSignal, graceMs: number): Promise<T | 'given up'> {
  let timer: NodeJS.Timeout | undefined
  let onAbort: () => void = () => undefined
  const end = new Promise<'given up'>((resolve) => {
    onAbort = () => {
      timer = setTimeout(() => resolve('given up'), graceMs)
    }
    signal.addEventListener('abort', onAbort, { once: true })
  })
  try {
    // An abandoned tool may still fail later; ignore it.
    work.catch(() => undefined)
    return await Promise.race([work, end])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
  }
}

function cutOutput(tool: string, text: string, context: InvokeContext, options: InvokeOptions): string {
  return (
    context.cutOutput?.(tool, text) ?? truncateMiddle(text, options.outputMaxChars ?? defaultOutputMaxChars)
  )
}

function logCall(invocation: Invocation, logger: Logger): void {
  const { callId, tool, durationMs, corrections, error } = invocation
  const fields = {
    tool,
    callId,
    durationMs,
    arguments: truncateMiddle(invocation.arguments, 2_000),
    corrections,
    outputChars: invocation.output.length,
  }
  if (error === undefined) logger.info(fields, 'tool call')
  else
    logger.warn(
      { ...fields, code: error.code, error: truncateMiddle(error.message, 500) },
      'tool call failed',
    )
}
