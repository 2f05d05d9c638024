/** The state of a running loop, shared by its branches: counters, trace, guard, and the text of its end. */
import type { LLMResponse } from '../contract/contract.ts'
import { type Interruptions, interrupted } from './interruption.ts'
import type { TurnLoopLimits } from './limits.ts'
import { ToolRounds } from './tool-rounds.ts'
import type {
  TurnLoopClassificationSummary,
  TurnLoopRepeatedToolCallStopDetail,
  TurnLoopRetrySummary,
  TurnLoopStepBranch,
  TurnLoopStepSummary,
  TurnLoopTerminalReason,
  TurnLoopToolCallSummary,
} from './trace.ts'
import type { RunTurnLoopOptions, RunTurnLoopResult, TurnLoopStepResult } from './types.ts'

/** How the loop ended; null while it continues. */
export type End<TState, TResponse> = RunTurnLoopResult<TState, TResponse> | null

interface Trace {
  readonly steps: TurnLoopStepSummary[]
  readonly toolCalls: TurnLoopToolCallSummary[]
  readonly classifications: TurnLoopClassificationSummary[]
  readonly retries: TurnLoopRetrySummary[]
}

export class Progress<TState, TMessage, TResponse extends LLMResponse> {
  readonly options: RunTurnLoopOptions<TState, TMessage, TResponse>
  readonly limits: TurnLoopLimits
  readonly interruptions: Interruptions
  readonly trace: Trace = { steps: [], toolCalls: [], classifications: [], retries: [] }
  /** Every summary shows them. */
  readonly counters: {
    emptyTextRetryCount: number
    rejectedTextRetryCount: number
    consecutiveToolTurns: number
  }
  readonly rounds: ToolRounds
  state: TState
  /** Iterations started. */
  iteration = 0
  inIteration = false
  lastResponse: TResponse | null = null
  /** The answer of the current iteration. */
  answer: TResponse | null = null
  /** The model's partial answer. */
  partialText = ''
  /** Calls created from text so far. */
  syntheticCalls = 0
  /** Whether calls were carried out since the start or the last accepted text. */
  hasActionEvidence: boolean
  /** Instruction for the next request. */
  transientInstruction: string | undefined

  constructor(
    options: RunTurnLoopOptions<TState, TMessage, TResponse>,
    limits: TurnLoopLimits,
    interruptions: Interruptions,
  ) {
    this.options = options
    this.limits = limits
    this.interruptions = interruptions
    this.state = options.initialState
    this.hasActionEvidence = options.initialActionEvidence === true
    this.rounds = new ToolRounds(limits.maxConsecutiveSameBatches)
    this.counters = {
      emptyTextRetryCount: limits.initialEmptyTextRetryCount,
      rejectedTextRetryCount: limits.initialRejectedTextRetryCount,
      consecutiveToolTurns: 0,
    }
  }

  get isInterrupted(): boolean {
    return this.interruptions.check() !== null
  }

  /** Takes the state returned by a callback, also shortly after the deadline; `interrupted` without one in time. */
  async take<TResult extends TurnLoopStepResult<TState>>(
    work: TResult | undefined | PromiseLike<TResult | undefined>,
  ): Promise<TResult | undefined | typeof interrupted> {
    const taken = await this.interruptions.waitPatiently(work, this.limits.interruptGraceMs)
    if (taken === interrupted) return interrupted
    if (taken === undefined || taken === null) return undefined
    if ('state' in taken) this.state = taken.state
    return taken
  }

  addStep(branch: TurnLoopStepBranch): void {
    if (this.answer === null) return
    const { type, tool_calls: calls = [] } = this.answer
    this.trace.steps.push({
      iteration: this.iteration,
      responseKind: type,
      branch,
      elapsedMs: this.interruptions.elapsedMs,
      ...this.counters,
      syntheticToolCallCount: calls.filter((call) => call.synthetic === true).length,
    })
  }

  addRetry(retry: Omit<TurnLoopRetrySummary, 'iteration' | 'elapsedMs'>): void {
    const { elapsedMs } = this.interruptions
    this.trace.retries.push({ iteration: this.iteration, elapsedMs, ...retry })
  }

  /** Adds `instruction` to the next iteration's request. */
  nextTurn(branch: TurnLoopStepBranch, instruction: string | undefined): null {
    this.addStep(branch)
    this.transientInstruction = instruction
    return null
  }

  endInterrupted(): RunTurnLoopResult<TState, TResponse> {
    const kind = this.interruptions.check() ?? 'aborted'
    this.addStep(kind === 'timeout' ? 'timeout_stop' : 'aborted_stop')
    return this.end(kind)
  }

  end(
    reason: TurnLoopTerminalReason,
    repeatedToolCall?: TurnLoopRepeatedToolCallStopDetail,
  ): RunTurnLoopResult<TState, TResponse> {
    const { iteration, trace, partialText } = this
    const { elapsedMs } = this.interruptions
    const { maxIterations, maxConsecutiveToolTurns, maxWallTimeMs } = this.limits
    const { emptyTextRetryCount, rejectedTextRetryCount } = this.counters
    return {
      state: this.state,
      response: this.lastResponse,
      reason,
      iterations: iteration,
      emptyTextRetryCount,
      rejectedTextRetryCount,
      elapsedMs,
      steps: trace.steps,
      toolCalls: trace.toolCalls,
      classifications: trace.classifications,
      retries: trace.retries,
      stop: {
        reason,
        iteration,
        elapsedMs,
        maxIterations,
        maxConsecutiveToolTurns,
        maxWallTimeMs,
        ...(reason === 'timeout' && this.inIteration ? { timedOutDuringIteration: iteration } : {}),
        ...(reason === 'aborted' && this.inIteration ? { abortedDuringIteration: iteration } : {}),
        ...(partialText === '' ? {} : { partialText }),
        ...(repeatedToolCall === undefined ? {} : { repeatedToolCall }),
      },
    }
  }
}
