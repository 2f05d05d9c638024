/** Contract of what answers a chat request: a model server over HTTP, or the offline model. */

import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { WireError } from '../net/gateway-error.ts'
import type { ReportedFailure } from './usage-tap.ts'

export interface UpstreamAnswer {
  /** Whether the body is a stream of server-sent events; else one JSON document. */
  readonly streamed: boolean
  /** Response headers that the guest may see, with checked values. */
  readonly headers: Readonly<Record<string, string>>
  /** Size of the sent request in bytes. */
  readonly requestBytes: number
  /** Ending the iteration early cancels the request. Throws an {@link UpstreamBreak} when the body is interrupted. */
  readonly body: AsyncIterable<Uint8Array>
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
