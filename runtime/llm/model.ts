/**
 * The model as planner and steps use it: a request, then a complete turn or a typed failure. Retries with back-off, as
 * long as the failure may be transient and nothing of the answer was acted on. Nothing acts before a turn is complete,
 * unless the caller says otherwise.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  type ModelError,
  type ModelErrorCode,
  modelError,
  modelFailures,
} from '#specs/node/model-protocols/model-error.ts'
import type { Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import type { Result } from '#specs/protocol/error.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import { type ChatRequest, type ClientOptions, streamChat } from './client.ts'
import type { StreamPart, TokenCount } from './exchange.ts'
import type { ToolCallRequest, ToolSpec } from './messages.ts'
import { readTurnText, type SaidMessage } from './text-calls.ts'
import { isCutOff, ToolCallCollector, type ToolCallFragment, takeNamedCalls } from './tool-calls.ts'

/** A model's complete answer. */
export interface Turn {
  readonly text: string
  readonly reasoning: string
  /** Each has a name. */
  readonly toolCalls: readonly ToolCallRequest[]
  readonly usage: Usage
  /** `stop`, `tool_calls`, `length`, `content_filter` or the provider's own reason; `unknown` when it gave none. */
  readonly finishReason: string
  /** Provider data to send back with this answer; absent when there is none. */
  readonly providerState?: unknown
}

/** Maximum calls that the host accepts in one message. */
const toolCallsMaxCount = 128

export interface RetryPolicy {
  /** Upper limit on requests per turn, including the first, below each failure's own limit. */
  readonly maxAttempts?: number
  /** Replaces each failure's first delay; doubles up to `maxDelayMs`. */
  readonly firstDelayMs?: number
  /** Default 60 s. */
  readonly maxDelayMs?: number
  /** Random share of a delay, from 0 to 1. */
  readonly random?: () => number
}

export interface TurnHooks {
  readonly signal: AbortSignal
  /** Headers of the request besides the client's own; absent: none. */
  readonly headers?: Readonly<Record<string, string>>
  /** Receives text as it arrives; a retried request starts over. */
  onText?(text: string): void
  onReasoning?(text: string): void
  /** Receives the pieces of calls as they arrive. */
  onCall?(fragment: ToolCallFragment): void
  onRetry?(error: ModelError, delayMs: number): void
  /** Whether a failed request may be retried; absent: always. */
  mayRetry?(): boolean
}

export interface TurnRequest
  extends Pick<ChatRequest, 'messages' | 'tools' | 'toolChoice' | 'responseFormat' | 'effort'> {
  /** Maximum tokens of the answer; absent: the model's own limit. */
  readonly maxTokens?: number
}

/** Requests one turn from a model. */
export type Model = (request: TurnRequest, hooks: TurnHooks) => Promise<Result<Turn, ModelError>>

export interface ModelOptions extends Omit<ClientOptions, 'signal'>, RetryPolicy {
  readonly model: string
  /** Default 16,384: enough for a medium file, and within the limits of hosted models. */
  readonly maxTokens?: number
}

/**
 * A model behind `baseUrl`, for one run. The requests are not adapted to its server: the host's gateway does that, or
 * `adaptation` of {@link streamChat} for a client without a host.
 */
export function createModel(options: ModelOptions): Model {
  const streaming = new StreamingMode()
  const { model, maxTokens = 16_384 } = options
  return (request, hooks) => {
    const headers = { ...options.headers, ...hooks.headers }
    const clientOptions = { ...options, headers, signal: hooks.signal }
    const open = (stream: boolean) =>
      streamChat({ ...request, model, maxTokens: request.maxTokens ?? maxTokens, stream }, clientOptions)
    return requestWithRetry(open, request, { streaming }, options, hooks)
  }
}

/** The context of a turn: its text is searched for calls when tools were offered. */
export interface AskedFor {
  readonly messages: readonly SaidMessage[]
  readonly tools: readonly ToolSpec[]
}

/** How the next request is sent; a failure may change it. */
export interface RequestForm {
  readonly streaming: StreamingMode
  /** Absent where the gateway adapts requests. */
  readonly adaptation?: Adaptation
}

/** Sends a request in the form that its failures have led to, and retries it as {@link modelFailures} allows. */
export async function requestWithRetry(
  open: (streamed: boolean) => AsyncIterable<readonly StreamPart[]>,
  asked: AskedFor,
  { streaming, adaptation }: RequestForm,
  policy: RetryPolicy,
  hooks: TurnHooks,
): Promise<Result<Turn, ModelError>> {
  for (let attempt = 1; ; ) {
    const turn = await askOnce(open(streaming.isOn), streaming, hooks)
    if (turn.ok) {
      streaming.noteSuccess()
      return { ok: true, value: readTurnText(turn.value, asked) }
    }
    const { error } = turn
    if (hooks.mayRetry?.() === false) return turn
    // A changed form is a new request: it is sent at once, and each change happens once.
    const isAdapted = error.rejection !== undefined && adaptation?.adapt(error.rejection) === true
    if (isAdapted || streaming.adapt(error)) {
      hooks.onRetry?.(error, 0)
      continue
    }
    const attempts = Math.min(
      modelFailures[error.code].attempts,
      policy.maxAttempts ?? Number.POSITIVE_INFINITY,
    )
    if (attempt >= attempts) return turn
    const delayMs = pauseBefore(attempt, error, policy)
    attempt++
    hooks.onRetry?.(error, delayMs)
    try {
      await sleep(delayMs, undefined, { signal: hooks.signal })
    } catch {
      return { ok: false, error: modelError('cancelled', 'the request was cancelled') }
    }
  }
}

/** Failures of a streamed answer that a complete one would avoid, with their weights. */
const streamFaults: Partial<Record<ModelErrorCode, number>> = {
  stream_refused: 2,
  broken: 2,
  nameless_call: 2,
  truncated: 1,
  empty: 1,
}
/** Total weight at which streaming is disabled. */
const faultsMax = 2

/** Whether answers are streamed. Learns from failures alone; each change happens once, so requests never loop. */
export class StreamingMode {
  /** Since the last complete turn. */
  #faults = 0
  /** Over the whole run: these failures depend on what the model writes. */
  #cutArguments = 0
  #triedWhole = false
  #isOn = true

  get isOn(): boolean {
    return this.#isOn
  }

  /** Whether another form of the request may avoid truncated arguments. */
  get mayRepairArguments(): boolean {
    return this.#isOn && !this.#triedWhole
  }

  noteSuccess(): void {
    this.#faults = 0
  }

  /** Records a failure; true when the request should be sent at once in the other mode. */
  adapt({ code }: ModelError): boolean {
    if (!this.#isOn) {
      // Some servers only stream, and a long complete answer may exceed every timeout.
      this.#isOn = code === 'stream_required' || code === 'timed_out'
      return this.#isOn
    }
    if (code === 'cut_arguments') this.#cutArguments++
    else this.#faults += streamFaults[code] ?? 0
    if (this.#faults + this.#cutArguments < faultsMax || this.#triedWhole) return false
    this.#isOn = false
    this.#triedWhole = true
    return true
  }
}

async function askOnce(
  parts: AsyncIterable<readonly StreamPart[]>,
  streaming: StreamingMode,
  hooks: TurnHooks,
): Promise<Result<Turn, ModelError>> {
  const turn = await collectTurn(parts, (part) => {
    if (part.type === 'text') hooks.onText?.(part.text)
    else if (part.type === 'reasoning') hooks.onReasoning?.(part.text)
    else if (part.type === 'tool-call-delta') hooks.onCall?.(part.fragment)
  })
  // Truncation by the length limit is the model's own.
  if (!turn.ok || !streaming.mayRepairArguments || turn.value.finishReason === 'length') return turn
  const cut = turn.value.toolCalls.find(({ argumentsText }) => isCutOff(argumentsText))
  if (cut === undefined) return turn
  const message = `the arguments of a call of ${JSON.stringify(cut.name.slice(0, 64))} stop in the middle, in an answer said to be finished`
  return { ok: false, error: modelError('cut_arguments', message) }
}

/**
 * Folds the parts into a turn. Reasoning and calls inside its text stay there for `text-calls.ts`. `onPart` receives
 * text and reasoning as they arrive. Fails with the stream's error and discards partial output, which nothing has
 * acted on.
 */
export async function collectTurn(
  batches: AsyncIterable<readonly StreamPart[]>,
  onPart?: (part: StreamPart) => void,
): Promise<Result<Turn, ModelError>> {
  const text: string[] = []
  const reasoning: string[] = []
  const calls = new ToolCallCollector()
  let tokens: TokenCount = noUsage
  let finishReason = 'unknown'
  let providerState: unknown
  for await (const parts of batches) {
    for (const part of parts) {
      onPart?.(part)
      if (part.type === 'text') text.push(part.text)
      else if (part.type === 'tool-call-delta') calls.add(part.fragment)
      else if (part.type === 'reasoning') reasoning.push(part.text)
      else if (part.type === 'usage') tokens = greater(tokens, part.usage)
      else if (part.type === 'finish') finishReason = part.reason
      else if (part.type === 'state') providerState = part.state
      else return { ok: false, error: part.error }
    }
    if (calls.count > toolCallsMaxCount) {
      const message = `more than ${toolCallsMaxCount} tool calls in one answer`
      return { ok: false, error: modelError('answer_too_large', message) }
    }
  }
  const said = text.join('')
  const toolCalls = takeNamedCalls(calls.finish(), { text: said, finishReason })
  if (toolCalls === null)
    return { ok: false, error: modelError('nameless_call', 'the answer calls a tool without its name') }
  return {
    ok: true,
    value: {
      text: said.toWellFormed(),
      reasoning: reasoning.join('').toWellFormed(),
      toolCalls,
      usage: { requests: 1, ...tokens },
      finishReason,
      ...(providerState === undefined ? {} : { providerState }),
    },
  }
}

function greater(a: TokenCount, b: TokenCount): TokenCount {
  return {
    inputTokens: Math.max(a.inputTokens, b.inputTokens),
    outputTokens: Math.max(a.outputTokens, b.outputTokens),
    reasoningTokens: Math.max(a.reasoningTokens, b.reasoningTokens),
  }
}

function pauseBefore(attempt: number, error: ModelError, policy: RetryPolicy): number {
  const maxDelayMs = policy.maxDelayMs ?? 60_000
  const first = policy.firstDelayMs ?? modelFailures[error.code].firstDelayMs
  const full = Math.min(first * 2 ** (attempt - 1), maxDelayMs)
  const jittered = full / 2 + (full / 2) * (policy.random ?? drawFraction)()
  return Math.round(Math.max(jittered, Math.min(error.retryAfterMs ?? 0, 2 * maxDelayMs)))
}

/** Math.random would return the same values in every clone of a VM. */
function drawFraction(): number {
  return randomBytes(4).readUInt32BE() / 2 ** 32
}
