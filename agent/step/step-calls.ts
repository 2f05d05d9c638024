/**
 * Runs the tool calls of one turn: in order, or in parallel when all of them allow it, such as reads; results are
 * always in order. A call that is truncated, exceeds the maximum, or comes after the end is answered without running.
 */

import { correctionsMaxCount, validationFailure } from '#runtime/arguments/failure.ts'
import type { ToolCallRequest } from '#runtime/llm/messages.ts'
import type { Turn } from '#runtime/llm/model.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { ToolError } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { askTool, isAnswerTo } from '#specs/protocol/question.ts'
import { toolKindOf } from '#specs/protocol/tool-names.ts'
import { callHooks } from '../run/hooks.ts'
import { type AgentRun, sliceText } from '../run/run.ts'
import { truncate, truncateMiddle } from '../text/truncate.ts'
import { type ApprovalQuestion, type Invocation, type InvokeContext, invokeTool } from '../tool-calls/call.ts'
import { describeFacts } from '../tool-calls/call-facts.ts'
import { findTool } from '../tool-calls/registry.ts'
import { type AskUser, type Picture, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { addStepsName } from '../tools/add-steps.ts'
import { revisePlanName } from '../tools/revise-plan.ts'
import { createProgramTools, type ProgramCall } from './program-calls.ts'

/** Maximum calls in one reply; the rest are answered with an error. */
const callsPerTurnMax = 64
/** Maximum parallel calls. */
const parallelMax = 8

/** An approval request; without its own id it has the call's. */
type HostQuestion = ApprovalQuestion & Partial<Pick<ApprovalRequest, 'approvalId' | 'question'>>

/** Cuts a call's output to the length that the conversation allows. */
type CutOutput = (callId: string, tool: string, output: string) => string

/** Runs the turn's calls and returns one invocation per call, in order. */
export async function runCalls(
  stepId: string,
  turn: Turn,
  run: AgentRun,
  signal: AbortSignal,
  cutOutput: CutOutput,
): Promise<Invocation[]> {
  const calls = turn.toolCalls
  const one = async (call: ToolCallRequest, index: number): Promise<Invocation> => {
    await run.steering.ready(signal)
    if (signal.aborted) return unrun(call, 'cancelled', 'interrupted: the run ended before this call')
    if (index >= callsPerTurnMax) {
      return answerUnrun(
        stepId,
        call,
        run,
        'limit_reached',
        `more than ${callsPerTurnMax} calls in one reply`,
      )
    }
    // Not only the last: servers may interleave the fragments of several calls.
    if (turn.finishReason === 'length' && !isWholeObject(call.argumentsText)) {
      return answerCutOff(stepId, call, run)
    }
    if (!run.budget.takeCall()) {
      return answerUnrun(stepId, call, run, 'limit_reached', 'no tool calls are left in this run')
    }
    return await oncePerCall(stepId, call, run, () => runCall(stepId, call, run, signal, cutOutput))
  }
  const results: Invocation[] = []
  const width = calls.every((call) => mayRunBeside(call, run)) ? parallelMax : 1
  for (let from = 0; from < calls.length; from += width) {
    const batch = calls.slice(from, from + width)
    results.push(...(await Promise.all(batch.map((call, offset) => one(call, from + offset)))))
  }
  return results
}

function mayRunBeside({ name }: ToolCallRequest, { registry, functions }: AgentRun): boolean {
  const tool = findTool(registry.byName, name)
  if (functions === undefined || tool === undefined || !functions.names.includes(tool.name))
    return registry.isConcurrent(name)
  return functions.atOnce
}

interface MadeCall extends Invocation {
  /** The tool's own, before it became text; absent when it failed. */
  readonly value?: unknown
}

/** A call that no model asked for. */
export async function makeCall(
  stepId: string,
  { name, argumentsText }: Pick<ToolCallRequest, 'name' | 'argumentsText'>,
  run: AgentRun,
  signal: AbortSignal,
): Promise<MadeCall> {
  const call = { id: run.callIds.ofStep(stepId).claim(''), name, argumentsText }
  await run.steering.ready(signal)
  if (signal.aborted) return unrun(call, 'cancelled', 'interrupted: the run ended before this call')
  if (!run.budget.takeCall())
    return await answerUnrun(stepId, call, run, 'limit_reached', 'no tool calls are left in this run')
  return await oncePerCall(stepId, call, run, async () => {
    let value: unknown
    const invocation = await runCall(
      stepId,
      call,
      run,
      signal,
      (_, __, output) => truncateMiddle(output, limits.documentMaxChars),
      {
        onValue: (given) => {
          value = given
        },
      },
    )
    return { ...invocation, value }
  })
}

/** Calls that a continued run makes again: they change the run, and nothing else. */
const changesPlan: ReadonlySet<string> = new Set([revisePlanName, addStepsName])

/** The result that the run's log has of the call, or that of `work`. */
async function oncePerCall(
  stepId: string,
  call: ToolCallRequest,
  run: AgentRun,
  work: () => Promise<MadeCall>,
): Promise<MadeCall> {
  const { log, outputs } = run
  const tool = findTool(run.registry.byName, call.name)
  if (tool !== undefined && changesPlan.has(tool.name)) return await work()
  const name = `call ${stepId} ${call.id}`
  let shown: Picture | undefined
  const once = () =>
    log.once(name, async () => {
      const { picture, ...done } = await work()
      shown = picture
      if (picture !== undefined) log.keepImage(picture.image.sha256, picture.url)
      // Of its facts the host has been told.
      const invocation = { ...done, facts: {} }
      const kept = outputs.has(call.id) ? outputs.whole(call.id) : undefined
      return {
        invocation,
        ...(kept === undefined ? {} : { kept }),
        ...(picture === undefined ? {} : { picture: { name: picture.name, image: picture.image } }),
      }
    })
  const isOutside = tool?.runs === 'host' || tool?.runs === 'server'
  const { invocation, kept, picture } =
    isEffect(call, run) && !log.hasNext(name)
      ? await log.effect(isOutside ? 'outside' : 'inside', once)
      : await once()
  if (kept !== undefined) outputs.keep(call.id, kept)
  const url = shown?.url ?? (picture === undefined ? undefined : log.image(picture.image.sha256))
  return picture === undefined || url === undefined
    ? invocation
    : { ...invocation, picture: { ...picture, url } }
}

/** Whether the run's log counts the call as one that changes something. */
function isEffect({ name }: ToolCallRequest, { registry }: AgentRun): boolean {
  const tool = findTool(registry.byName, name)
  return tool?.readOnly === false && !changesPlan.has(tool.name)
}

async function runCall(
  stepId: string,
  call: ToolCallRequest,
  run: AgentRun,
  signal: AbortSignal,
  cutOutput: CutOutput,
  { inner, onValue }: { readonly inner?: ProgramCall; readonly onValue?: (value: unknown) => void } = {},
): Promise<Invocation> {
  const callId = call.id
  const parent = inner === undefined ? {} : { parentCallId: inner.parentCallId }
  const hooks = callHooks(run, { stepId, callId, signal })
  const shown = { stdout: 0, stderr: 0 }
  let hasDeniedCall = false
  const context: InvokeContext = {
    signal,
    ...(hooks === undefined ? {} : { hooks }),
    askTools: new Set(run.task.askTools),
    onStart: (tool, args) =>
      run.report.event({
        type: 'tool-start',
        stepId,
        callId,
        ...parent,
        tool,
        kind: toolKindOf(tool),
        arguments: args,
      }),
    emitOutput: (stream, text) => {
      for (const piece of sliceText(text)) {
        const offset = shown[stream]
        shown[stream] += piece.length
        run.report.delta({ type: 'tool-output-delta', stepId, callId, stream, offset, text: piece })
      }
    },
    outputs: run.outputs,
    ...(run.revisePlan === undefined ? {} : { revisePlan: run.revisePlan }),
    ...(run.addSteps === undefined ? {} : { addSteps: run.addSteps }),
    ...(run.agents === undefined ? {} : { agents: run.agents }),
    ...(run.skills === undefined ? {} : { skills: run.skills }),
    runId: run.task.runId,
    stepId,
    agentPath: run.agentPath,
    callId,
    ...parent,
    askUser: createAskUser(stepId, callId, run, signal),
    // The program's call is the effect: no checkpoint is made in the middle of it.
    requestApproval: (question) =>
      askPerson(stepId, { ...parent, ...question }, run, signal, inner === undefined && isEffect(call, run)),
    ...(inner === undefined
      ? {
          cutOutput: (tool, output) => cutOutput(callId, tool, output),
          program: createProgramTools(
            { stepId, parentCallId: callId },
            run,
            (made) => runCall(stepId, toRequest(made), run, made.signal, cutOutput, { inner: made }),
            () => {
              hasDeniedCall = true
            },
          ),
          ...(onValue === undefined ? {} : { onValue }),
        }
      : { onValue: inner.onValue }),
  }
  const invocation = await invokeTool(run.registry, call, context)
  const { writtenAs } = call
  // For people only: the model cannot change that its server misread its format.
  const corrections = writtenAs === undefined ? [] : [`written as text (${writtenAs}), taken as a call`]
  await reportEnd(stepId, { ...invocation, corrections: [...corrections, ...invocation.corrections] }, run)
  return hasDeniedCall ? { ...invocation, hasDeniedCall } : invocation
}

function toRequest({ callId, tool, argumentsText }: ProgramCall): ToolCallRequest {
  return { id: callId, name: tool, argumentsText }
}

/** The person's decision. @param isInEffect as in {@link RunLog.ask} */
export async function askPerson(
  stepId: string,
  question: HostQuestion,
  run: AgentRun,
  signal: AbortSignal,
  isInEffect = false,
): Promise<ApprovalDecision> {
  const request = { approvalId: `ap-${question.callId}`, agentPath: run.agentPath, stepId, ...question }
  const decision = await run.log.ask(isInEffect, () => run.requestApproval(request, signal))
  // Approval during a pause does not end the pause.
  await run.steering.ready(signal)
  return decision
}

/** Asks the person on behalf of one call. */
function createAskUser(stepId: string, callId: string, run: AgentRun, signal: AbortSignal): AskUser {
  let asked = 0
  return async (question, withdrawn) => {
    asked += 1
    const decision = await askPerson(
      stepId,
      {
        // Differs from the id of the call's approval.
        approvalId: `ask-${callId}${asked === 1 ? '' : `-${asked}`}`,
        callId,
        tool: askTool,
        arguments: toCanonicalJson(question),
        preview: '',
        question,
      },
      run,
      withdrawn === undefined ? signal : AbortSignal.any([signal, withdrawn]),
    )
    const { answer, hint } = decision
    const words = hint === undefined || hint.trim() === '' ? '' : hint
    if (decision.decision === 'deny')
      return toolFailure(
        'denied',
        `the question was not answered; do not ask it again.${words && ` They said: ${words}`}`,
      )
    if (answer === undefined || !isAnswerTo(question, answer))
      return toolFailure('internal', 'the host gave no answer to this question: decide yourself')
    return toolSuccess({ answer, ...(words === '' ? {} : { note: words }) })
  }
}

/** Arguments truncated by the model's output limit are never completed, so the call is never executed. */
function answerCutOff(stepId: string, call: ToolCallRequest, run: AgentRun): Promise<Invocation> {
  const name = truncate(call.name === '' ? '(no name)' : call.name, 64)
  const message = `the reply reached its length limit within the arguments of ${name}, and nothing was done: make the call again with shorter arguments, and give long content in several calls`
  const issue = {
    path: '',
    code: 'cut_off',
    message: `cut off after ${call.argumentsText.length} characters`,
  }
  const { error, output } = validationFailure(name, message, [issue])
  return reportUnrun(stepId, call, run, { ...unrun(call, error.code, error.message), output })
}

/** Answers a call that is not run and reports it to the host. */
function answerUnrun(
  stepId: string,
  call: ToolCallRequest,
  run: AgentRun,
  code: ToolError['code'],
  message: string,
): Promise<Invocation> {
  return reportUnrun(stepId, call, run, unrun(call, code, message))
}

async function reportUnrun(
  stepId: string,
  call: ToolCallRequest,
  run: AgentRun,
  invocation: Invocation,
): Promise<Invocation> {
  await run.report.event({
    type: 'tool-start',
    stepId,
    callId: call.id,
    tool: invocation.tool,
    kind: toolKindOf(invocation.tool),
    arguments: truncateMiddle(call.argumentsText, limits.documentMaxChars),
  })
  await reportEnd(stepId, invocation, run)
  return invocation
}

async function reportEnd(stepId: string, invocation: Invocation, run: AgentRun): Promise<void> {
  const { callId, tool, output, error, corrections, facts, durationMs, outputBytes, picture } = invocation
  const isCut = invocation.isCut || output.length > limits.textMaxChars
  await run.report.event({
    type: 'tool-end',
    stepId,
    callId,
    tool,
    output: truncateMiddle(output, limits.textMaxChars),
    ...(error === undefined ? {} : { error }),
    ...(isCut ? { cut: { bytes: outputBytes, isKept: run.outputs.has(callId) } } : {}),
    ...(await describeFacts(facts)),
    ...(picture === undefined ? {} : { image: picture.image }),
    ...(corrections.length === 0
      ? {}
      : {
          corrections: corrections
            .slice(0, correctionsMaxCount)
            .map((text) => truncate(text, limits.lineMaxChars)),
        }),
    durationMs,
  })
}

function unrun(call: ToolCallRequest, code: ToolError['code'], message: string): Invocation {
  return {
    callId: call.id,
    tool: truncate(call.name === '' ? '(no name)' : call.name, 64),
    arguments: call.argumentsText,
    output: `Error (${code}): ${message}`,
    error: { code, message, retryable: false },
    corrections: [],
    facts: {},
    isCut: false,
    outputBytes: 0,
    durationMs: 0,
  }
}

function isWholeObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}
