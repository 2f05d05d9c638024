/**
 * Spans of model requests. The host's events give start, end, usage and errors; the finish reason is in the agent's
 * `turn-end`, so an answered request waits for it. Which agent and turn a request belongs to is the agent's claim.
 */
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import type { Usage } from '#specs/protocol/task.ts'
import { answerOf, type ContentFilter } from './content.ts'
import { attributesOf, endSpan, type OpenSpan, OpenSpans, type SpanEnd } from './open-spans.ts'
import type { Attributes, TraceSpan } from './span.ts'

type Of<E extends { type: string }, T extends E['type']> = Extract<E, { type: T }>

/** The conventions' word for an error that has no code. */
const otherError = '_OTHER'

/** A request whose answer has not ended. */
interface OpenRequest extends OpenSpan {
  readonly turn: string
  /** Gateway attempts after the first. */
  resends: number
  /** What the agent said of the turn before the end of the answer. */
  said: Pick<SpanEnd, 'attributes' | 'error'> | undefined
}

/** A request whose answer has ended, and whose turn has not. */
interface AnsweredRequest extends OpenSpan {
  readonly turn: string
  readonly end: SpanEnd
}

export class RequestSpans {
  readonly #traceId: string
  readonly #filter: ContentFilter | undefined
  readonly #open = new OpenSpans<OpenRequest>()
  readonly #answered = new OpenSpans<AnsweredRequest>()

  constructor(traceId: string, filter: ContentFilter | undefined) {
    this.#traceId = traceId
    this.#filter = filter
  }

  /** @param span the request's, as it begins. @returns an earlier request of the same turn, which has no turn's end */
  start(event: Of<HostEvent, 'model-start'>, span: OpenSpan): TraceSpan[] {
    const turn = turnKey(event)
    const before = this.#finish(this.#answered.take(turn))
    this.#open.add(event.requestId, { ...span, turn, resends: 0, said: undefined })
    return before
  }

  retry({ requestId }: Of<HostEvent, 'model-retry'>): void {
    const request = this.#open.get(requestId)
    if (request !== undefined) request.resends += 1
  }

  end(event: Of<HostEvent, 'model-end'>, at: number): TraceSpan[] {
    const request = this.#open.take(event.requestId ?? '')
    if (request === undefined) return []
    const end: SpanEnd = {
      endMs: at,
      attributes: endAttributes(event, request.resends),
      error: errorOf(event),
    }
    const answered = { ...request, end }
    // Vectors have no turn; a turn that is over is not awaited.
    if (event.model !== undefined || request.said !== undefined) return this.#finish(answered, request.said)
    if (!this.#answered.add(request.turn, answered)) return this.#finish(answered)
    return []
  }

  /** The turn's end names the finish reason of its last request. */
  turnEnd(event: Of<AgentEvent, 'turn-end'>, agentPath: string): TraceSpan[] {
    const reasons = attributesOf({ 'gen_ai.response.finish_reasons': [event.finishReason] })
    const attributes = { ...reasons, ...answerOf(event, this.#filter) }
    return this.#settle(turnKey({ ...event, agentPath }), { attributes })
  }

  /** The agent could not use the answer, or did not get all of it. */
  turnRetry(event: Of<AgentEvent, 'turn-retry'>, agentPath: string): TraceSpan[] {
    const prefix = turnKey({ agentPath, stepId: event.stepId })
    const said = { error: plainCode(event.code) ?? otherError }
    // Of a request that the agent gave up, the end is still to come.
    for (const request of this.#open.values()) if (request.turn.startsWith(prefix)) request.said ??= said
    return this.#answered
      .takeAll(({ turn }) => turn.startsWith(prefix))
      .flatMap((request) => this.#finish(request, said))
  }

  /** Requests of an agent or a step that has ended. */
  release(agentPath: string, stepId?: string): TraceSpan[] {
    const prefix = turnKey({ agentPath, ...(stepId === undefined ? {} : { stepId }) })
    return this.#answered
      .takeAll(({ turn }) => turn.startsWith(prefix))
      .flatMap((request) => this.#finish(request))
  }

  /** All that is left. @param end how the open ones end */
  endAll(end: SpanEnd): TraceSpan[] {
    const answered = this.#answered.takeAll().flatMap((request) => this.#finish(request))
    return [...answered, ...this.#open.takeAll().map((request) => endSpan(this.#traceId, request, end))]
  }

  #settle(turn: string, said: Pick<SpanEnd, 'attributes' | 'error'>): TraceSpan[] {
    const answered = this.#answered.take(turn)
    if (answered !== undefined) return this.#finish(answered, said)
    // The agent may say that the turn is over before the host has read the last bytes of the answer.
    for (const request of this.#open.values()) if (request.turn === turn) request.said = said
    return []
  }

  #finish(
    request: AnsweredRequest | undefined,
    said: Pick<SpanEnd, 'attributes' | 'error'> = {},
  ): TraceSpan[] {
    if (request === undefined) return []
    const { end } = request
    const attributes = { ...end.attributes, ...said.attributes }
    const isKnown = end.error !== undefined && end.error !== otherError
    const error = isKnown ? end.error : (said.error ?? end.error)
    return [endSpan(this.#traceId, request, { ...end, attributes, error })]
  }
}

/** Tokens as the conventions name them; none where no request was counted. */
export function usageAttributes(usage: Usage): Attributes {
  if (usage.requests === 0) return {}
  return attributesOf({
    'gen_ai.usage.input_tokens': usage.inputTokens,
    'gen_ai.usage.output_tokens': usage.outputTokens,
    'gen_ai.usage.cache_read.input_tokens': usage.cachedTokens,
    'gen_ai.usage.reasoning.output_tokens': usage.reasoningTokens === 0 ? undefined : usage.reasoningTokens,
  })
}

function endAttributes(event: Of<HostEvent, 'model-end'>, resends: number): Attributes {
  return {
    ...usageAttributes(event.usage),
    ...attributesOf({
      'gen_ai.response.model': event.responseModel ?? event.fallback,
      'http.response.status_code': event.status,
      'http.request.resend_count': resends === 0 ? undefined : resends,
      'caisson.usage.estimated': event.estimated === true ? true : undefined,
      'caisson.cost_usd': event.costUsd,
      'caisson.queued_ms': event.queuedMs,
      'caisson.provider.request_id': event.providerRequestId,
    }),
  }
}

/** The gateway's errors are `code: text`; of another one only the status is of use. */
function errorOf({ error, status }: Of<HostEvent, 'model-end'>): string | undefined {
  if (error === undefined) return undefined
  return (
    plainCode(/^([a-z][a-z0-9_]*): /.exec(error)?.[1] ?? '') ?? (status >= 400 ? `${status}` : otherError)
  )
}

/** A code that groups failures; undefined for free text. */
function plainCode(text: string): string | undefined {
  return /^[a-z][a-z0-9_]{0,63}$/.test(text) ? text : undefined
}

/** A prefix of it names all turns of a step, or all of an agent. */
function turnKey({
  agentPath = 'root',
  stepId,
  turn,
}: {
  readonly agentPath?: string | undefined
  readonly stepId?: string | undefined
  readonly turn?: number | undefined
}): string {
  const parts = [agentPath, ...(stepId === undefined ? [] : [stepId]), ...(turn === undefined ? [] : [turn])]
  return parts.map((part) => `${part}\n`).join('')
}
