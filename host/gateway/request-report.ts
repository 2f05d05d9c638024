/** Reports one model request to its run: start, what it waits for, retries, and its end exactly once. */
import type { IncomingHttpHeaders } from 'node:http2'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type ModelEnd, type ModelWait, RequestSource, sourceHeaders } from '#specs/protocol/model-request.ts'
import { noUsage, type Usage } from '#specs/protocol/task.ts'
import type { WireError } from '../net/gateway-error.ts'
import type { UpstreamRetry } from '../providers/upstream.ts'

type ModelEvent = Extract<HostEvent, { type: 'model-start' | 'model-retry' | 'model-end' }>

/** Receives the reports of a run's model requests. */
export interface RequestSink {
  /** For the journal. */
  readonly onModelEvent: (event: ModelEvent) => void
  /** Status; never journaled. */
  readonly onModelWait?: (wait: ModelWait) => void
}

/** Which model a request is for, if it is not the run's own. */
export type RequestedModel = Pick<ModelEnd, 'model' | 'stepModel'>

/** How a request ended; the report adds its ids and times. */
export type RequestOutcome = Pick<
  ModelEnd,
  'status' | 'usage' | 'estimated' | 'costUsd' | 'responseModel' | 'error'
>

/** What a request used although it failed. */
interface Spent {
  readonly usage?: Usage
  /** Null: unknown. */
  readonly costUsd?: number | null
  /** Absent: every usage of a failed request is an estimate. */
  readonly estimated?: boolean
}

/** Shortest wait that is reported, in milliseconds. */
const queuedMinMs = 50

export class RequestReport {
  /** The provider's own id of the exchange. */
  providerRequestId: string | undefined
  /** The model that answered in the place of the one that was asked for. */
  fallback: string | undefined
  readonly #id: string
  readonly #model: RequestedModel
  readonly #sink: RequestSink
  readonly #now: () => number
  readonly #startedAt: number
  #queuedMs = 0
  #attempts = 1
  #hasEnded = false

  constructor(
    id: string,
    source: RequestSource,
    model: RequestedModel,
    sink: RequestSink,
    now: () => number,
  ) {
    this.#id = id
    this.#model = model
    this.#sink = sink
    this.#now = now
    this.#startedAt = now()
    sink.onModelEvent({ type: 'model-start', requestId: id, ...source, ...this.#model })
  }

  /** @param inMs time until it is over */
  wait({ inMs, ...wait }: Pick<ModelWait, 'for' | 'position'> & { readonly inMs?: number }): void {
    const until = inMs === undefined ? {} : { until: Math.round(Date.now() + inMs) }
    if (!this.#hasEnded)
      this.#sink.onModelWait?.({ type: 'model-wait', requestId: this.#id, ...wait, ...until })
  }

  retry({ status, cause, delayMs, model }: UpstreamRetry): void {
    this.#attempts += 1
    this.#sink.onModelEvent({
      type: 'model-retry',
      requestId: this.#id,
      attempt: this.#attempts,
      status,
      cause: lineOf(cause),
      delayMs,
      ...(model === undefined ? {} : { fallback: model }),
    })
  }

  /** Adds time in queues. */
  addQueued(ms: number): void {
    this.#queuedMs += ms
  }

  /**
   * The request ended with an error, which its sender gets.
   * @param spent what it used anyway; its cost counts when anything was used
   */
  refuse({ status, code, message }: WireError, spent: Spent = {}): void {
    const { usage = noUsage, costUsd = null, estimated = usage !== noUsage } = spent
    const cost = costUsd === null || usage === noUsage ? {} : { costUsd }
    this.end({ status, usage, estimated, ...cost, error: `${code}: ${message}` })
  }

  /** The gateway itself failed. */
  fault(): void {
    this.end({ status: 502, usage: noUsage, estimated: false, error: 'the gateway failed on this request' })
  }

  /** Only the first call counts. */
  end({ error, ...outcome }: RequestOutcome): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    const durationMs = Math.max(0, Math.round(this.#now() - this.#startedAt - this.#queuedMs))
    this.#sink.onModelEvent({
      type: 'model-end',
      requestId: this.#id,
      ...(this.providerRequestId === undefined ? {} : { providerRequestId: this.providerRequestId }),
      ...this.#model,
      ...(this.fallback === undefined ? {} : { fallback: this.fallback }),
      ...outcome,
      durationMs,
      ...(this.#queuedMs < queuedMinMs ? {} : { queuedMs: Math.round(this.#queuedMs) }),
      ...(error === undefined ? {} : { error: lineOf(error) }),
    })
  }
}

/** What the agent says that a request is for; a value of another form counts as none. */
export function readSource(headers: IncomingHttpHeaders): RequestSource {
  const { agentPath, stepId, turn } = RequestSource.shape
  const source = {
    agentPath: agentPath.safeParse(headers[sourceHeaders.agentPath]).data,
    stepId: stepId.safeParse(headers[sourceHeaders.stepId]).data,
    turn: turn.safeParse(Number(headers[sourceHeaders.turn])).data,
  }
  return Object.fromEntries(Object.entries(source).filter(([, value]) => value !== undefined))
}

function lineOf(text: string): string {
  return text.replaceAll(/\s+/g, ' ').slice(0, limits.lineMaxChars)
}
