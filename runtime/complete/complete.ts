/**
 * `complete` and `streamComplete`: the turn loop with the library's tools, up to an answer, a question to a person or a
 * reason why there is none. The application gives messages and gets the transcript back.
 */
import { CaissonError, requireObject, requireSignal } from '#specs/errors.ts'
import type { LLMChatMessage, LLMResponse, LLMUsage } from '../contract/contract.ts'
import { environmentOf } from '../environment/environment.ts'
import { Queue } from '../generate/queue.ts'
import { runTurnLoop } from '../turn-loop/run.ts'
import type { RunTurnLoopResult } from '../turn-loop/types.ts'
import { DEFAULT_CONTROL_TOOL_RECOVERY_INSTRUCTION, withControlTools } from './control-tools.ts'
import { Evidence } from './evidence.ts'
import { carryOut, type Round, type RoundContext } from './rounds.ts'
import type {
  CompleteEvent,
  CompleteReason,
  CompleteRequest,
  CompleteResult,
  CompleteStatus,
} from './types.ts'
import { withWebSearch } from './web-search.ts'

const rejectedTextRetries = 2

interface State {
  readonly messages: readonly LLMChatMessage[]
  /** A text that was no answer; the model sees it once more, with the instruction. */
  readonly rejected: LLMChatMessage | null
  /** The round that ended the run. */
  readonly last: Round | null
}

/**
 * Runs turns up to an answer. Failures of tools are results for the model, unless `errorMode` is `throw`.
 * @throws {LLMError} when a model request finally failed
 * @throws {CaissonError} `invalid_options` for misuse
 */
export async function complete(request: CompleteRequest): Promise<CompleteResult> {
  return await run(check(request), () => undefined, 'generate')
}

/**
 * Runs the same turns and yields what happens. The last event has the result, which is returned too. Leaving the
 * generator aborts the run.
 */
export async function* streamComplete(
  request: CompleteRequest,
): AsyncGenerator<CompleteEvent, CompleteResult> {
  const { abortSignal, ...checked } = check(request)
  const left = new AbortController()
  const signals = [left.signal, ...(abortSignal === undefined ? [] : [abortSignal])]
  const events = new Queue<CompleteEvent>()
  const running = run(
    { ...checked, abortSignal: AbortSignal.any(signals) },
    (event) => events.add(event),
    'stream',
  ).finally(() => events.end())
  // Awaited below, unless the reader leaves first.
  running.catch(() => undefined)
  try {
    yield* events
    return await running
  } finally {
    left.abort()
  }
}

function check(request: CompleteRequest): CompleteRequest {
  requireObject('the request', request)
  requireSignal('abortSignal', request.abortSignal)
  if (!Array.isArray(request.messages))
    throw new CaissonError('invalid_options', 'expected messages as a list')
  if (!['undefined', 'boolean', 'function'].includes(typeof request.webSearch))
    throw new CaissonError('invalid_options', 'expected webSearch as true, false or a function')
  return request
}

async function run(
  request: CompleteRequest,
  report: (event: CompleteEvent) => void,
  mode: 'generate' | 'stream',
): Promise<CompleteResult> {
  const hasControlTools = request.controlTools === true
  const evidence = new Evidence(request)
  const environment = environmentOf(request)
  const { messages, abortSignal, providers: _p, skillRoots: _s, mcpConfig: _m, ...call } = request
  const offered = { ...call, ...toolsOf(request), webSearch: request.webSearch === true }
  const context: RoundContext = { environment, options: offered, hasControlTools, evidence, report }
  const usage: LLMUsage[] = []
  let iteration = 0
  const result = await runTurnLoop<State>({
    ...limitsOf(request),
    initialState: { messages, rejected: null, last: null },
    ...(abortSignal === undefined ? {} : { abortSignal }),
    modelRequest: {
      ...offered,
      environment,
      mode,
      onChunk: ({ content }) => {
        if (content !== undefined) report({ type: 'text_delta', iteration, text: content })
      },
    },
    onIterationStart: (event) => {
      iteration = event.iteration
      report({ type: 'model_start', iteration })
    },
    buildMessages: ({ state, transientInstruction: instruction }) => [
      ...state.messages,
      ...(state.rejected === null || instruction === undefined ? [] : [state.rejected]),
      ...(instruction === undefined ? [] : [{ role: 'system' as const, content: instruction }]),
    ],
    onModelResponse: ({ rawResponse }) => {
      if (rawResponse.usage !== undefined) usage.push(rawResponse.usage)
      report({ type: 'assistant_message', iteration, response: rawResponse })
    },
    requiresActionEvidence: () => evidence.isRequired,
    classifyTextResponse: ({ response }) => {
      if (response.stopKind === 'length' || response.stopKind === 'content_filter')
        return 'verified_final_response'
      if (hasControlTools)
        return {
          classification: 'non_progressing',
          transientInstruction: DEFAULT_CONTROL_TOOL_RECOVERY_INSTRUCTION,
        }
      return evidence.isEnough ? 'verified_final_response' : 'non_progressing'
    },
    onRejectedTextResponse: ({ state, response, responseText }) => {
      report({ type: 'text_rejected', iteration, text: responseText })
      return { state: { ...state, rejected: response.assistantMessage } }
    },
    onTextResponse: ({ state, response }) => ({
      state: { ...state, messages: [...state.messages, response.assistantMessage] },
    }),
    onToolCallsResponse: async ({ state, response, abortSignal: signal }) => {
      const round = await carryOut(response.tool_calls ?? [], iteration, signal, context)
      const next: State = {
        messages: [...state.messages, response.assistantMessage, ...round.messages],
        rejected: null,
        last: isLast(round) ? round : null,
      }
      if (next.last !== null) return { state: next }
      return {
        state: next,
        next: { control: 'continue' },
        toolResults: round.messages.map(({ tool_call_id: toolCallId = '', content }) => ({
          toolCallId,
          content,
        })),
      }
    },
  })
  const ended = toResult(result, evidence, usage)
  report({ type: ended.status, result: ended })
  return ended
}

/** The application's tools, and those that options add. */
function toolsOf({
  tools,
  extraTools,
  controlTools,
  webSearch,
}: CompleteRequest): Pick<CompleteRequest, 'tools' | 'extraTools'> {
  const hasControlTools = controlTools === true
  const search = typeof webSearch === 'function' ? webSearch : null
  if (!hasControlTools && search === null) return {}
  const own = { ...extraTools, ...tools }
  const all = search === null ? own : withWebSearch(own, search)
  return { tools: hasControlTools ? withControlTools(all) : all, extraTools: {} }
}

function limitsOf(request: CompleteRequest) {
  const { maxIterations, maxConsecutiveToolTurns, maxWallTimeMs, interruptGraceMs } = request
  const { repeatedToolCallGuard, emptyTextRetryLimit, rejectedTextRetryLimit = rejectedTextRetries } = request
  return {
    ...(maxIterations === undefined ? {} : { maxIterations }),
    ...(maxConsecutiveToolTurns === undefined ? {} : { maxConsecutiveToolTurns }),
    ...(maxWallTimeMs === undefined ? {} : { maxWallTimeMs }),
    ...(interruptGraceMs === undefined ? {} : { interruptGraceMs }),
    ...(repeatedToolCallGuard === undefined ? {} : { repeatedToolCallGuard }),
    ...(emptyTextRetryLimit === undefined ? {} : { emptyTextRetryLimit }),
    rejectedTextRetryLimit,
  }
}

function isLast({ pending, toolCalls, control }: Round): boolean {
  return pending.length > 0 || toolCalls.length > 0 || control !== null
}

function toResult(
  { state, ...loop }: RunTurnLoopResult<State>,
  evidence: Evidence,
  usage: readonly LLMUsage[],
): CompleteResult {
  const { last, messages } = state
  const sum = (field: keyof LLMUsage) => usage.reduce((total, one) => total + one[field], 0)
  return {
    ...endOf(loop.reason, loop.response, last),
    messages,
    pending: last?.pending ?? [],
    toolCalls: last?.toolCalls ?? [],
    evidence: evidence.seen,
    usage: {
      inputTokens: sum('inputTokens'),
      outputTokens: sum('outputTokens'),
      reasoningTokens: sum('reasoningTokens'),
    },
    loop,
  }
}

function endOf(
  reason: RunTurnLoopResult<State>['reason'],
  response: LLMResponse | null,
  last: Round | null,
): { status: CompleteStatus; reason: CompleteReason; content: string } {
  const content = response?.content ?? ''
  const stopKind = response?.stopKind
  const isCut = stopKind === 'length' || stopKind === 'content_filter'
  if (isCut && (reason === 'text_response' || reason === 'empty_text_stop'))
    return { status: 'failed', reason: stopKind, content }
  if (reason === 'text_response') return { status: 'completed', reason, content }
  if (reason !== 'tool_calls_response' || last === null) return { status: 'failed', reason, content }
  const { control, pending } = last
  if (control?.type === 'final_answer')
    return { status: 'completed', reason: control.type, content: control.answer }
  if (control?.type === 'blocked') return { status: 'failed', reason: control.type, content: control.reason }
  return pending.length > 0
    ? { status: 'waiting_for_human', reason: 'needs_user_input', content }
    : { status: 'tool_calls', reason, content }
}
