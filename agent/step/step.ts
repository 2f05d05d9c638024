/**
 * One step of a plan: the model speaks, tools answer, until the model answers in text. The turn loop is the runtime's; this is
 * what a step makes of it: what counts as an answer, what the person says meanwhile, and a value for every way it can end.
 */
import type { LLMResponse } from '#runtime/contract/contract.ts'
import type { Turn } from '#runtime/llm/client.ts'
import { reasonOf } from '#runtime/llm/errors.ts'
import type { ChatMessage, ToolCallRequest } from '#runtime/llm/messages.ts'
import { runTurnLoop } from '#runtime/turn-loop/loop.ts'
import type { RunTurnLoopResult } from '#runtime/turn-loop/types.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { noUsage } from '#specs/protocol/task.ts'
import type { Opening } from '../context/opening.ts'
import { stepFailedMark } from '../context/prompts.ts'
import { type AgentRun, listenTo } from '../run/run.ts'
import type { MessageReader, SteerMessage } from '../run/steering.ts'
import { truncate } from '../text/truncate.ts'
import { Conversation } from './conversation.ts'
import { runCalls } from './step-calls.ts'

export interface StepResult {
  readonly state: 'completed' | 'failed' | 'cancelled'
  /** The step's answer, or why it did not complete. */
  readonly text: string
  /** `completed` when it did. */
  readonly reason: RunReason
  /** The conversation as the model saw it last, its answer included; every tool call in it has its result. */
  readonly history: readonly ChatMessage[]
}

/** Empty answers in a row, and cut ones, that are asked again. */
const wastedTurnsMax = 2
/** Times that the same calls may give the same results. */
const sameCallsMax = 3
/** A cancelled tool has a second to end, and its end has to be told. */
const interruptGraceMs = 1_500

/** A turn as the loop takes it. */
interface StepResponse extends LLMResponse {
  readonly turn: Turn
}

/** Ends the loop with a failure that is the step's. */
class StepFailure extends Error {
  readonly reason: RunReason
  constructor(reason: RunReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/** Runs the step to its end. `opening` is the system and the user message; `signal` ends it early as cancelled. */
export async function runStep(
  step: Step,
  opening: Opening,
  run: AgentRun,
  signal: AbortSignal,
): Promise<StepResult> {
  // Messages of the person are the root agent's.
  using reader = run.agentPath === 'root' ? run.steering.join() : null
  const work = new StepUnderWay(step.id, opening, run, signal, reader)
  const end = (state: StepResult['state'], reason: RunReason, text: string): StepResult => ({
    state,
    reason,
    text: truncate(text, limits.documentMaxChars),
    history: work.conversation.history.messages,
  })
  try {
    const result = await work.perform()
    if (result.reason === 'aborted') {
      await work.keepPartial(result.iterations)
      return end('cancelled', 'cancelled', `interrupted ${work.doing}`)
    }
    return endOf(result, work, end, run)
  } catch (error) {
    if (error instanceof StepFailure) return end('failed', error.reason, error.message)
    throw error
  }
}

class StepUnderWay {
  readonly conversation: Conversation
  readonly #stepId: string
  readonly #run: AgentRun
  readonly #signal: AbortSignal
  readonly #reader: MessageReader | null
  /** Text of the answer on its way. */
  #partial: string[] = []
  #cutAnswers = 0
  denied = false
  doing = 'before the model spoke'

  constructor(
    stepId: string,
    opening: Opening,
    run: AgentRun,
    signal: AbortSignal,
    reader: MessageReader | null,
  ) {
    this.#stepId = stepId
    this.#run = run
    this.#signal = signal
    this.#reader = reader
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
      // The run's budget has the clock, which stands still while a person thinks.
      maxWallTimeMs: Number.MAX_SAFE_INTEGER,
      interruptGraceMs,
      emptyTextRetryLimit: wastedTurnsMax,
      rejectedTextRetryLimit: wastedTurnsMax,
      repeatedToolCallGuard: { maxConsecutiveSameBatches: sameCallsMax },
      buildMessages: async ({ transientInstruction, emptyTextRetryCount }) => {
        await this.#openTurn(transientInstruction, emptyTextRetryCount)
        return this.conversation.history.messages
      },
      callModel: ({ iteration }) => this.#ask(iteration),
      classifyTextResponse: ({ response }) => {
        if (response.turn.finishReason !== 'length' || this.#cutAnswers >= wastedTurnsMax)
          return 'verified_final_response'
        this.#cutAnswers++
        const transientInstruction =
          'Your reply was cut off at its length limit. Go on with a tool call, or give a shorter answer.'
        return { classification: 'non_progressing', transientInstruction }
      },
      // What came while the model gave its answer is not left unheard: it gets another turn.
      onTextResponse: ({ iteration }) =>
        this.#reader?.pending === true && iteration < maxTurnsPerStep ? go : { state: null },
      onToolCallsResponse: async ({ response }) => ({ ...go, toolResults: await this.#call(response.turn) }),
    })
  }

  /** What the model had said when it was cancelled: for the journal, and in the history. */
  async keepPartial(number: number): Promise<void> {
    const text = this.#partial.join('')
    if (text.trim() === '') return
    this.#partial = []
    this.conversation.history.addTurn({ text, reasoning: '', toolCalls: [] })
    const turn = { text, reasoning: '', toolCalls: [], usage: noUsage, finishReason: 'cancelled' }
    await reportTurn(this.#stepId, number, turn, this.#run)
  }

  /** Before the model is asked: a pause is waited for, and what there is to say is said. */
  async #openTurn(instruction: string | undefined, emptyAnswers: number): Promise<void> {
    await this.#run.steering.ready(this.#signal)
    if (this.#signal.aborted) return
    const { history } = this.conversation
    if (instruction !== undefined) history.addNote(`[Caisson] ${instruction}`)
    else if (emptyAnswers > 0)
      history.addNote('[Caisson] Your last reply was empty. Call a tool, or answer in text; keep it short.')
    const said = this.#reader?.take() ?? []
    if (said.length === 0) return
    this.conversation.hear(said)
    await reportSeen(this.#stepId, said, this.#run)
  }

  async #ask(number: number): Promise<StepResponse> {
    const run = this.#run
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
    // The loop has ended already, and tells what was said so far.
    if (this.#signal.aborted) throw new StepFailure('cancelled', 'interrupted')
    if (!answer.ok) {
      const { error } = answer
      throw new StepFailure(reasonOf(error), `the model failed: ${error.message}`)
    }
    const turn = withOwnIds(answer.value, run)
    this.#partial = []
    this.conversation.history.addTurn(turn)
    await reportTurn(this.#stepId, number, turn, run)
    if (turn.finishReason === 'content_filter')
      throw new StepFailure('model_refused', "the model's provider held the answer back (content filter)")
    return toResponse(turn)
  }

  /** Carries the turn's calls out; their results are in the history, also those that came late. */
  async #call(turn: Turn): Promise<{ toolCallId: string; content: string }[]> {
    this.doing = 'during tool calls'
    this.#cutAnswers = 0
    const { conversation } = this
    const outcome = await runCalls(this.#stepId, turn, this.#run, this.#signal, (...output) =>
      conversation.cutOutput(...output),
    )
    for (const { callId, output } of outcome) conversation.history.setResult(callId, output)
    this.denied ||= outcome.some(({ error }) => error?.code === 'denied')
    return outcome.map(({ callId, output }) => ({ toolCallId: callId, content: output }))
  }
}

/** Ids that no other call of the run has, in the alphabet that hosts and providers accept. */
function withOwnIds(turn: Turn, run: AgentRun): Turn {
  const toolCalls = turn.toolCalls.map(
    (call): ToolCallRequest => ({ ...call, id: run.callIds.claim(call.id) }),
  )
  return { ...turn, toolCalls }
}

/** For a conversation that is about to begin: what the person wrote and nobody has seen becomes what the run has seen. */
export async function hearPerson(stepId: string, run: AgentRun, signal: AbortSignal): Promise<void> {
  await run.steering.ready(signal)
  using reader = run.steering.join()
  await reportSeen(stepId, reader.take(), run)
}

async function reportSeen(stepId: string, said: readonly SteerMessage[], run: AgentRun): Promise<void> {
  if (said.length === 0) return
  const messageIds = said.map(({ messageId }) => messageId)
  await run.report.event({ type: 'steer-seen', stepId, messageIds })
}

/** Tells the host of a turn, and the budget of its tokens. */
export async function reportTurn(stepId: string, number: number, turn: Turn, run: AgentRun): Promise<void> {
  run.budget.addUsage(turn.usage)
  await run.report.event({
    type: 'turn-end',
    stepId,
    turn: number,
    text: truncate(turn.text, limits.documentMaxChars),
    calls: turn.toolCalls.map(({ id, name }) => ({ callId: id, tool: truncate(name, limits.lineMaxChars) })),
    usage: turn.usage,
    finishReason: truncate(turn.finishReason, 100),
  })
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
        `the agent repeated ${tool} with the same result after it was told to stop`,
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
