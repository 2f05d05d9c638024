/** What a handler of a route gets and gives. */
import type { Readable } from 'node:stream'
import type { ReplyOf, RequestOf } from '#specs/service/route.ts'
import type { RouteName, routes } from '#specs/service/routes.ts'
import type { Caller } from './callers.ts'
import type { EventStream } from './events.ts'

export interface Call {
  readonly caller: Caller
  readonly idempotencyKey: string | undefined
  readonly ifNoneMatch: string | undefined
  /** Header `A2A-Version`. */
  readonly a2aVersion?: string | undefined
  /** Origin by which the client reaches the service; absent for a call without a request. */
  readonly baseUrl?: string
  /** Aborted when the client is gone, and for a request that waits also when the service ends. */
  readonly signal: AbortSignal
  /** The body of a route that takes bytes. */
  readonly upload?: Readable
}

/**
 * A JSON body with headers, text of the route's own type, bytes whose type is a header, or a stream. Another status than the
 * route's: what was known before (200), or nothing new (304).
 */
export interface Answer<T> {
  readonly body: T
  readonly headers?: Readonly<Record<string, string>>
  readonly status?: 200 | 304
}

export type Handlers = {
  readonly [N in RouteName]: (
    request: RequestOf<(typeof routes)[N]>,
    call: Call,
  ) => Promise<Answer<ReplyOf<(typeof routes)[N]> | string | Readable | Uint8Array | EventStream>>
}
