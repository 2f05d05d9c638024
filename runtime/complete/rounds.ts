/**
 * Carries out the calls of one turn: those that only read at the same time, others one after another. Calls that the
 * application executes itself, questions to a person and control calls are sorted out, and end the run.
 */
import type { LLMChatMessage, LLMToolCall } from '../contract/contract.ts'
import type { LLMEnvironment } from '../environment/environment.ts'
import { resolveTools, type ToolSet } from '../environment/tool-set.ts'
import { type ExecuteToolOptions, executeTool } from '../generate/execute-tool.ts'
import { type PendingUserInput, parsePendingUserInput } from '../tools/ask-user-input.ts'
import { type ControlOutput, isControlCall, readControlCall } from './control-tools.ts'
import type { Evidence } from './evidence.ts'
import type { CompleteEvent } from './types.ts'

export interface RoundContext {
  readonly environment: LLMEnvironment
  readonly options: ExecuteToolOptions
  readonly hasControlTools: boolean
  readonly evidence: Evidence
  report(event: CompleteEvent): void
}

export interface Round {
  /** Results, in the order of their calls. */
  readonly messages: readonly LLMChatMessage[]
  readonly pending: readonly PendingUserInput[]
  /** Calls that the application executes itself. */
  readonly toolCalls: readonly LLMToolCall[]
  readonly control: ControlOutput | null
}

export async function carryOut(
  calls: readonly LLMToolCall[],
  iteration: number,
  signal: AbortSignal,
  context: RoundContext,
): Promise<Round> {
  const { environment, options, hasControlTools } = context
  const [first] = calls
  if (hasControlTools && calls.length === 1 && first !== undefined && isControlCall(first))
    return await takeControl(first, context.evidence)
  const tools = await resolveTools(environment, { ...options, toolPermission: 'auto' })
  const isOwn = (call: LLMToolCall) => !isRefused(call, hasControlTools) && isHostOwned(call, tools)
  const ours = calls.filter((call) => !isOwn(call))
  const run = (call: LLMToolCall) => carryOutOne(call, iteration, signal, context)
  const readsOnly = ours.every(({ function: { name } }) => tools.find(name)?.readOnly !== false)
  const results = readsOnly ? await Promise.all(ours.map(run)) : await inTurn(ours, run)
  return {
    messages: results.flatMap(({ message }) => (message === null ? [] : [message])),
    pending: results.flatMap(({ pending }) => (pending === null ? [] : [pending])),
    toolCalls: calls.filter(isOwn),
    control: null,
  }
}

async function inTurn<T>(
  calls: readonly LLMToolCall[],
  run: (call: LLMToolCall) => Promise<T>,
): Promise<T[]> {
  const results: T[] = []
  for (const call of calls) results.push(await run(call))
  return results
}

/** A control call beside others. */
function isRefused(call: LLMToolCall, hasControlTools: boolean): boolean {
  return hasControlTools && isControlCall(call)
}

function isHostOwned({ function: { name } }: LLMToolCall, tools: ToolSet): boolean {
  return tools.find(name)?.execute === null
}

async function takeControl(call: LLMToolCall, evidence: Evidence): Promise<Round> {
  const round = { messages: [], pending: [], toolCalls: [], control: null }
  const read = await readControlCall(call)
  if (!read.ok) return { ...round, messages: [toResult(call, read.content)] }
  const { output } = read
  if (output.type === 'final_answer' && !evidence.isEnough) {
    const words = `Error: this answer was not accepted: no call has yet proved ${evidence.need}. Do the work with the other tools first.`
    return { ...round, messages: [toResult(call, words)] }
  }
  return { ...round, control: output, pending: output.type === 'needs_user_input' ? [output.pending] : [] }
}

async function carryOutOne(
  call: LLMToolCall,
  iteration: number,
  abortSignal: AbortSignal,
  { environment, options, hasControlTools, evidence, report }: RoundContext,
): Promise<{ message: LLMChatMessage | null; pending: PendingUserInput | null }> {
  if (isRefused(call, hasControlTools)) {
    const words = `Error: ${call.function.name} was not carried out: it must be the only call of its turn. Read the other results first.`
    return { message: toResult(call, words), pending: null }
  }
  report({ type: 'tool_start', iteration, call })
  const result = await executeTool(environment, call, { ...options, abortSignal })
  evidence.add(result.evidence)
  const pending = result.ok ? null : parsePendingUserInput(result.content)
  const type = result.ok || pending !== null ? 'tool_result' : 'tool_error'
  report({ type, iteration, call, result })
  return { message: pending === null ? result.message : null, pending }
}

function toResult({ id }: LLMToolCall, content: string): LLMChatMessage {
  return { role: 'tool', tool_call_id: id, content }
}
