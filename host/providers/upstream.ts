/** What answers a chat request: a model server over HTTP, or the offline model. The gateway treats both alike. */
import type { Result } from '#specs/protocol/error.ts'
import type { WireError } from '../net/gateway-error.ts'
import type { ChatRequest } from './chat-request.ts'
import type { ReportedFailure } from './usage-tap.ts'

export interface UpstreamAnswer {
  /** Whether the body is a stream of server-sent events; else one JSON document. */
  readonly streamed: boolean
  /** Response headers that the guest may see, values checked. */
  readonly headers: Readonly<Record<string, string>>
  /** Bytes of the request that was sent. */
  readonly requestBytes: number
  /** Ending the iteration early ends the request. Throws an {@link UpstreamBreak} when the body breaks off. */
  readonly body: AsyncIterable<Uint8Array>
  /** Told of an error that the provider reports inside the answer, so that later requests can wait. */
  readonly onFailure?: (failure: ReportedFailure) => void
}

export interface SendOptions {
  /** Output tokens that the run may still use, at least 1. */
  readonly maxTokens: number
  readonly signal: AbortSignal
  /** Told of each wait for a turn at the provider, in milliseconds. */
  readonly onQueued?: (ms: number) => void
}

export interface Upstream {
  send(request: ChatRequest, options: SendOptions): Promise<Result<UpstreamAnswer, WireError>>
  close(): Promise<void>
}

/** The end of a body that had begun: the error that the guest gets in the place of the rest. */
export class UpstreamBreak extends Error {
  override readonly name = 'UpstreamBreak'
  readonly error: WireError

  constructor(error: WireError) {
    super(error.message)
    this.error = error
  }
}
