/**
 * Runs one plan step: the model and its tools take turns until the model answers in text. Uses the runtime's turn
 * loop; adds what counts as an answer, messages from the person, and one value for every way it can end.
 */
import type { LLMResponse } from '#runtime/contract/contract.ts'
import type { ChatMessage, ToolCallRequest } from '#runtime/llm/messages.ts'
import type { Turn } from '#runtime/llm/model.ts'
import { untilAborted } from '#runtime/processes/until-aborted.ts'
import { runTurnLoop } from '#runtime/turn-loop/loop.ts'
import type { RunTurnLoopResult } from '#runtime/turn-loop/types.ts'
import { reasonOf } from '#specs/node/model-protocols/model-error.ts'
import type { RunReason, ToolError, ToolErrorCode } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import { type Opening, windowOptionsOf } from '../context/opening.ts'
import { stepFailedMark } from '../context/prompts.ts'
import { windowOf } from '../context/window.ts'
import { type AgentRun, type CallIds, listenTo } from '../run/run.ts'
import type { MessageReader, SteerMessage } from '../run/steering.ts'
import { truncate } from '../text/truncate.ts'
import { argumentsMaxChars } from '../tool-calls/arguments.ts'
import type { Invocation } from '../tool-calls/call.ts'
import { Conversation } from './conversation.ts'
import { runCalls } from './step-calls.ts'
import { giveContext, reportShown } from './turn-context.ts'

export interface StepResult {
  readonly state: 'completed' | 'failed' | 'cancelled'
  /** The step's answer, or why it did not complete. */
  readonly text: string
  /** `completed` when it did. */
  readonly reason: RunReason
  /** Why it ended before it was done, when `text` is what the model said last, in the turn that a limit leaves. */
  readonly ended?: string
  /** The conversation as the model last saw it, including its answer; every tool call has a result. */
  readonly history: readonly ChatMessage[]
}

/** Maximum consecutive retries of empty or truncated answers. */
const wastedTurnsMax = 2
/** How often the same calls may return the same results. */
const sameCallsMax = 3
/** A cancelled tool has a second to end, and its end must be reported. */
const interruptGraceMs = 1_500

/** A turn in the form of the loop. */
interface StepResponse extends LLMResponse {
  readonly turn: Turn
}

/** Ends the loop with the step's failure. */
class StepFailure extends Error {
  readonly reason: RunReason
  /** Whether what is left of the budget is for a conclusion. */
  readonly isShortage: boolean
  constructor(reason: RunReason, message: string, isShortage = false) {
    super(message)
    this.reason = reason
    this.isShortage = isShortage
  }
}

/**
 * Runs the step to its end. `opening` is the system and user message; `signal` cancels it.
 * @param begun its first turn, already answered and reported; absent: the model is asked
 */
export async function runStep(
  step: Step,
  opening: Opening,
  run: AgentRun,
  signal: AbortSignal,
  begun?: Turn,
): Promise<StepResult> {
  using reader = run.steering.join()
  const work = new StepUnderWay(step.id, opening, run, signal, reader, begun)
  const end = (state: StepResult['state'], reason: RunReason, text: string): StepResult => ({
    state,
    reason,
    text: truncate(text, limits.documentMaxChars),
    history: work.conversation.history.messages,
  })
  try {
    const result = await work.perform()
    if (result.reason === 'aborted') {
      await work.keepPartial()
      const cut = end('cancelled', 'cancelled', `interrupted ${work.doing}`)
      const { tripped } = run.budget
      return tripped === null ? cut : await concluded(cut, tripped.message, work, end)
    }
    const ended = endOf(result, work, end, run)
    return ended.reason === 'limit_turns' ? await concluded(ended, ended.text, work, end) : ended
  } catch (error) {
    if (!(error instanceof StepFailure)) throw error
    const failed = end('failed', error.reason, error.message)
    return error.isShortage ? await concluded(failed, error.message, work, end) : failed
  }
}

/** The end of a step whose limit was reached, with what the model says in one turn more; as it was when that fails. */
async function concluded(
  cut: StepResult,
  why: string,
  work: StepUnderWay,
  end: (state: StepResult['state'], reason: RunReason, text: string) => StepResult,
): Promise<StepResult> {
  const text = await work.conclude(why)
  return text === '' ? cut : { ...end(cut.state, cut.reason, text), ended: why }
}

class StepUnderWay {
  readonly conversation: Conversation
  readonly #stepId: string
  readonly #run: AgentRun
  readonly #signal: AbortSignal
  readonly #reader: MessageReader
  /** The first turn, when it was reported before the step. */
  readonly #begun: Turn | undefined
  /** Streamed text of the answer. */
  #partial: string[] = []
  #cutAnswers = 0
  /** Of the last turn; null before the first. */
  #usage: Usage | null = null
  denied = false
  doing = 'before the model spoke'

  constructor(
    stepId: string,
    opening: Opening,
    run: AgentRun,
    signal: AbortSignal,
    reader: MessageReader,
    begun: Turn | undefined,
  ) {
    this.#stepId = stepId
    this.#run = run
    this.#signal = signal
    this.#reader = reader
    this.#begun = begun
    this.conversation = new Conversation(stepId, opening, run)
  }

  perform(): Promise<RunTurnLoopResult<null, StepResponse>> {
    const { maxTurnsPerStep } = this.#run.task.limits
    const go = { state: null, next: { control: 'continue' } } as const
    return runTurnLoop<null, ChatMessage, StepResponse>({
      initialState: null,
      abortSignal: this.#signal,
      maxIterations: maxTurnsPerStep,
      maxConsecutiveToolTurns: maxTurnsPerStep,
      // The run's budget keeps the time, since its clock stops during approvals.
      maxWallTimeMs: Number.MAX_SAFE_INTEGER,
      interruptGraceMs,
      emptyTextRetryLimit: wastedTurnsMax,
      rejectedTextRetryLimit: wastedTurnsMax,
      repeatedToolCallGuard: { maxConsecutiveSameBatches: sameCallsMax },
      buildMessages: async ({ iteration, transientInstruction, emptyTextRetryCount }) => {
        await this.#openTurn(iteration, transientInstruction, emptyTextRetryCount)
        return this.conversation.history.messages
      },
      callModel: ({ iteration }) => this.#ask(iteration),
      classifyTextResponse: ({ response }) => {
        if (response.turn.finishReason !== 'length' || this.#cutAnswers >= wastedTurnsMax)
          return 'verified_final_response'
        this.#cutAnswers++
        const transientInstruction =
          'Your reply was cut off at its length limit. Continue with a tool call, or give a shorter answer.'
        return { classification: 'non_progressing', transientInstruction }
      },
      // A message that arrived with the final answer gets another turn.
      onTextResponse: async ({ iteration }) =>
        (await this.#hasMore()) && iteration < maxTurnsPerStep ? go : { state: null },
      onToolCallsResponse: async ({ response }) => ({ ...go, toolResults: await this.#call(response.turn) }),
    })
  }

  /** Whether there is a message to answer. One that arrives later is not for a step that had ended before. */
  #hasMore(): Promise<boolean> {
    return this.#run.log.once(`more ${this.#stepId}`, async () => this.#reader.pending)
  }

  /** Reports what the model had said when it was cancelled, in the journal and the history. */
  async keepPartial(): Promise<void> {
    const text = this.#partial.join('')
    if (text.trim() === '') return
    this.#partial = []
    this.conversation.history.addTurn({ text, reasoning: '', toolCalls: [] })
    const turn = { text, reasoning: '', toolCalls: [], usage: noUsage, finishReason: 'cancelled' }
    await reportTurn(this.#stepId, turn, this.#run)
  }

  /**
   * One turn without calls, after a limit: what was done and what is left, for whoever continues. Empty when there is
   * no time or no answer.
   */
  async conclude(why: string): Promise<string> {
    const run = this.#run
    const signal = AbortSignal.any([run.cancelled, AbortSignal.timeout(run.concludeMs)])
    if (signal.aborted) return ''
    this.conversation.history.addNote(
      `[Caisson] A limit is reached: ${why}. No more calls are possible. Answer in plain text now, for whoever continues: what is done, what you found, what is left.`,
    )
    this.#partial = []
    const heard = listenTo(this.#stepId, run, signal)
    const answer = await untilAborted(this.conversation.conclude(heard), signal).catch(() => null)
    if (answer === null || !answer.ok) return ''
    const turn = { ...answer.value, toolCalls: [] }
    await reportTurn(this.#stepId, turn, run)
    this.conversation.history.addTurn(turn)
    return turn.text.trim()
  }

  /** Before each model request: waits for the end of a pause and adds new messages. */
  async #openTurn(number: number, instruction: string | undefined, emptyAnswers: number): Promise<void> {
    await this.#run.steering.ready(this.#signal)
    if (this.#signal.aborted) return
    const { history } = this.conversation
    if (instruction !== undefined) history.addNote(`[Caisson] ${instruction}`)
    else if (emptyAnswers > 0)
      history.addNote('[Caisson] Your last reply was empty. Call a tool, or answer in text; keep it short.')
    const said = await this.#heard()
    if (said.length > 0) {
      this.conversation.hear(said)
      await reportSeen(this.#stepId, said, this.#run)
    }
    // The first request of a step that was begun has been made.
    if (number === 1 && this.#begun !== undefined) return
    const given = await giveContext(this.#stepId, this.#run, this.#signal)
    if (this.#signal.aborted) return
    if (!given.ok) throw new StepFailure('denied', given.error)
    await reportShown(this.#stepId, this.conversation.tell(given.value), this.#run)
  }

  async #heard(): Promise<readonly SteerMessage[]> {
    const { log, steering } = this.#run
    const reader = this.#reader
    const said = await log.once(`heard ${this.#stepId}`, async () => reader.take())
    reader.forget(said)
    steering.restore(said)
    return said
  }

  async #ask(number: number): Promise<StepResponse> {
    if (number === 1 && this.#begun !== undefined) return this.#take(this.#begun)
    const run = this.#run
    const shortage = this.#usage === null ? null : run.budget.findShortage(this.#usage, run.task.price)
    if (shortage !== null) throw new StepFailure(shortage.reason, shortage.message, true)
    this.doing = 'while the model was speaking'
    const heard = listenTo(this.#stepId, run, this.#signal)
    const answer = await this.conversation.ask({
      ...heard,
      onText: (text) => {
        this.#partial.push(text)
        heard.onText?.(text)
      },
      onRetry: (error, delayMs) => {
        this.#partial = []
        heard.onRetry?.(error, delayMs)
      },
    })
    // The loop has ended and reports the text so far.
    if (this.#signal.aborted) throw new StepFailure('cancelled', 'interrupted')
    if (!answer.ok) {
      const { error } = answer
      throw new StepFailure(reasonOf(error), `the model failed: ${error.message}`)
    }
    const turn = withOwnIds(answer.value, run.callIds.ofStep(this.#stepId))
    this.#partial = []
    await reportTurn(this.#stepId, turn, run)
    return this.#take(turn)
  }

  #take(turn: Turn): StepResponse {
    this.#usage = turn.usage
    this.conversation.history.addTurn(withoutLongArguments(turn))
    if (turn.finishReason === 'content_filter')
      throw new StepFailure('model_refused', "the model's provider held the answer back (content filter)")
    return toResponse(turn)
  }

  /** Executes the turn's calls; their results are in the history, including late ones. */
  async #call(turn: Turn): Promise<{ toolCallId: string; content: string }[]> {
    this.doing = 'during tool calls'
    this.#cutAnswers = 0
    const { conversation } = this
    const outcome = await runCalls(this.#stepId, turn, this.#run, this.#signal, (...output) =>
      conversation.cutOutput(...output),
    )
    for (const { callId, output } of outcome) conversation.history.setResult(callId, output)
    const pictures = outcome.flatMap(({ picture }) => (picture === undefined ? [] : [picture]))
    if (pictures.length > 0) conversation.history.addPictures(pictures)
    this.denied ||= outcome.some(({ error, hasDeniedCall }) => hasDeniedCall || error?.code === 'denied')
    const broken = outcome.find((invocation) => isFunctionFailure(invocation, this.#run))
    if (broken?.error !== undefined && !this.#signal.aborted)
      throw new StepFailure(
        this.denied ? 'denied' : 'step_failed',
        describeFunctionFailure(broken.tool, broken.error),
      )
    return outcome.map(({ callId, output }) => ({ toolCallId: callId, content: output }))
  }
}

/** What a model can correct itself: the function was not called. */
const correctable: ReadonlySet<ToolErrorCode> = new Set(['invalid_input', 'unknown_tool'])

/** Whether a function of a workflow failed, which ends its step. */
function isFunctionFailure(
  { tool, error }: Pick<Invocation, 'tool' | 'error'>,
  { functions }: AgentRun,
): boolean {
  if (error === undefined || functions?.names.includes(tool) !== true) return false
  return !correctable.has(error.code)
}

export function describeFunctionFailure(
  name: string,
  { code, message }: Pick<ToolError, 'code' | 'message'>,
): string {
  return `the function ${name} failed (${code}): ${message}`
}

/**
 * The turn as the conversation repeats it. No tool takes arguments over the bound, and with them no later request
 * would fit through the gateway: the call's result says why they are gone.
 */
function withoutLongArguments(turn: Turn): Turn {
  const isLong = ({ argumentsText }: ToolCallRequest) => argumentsText.length > argumentsMaxChars
  if (!turn.toolCalls.some(isLong)) return turn
  const toolCalls = turn.toolCalls.map((call) => (isLong(call) ? { ...call, argumentsText: '{}' } : call))
  return { ...turn, toolCalls }
}

/** Ids unique in the run, in the alphabet that hosts and providers accept. */
export function withOwnIds(turn: Turn, ids: CallIds): Turn {
  const toolCalls = turn.toolCalls.map((call): ToolCallRequest => ({ ...call, id: ids.claim(call.id) }))
  return { ...turn, toolCalls }
}

/** For a new conversation: marks the person's unseen messages as seen by the run. */
export async function hearPerson(stepId: string, run: AgentRun, signal: AbortSignal): Promise<void> {
  await run.steering.ready(signal)
  using reader = run.steering.join()
  const said = await run.log.once(`heard ${stepId}`, async () => reader.take())
  run.steering.restore(said)
  await reportSeen(stepId, said, run)
}

async function reportSeen(stepId: string, said: readonly SteerMessage[], run: AgentRun): Promise<void> {
  if (said.length === 0) return
  const messageIds = said.map(({ messageId }) => messageId)
  await run.report.event({ type: 'steer-seen', stepId, messageIds })
}

/** Reports a turn to the host and its tokens to the budget. */
export async function reportTurn(stepId: string, turn: Turn, run: AgentRun): Promise<void> {
  run.budget.addUsage(turn.usage, run.task.price)
  await run.report.event({
    type: 'turn-end',
    stepId,
    turn: run.report.turnOf(stepId),
    text: truncate(turn.text, limits.documentMaxChars),
    ...(turn.reasoning === '' ? {} : { reasoning: truncate(turn.reasoning, limits.documentMaxChars) }),
    calls: turn.toolCalls.map(({ id, name }) => ({ callId: id, tool: truncate(name, limits.lineMaxChars) })),
    usage: turn.usage,
    finishReason: truncate(turn.finishReason, 100),
    ...contextOf(turn, run),
  })
}

/** How full the model's window is; nothing where its server reports no usage. */
function contextOf({ usage }: Turn, run: AgentRun): { context?: { tokens: number; maxTokens: number } } {
  if (usage.inputTokens === 0) return {}
  const { inputTokens } = windowOf(windowOptionsOf(run))
  return { context: { tokens: usage.inputTokens + usage.outputTokens, maxTokens: inputTokens } }
}

function endOf(
  result: RunTurnLoopResult<null, StepResponse>,
  { denied }: StepUnderWay,
  end: (state: StepResult['state'], reason: RunReason, text: string) => StepResult,
  run: AgentRun,
): StepResult {
  const failed = denied ? 'denied' : 'step_failed'
  switch (result.reason) {
    case 'text_response': {
      const answer = result.response?.content.trim() ?? ''
      if (!answer.startsWith(stepFailedMark)) return end('completed', 'completed', answer)
      const why = answer.slice(stepFailedMark.length).trim()
      return end('failed', failed, why === '' ? 'the agent gave no reason' : why)
    }
    case 'empty_text_stop':
      return end('failed', 'model_broken', `the model gave ${wastedTurnsMax + 1} empty answers in a row`)
    case 'repeated_tool_call_stopped': {
      const tool = result.stop.repeatedToolCall?.tool ?? 'its calls'
      return end(
        'failed',
        failed,
        `the agent repeated ${tool} with the same result after it was asked to stop`,
      )
    }
    case 'max_iterations_exceeded': {
      const turns = run.task.limits.maxTurnsPerStep
      return end('failed', 'limit_turns', `the step was not done after ${turns} turns of the model`)
    }
    default:
      throw new Error(`the turn loop ended a step with ${result.reason}, which a step never asks for`)
  }
}

function toResponse(turn: Turn): StepResponse {
  const content = turn.text
  const assistantMessage = { role: 'assistant', content } as const
  const stopKind = turn.finishReason === 'length' ? 'length' : 'unknown'
  if (turn.toolCalls.length === 0) return { type: 'text', content, assistantMessage, stopKind, turn }
  const calls = turn.toolCalls.map(
    ({ id, name, argumentsText }) =>
      ({ id, type: 'function', function: { name, arguments: argumentsText } }) as const,
  )
  return { type: 'tool_calls', content, tool_calls: calls, assistantMessage, stopKind, turn }
}
