/**
 * Contract of what answers a chat request: a model server over HTTP, or the offline model. Reads from an answer what the
 * host needs: the usage, whether it is complete, an error inside it. Providers report usage once, on several chunks, or
 * never: the largest number counts, never the sum.
 */
import { createParser } from 'eventsource-parser'
import { z } from 'zod'
import type { ProviderFailure } from '#specs/node/provider-quirks/error-words.ts'
import {
  classifyProviderError,
  errorWithin,
  readProviderError,
} from '#specs/node/provider-quirks/provider-error.ts'
import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Usage } from '#specs/protocol/task.ts'
import { parseJson } from '../files/json.ts'
import type { WireError } from '../net/gateway-error.ts'

export interface UpstreamAnswer {
  /** Whether the body is a stream of server-sent events; else one JSON document. */
  readonly streamed: boolean
  /** Response headers that the guest may see, with checked values. */
  readonly headers: Readonly<Record<string, string>>
  /** Size of the sent request in bytes. */
  readonly requestBytes: number
  /** Ending the iteration early cancels the request. Throws an {@link UpstreamBreak} when the body is interrupted. */
  readonly body: AsyncIterable<Uint8Array>
  /** The model that answers in the place of the one that was asked for. Absent: that one. */
  readonly model?: string
  /** Whether it was paid for before: an agent that continues a run gets an answer again. Absent: no. */
  readonly isPaid?: true
  /** Called with an error that the provider reports inside the answer, so that later requests can wait. */
  readonly onFailure?: (failure: ReportedFailure) => void
}

export interface SendOptions {
  /** Output tokens left in the run's budget, at least 1. */
  readonly maxTokens: number
  readonly signal: AbortSignal
  /** Called with each wait for the provider in milliseconds. */
  readonly onQueued?: (ms: number) => void
  /** Called at each change of what it waits for. */
  readonly onWait?: (wait: UpstreamWait) => void
  readonly onRetry?: (retry: UpstreamRetry) => void
}

export interface Upstream {
  send(request: CompletionRequest, options: SendOptions): Promise<Result<UpstreamAnswer, WireError>>
  close(): Promise<void>
}

/** What a request waits for. */
export interface UpstreamWait {
  readonly for: 'turn' | 'rate' | 'pause' | 'answer'
  readonly position?: number
  /** Time until it is over. Absent: unknown. */
  readonly inMs?: number
}

/** A request that the server refused, and that is sent again. */
export interface UpstreamRetry {
  readonly status: number
  readonly cause: string
  /** Pause before it is sent; 0 for a changed request. */
  readonly delayMs: number
  /** The model that gets it now. Absent: the same. */
  readonly model?: string
}

/** An interrupted body: the error that the guest gets instead of the rest. */
export class UpstreamBreak extends Error {
  override readonly name = 'UpstreamBreak'
  readonly error: WireError

  constructor(error: WireError) {
    super(error.message)
    this.error = error
  }
}

const TokenCount = z.number().int().min(0).max(1e12).catch(0)
const WireUsage = z.object({
  prompt_tokens: TokenCount,
  completion_tokens: TokenCount,
  prompt_tokens_details: z.object({ cached_tokens: TokenCount }).nullish().catch(null),
  /** DeepSeek's name for it. */
  prompt_cache_hit_tokens: TokenCount.nullish(),
  completion_tokens_details: z.object({ reasoning_tokens: TokenCount }).nullish().catch(null),
})
const Usages = z.object({ usage: WireUsage.nullish().catch(null) })
const Chunk = Usages.extend({
  model: z.string().min(1).max(limits.lineMaxChars).nullish().catch(null),
  /** Some servers report the usage here. */
  choices: z.array(Usages).min(1).nullish().catch(null),
})

/** An error reported inside an answer with status 200. */
export interface ReportedFailure {
  readonly failure: ProviderFailure
  /** Requested pause; null if none. */
  readonly retryAfterMs: number | null
}

export interface UsageTap {
  push(chunk: Uint8Array): void
  /** Null until the provider reports an error. */
  readonly failure: ReportedFailure | null
  /** The current state; numbers that the provider did not report are estimated from the bytes. */
  read(): { usage: Usage; estimated: boolean; model: string | null; done: boolean; error: string | null }
}

/** Maximum characters of one parsed SSE event; a longer one is passed on unparsed. */
const eventMaxChars = 1024 * 1024
const toldApart = /"(?:usage|error|base_resp)"/
/** Approximate bytes of English text per token, for providers that report nothing. */
const bytesPerToken = 4
/** Approximate bytes of JSON around one delta. */
const deltaOverhead = 5

/** For a stream of server-sent events. @param requestBytes size of the request, for the estimate */
export function createStreamTap(requestBytes: number): UsageTap {
  const decoder = new TextDecoder()
  const state = newState(requestBytes)
  const parser = createParser({
    maxBufferSize: eventMaxChars,
    onEvent: (event) => {
      if (event.data === '[DONE]') state.done = true
      // Most chunks are small deltas: parses only those that can matter.
      else if (event.event === 'error') noteError(parseJson(event.data) ?? event.data, state)
      else if (toldApart.test(event.data)) readChunk(event.data, state)
    },
  })
  let broken = false
  return {
    push(chunk) {
      state.bytes += chunk.byteLength
      if (broken) return
      try {
        parser.feed(decoder.decode(chunk, { stream: true }))
      } catch {
        // An event over the limit: it is passed on, and the usage is estimated.
        broken = true
      }
    },
    get failure() {
      return state.failure
    },
    read: () => summarize(state, deltaOverhead),
  }
}

/** For a whole JSON answer. */
export function readWholeAnswer(body: Buffer, requestBytes: number): ReturnType<UsageTap['read']> {
  const state = newState(requestBytes)
  state.bytes = body.length
  readChunk(body.toString('utf8'), state)
  state.done = true
  return summarize(state, 1)
}

/** For a complete answer in either form. */
export function readUsage(
  body: Buffer,
  { streamed, requestBytes }: { readonly streamed: boolean; readonly requestBytes: number },
): { readonly usage: Usage; readonly estimated: boolean } {
  const tap = createStreamTap(requestBytes)
  if (streamed) tap.push(body)
  const { usage, estimated } = streamed ? tap.read() : readWholeAnswer(body, requestBytes)
  return { usage, estimated }
}

interface TapState {
  requestBytes: number
  bytes: number
  input: number
  /** Null until reported. */
  cached: number | null
  output: number
  reasoning: number
  /** As the server names it beside the usage; null until then. */
  model: string | null
  done: boolean
  failure: ReportedFailure | null
}

function newState(requestBytes: number): TapState {
  return {
    requestBytes,
    bytes: 0,
    input: 0,
    cached: null,
    output: 0,
    reasoning: 0,
    model: null,
    done: false,
    failure: null,
  }
}

function readChunk(text: string, state: TapState): void {
  const value = parseJson(text)
  const error = errorWithin(value)
  if (error !== undefined) noteError(error, state)
  const chunk = Chunk.safeParse(value).data
  const usage = chunk?.usage ?? chunk?.choices?.[0]?.usage
  if (!usage) return
  state.model = chunk?.model ?? state.model
  state.input = Math.max(state.input, usage.prompt_tokens)
  const cached = usage.prompt_tokens_details?.cached_tokens ?? usage.prompt_cache_hit_tokens
  if (cached != null) state.cached = Math.max(state.cached ?? 0, cached)
  state.output = Math.max(state.output, usage.completion_tokens)
  state.reasoning = Math.max(state.reasoning, usage.completion_tokens_details?.reasoning_tokens ?? 0)
}

/** Keeps the error's meaning, not its text. */
function noteError(error: unknown, state: TapState): void {
  const said = readProviderError(error)
  state.failure ??= { failure: classifyProviderError(said, null), retryAfterMs: said.retryAfterMs }
}

function summarize(state: TapState, overhead: number): ReturnType<UsageTap['read']> {
  const { failure } = state
  const estimated = state.input === 0 && state.output === 0
  const inputTokens = estimated ? Math.ceil(state.requestBytes / bytesPerToken) : state.input
  const outputTokens = estimated ? Math.ceil(state.bytes / bytesPerToken / overhead) : state.output
  const cached = state.cached === null ? {} : { cachedTokens: Math.min(state.cached, inputTokens) }
  const usage = { requests: 1, inputTokens, ...cached, outputTokens, reasoningTokens: state.reasoning }
  const error = failure === null ? null : `the provider reported an error in its answer (${failure.failure})`
  return { usage, estimated, model: state.model, done: state.done, error }
}
