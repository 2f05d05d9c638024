/** A route of the HTTP service, declared once as a value: server, client, OpenAPI document and fuzzer read it. */
import type * as z from 'zod'

/** What a caller may do; `admin` has all of it. */
export const scopes = ['read', 'run', 'approve', 'apply', 'metrics', 'admin'] as const
export type Scope = (typeof scopes)[number]

/** A JSON object with these fields. */
type Fields = z.ZodObject<z.ZodRawShape>

export interface Reply {
  readonly status: 200 | 201 | 202 | 204
  readonly description: string
  /** Of the JSON body. Absent: there is none, or it is of another type. */
  readonly schema?: z.ZodType
  /** Another media type than JSON that a caller can ask for with `Accept`, or that is all there is. */
  readonly type?:
    | 'text/event-stream'
    | 'text/x-diff'
    | 'text/html'
    | 'text/plain; version=0.0.4'
    | 'application/json'
    | 'application/x-tar'
    /** One of several; the header `Content-Type` says which. */
    | 'image/*'
}

/** What a client sends as bytes. */
export type UploadBody = Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>

export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** With parameters in braces: `/v1/runs/{run}`. */
  readonly path: string
  /** What it does, for people; starts with a verb. */
  readonly summary: string
  /** Null: everybody may call it. */
  readonly scope: Scope | null
  readonly params?: Fields
  /** Texts; coerced where they are numbers. */
  readonly query?: Fields
  readonly body?: z.ZodType
  /** Media type of a body of bytes, in place of JSON. */
  readonly upload?: 'application/x-tar'
  /** Whether a request with the same `Idempotency-Key` is carried out once. */
  readonly isIdempotent?: boolean
  readonly reply: Reply
  /** What 200 says, with the same schema, where `reply` has another status. Absent: it is no answer. */
  readonly known?: string
  /** Status codes of refusals that belong to this route, besides those of every route. */
  readonly refusals?: readonly number[]
}

/** Keeps the exact types of a route's schemas. */
export function defineRoute<const R extends Route>(route: R): R {
  return route
}

export type InputOf<S> = S extends z.ZodType ? z.input<S> : never
export type OutputOf<S> = S extends z.ZodType ? z.output<S> : undefined

/** What a client passes to call a route. */
export type CallOf<R extends Route> = (R extends { params: infer P } ? { params: InputOf<P> } : object) &
  (R extends { query: infer Q } ? { query?: InputOf<Q> } : object) &
  (R extends { body: infer B }
    ? undefined extends InputOf<B>
      ? { body?: InputOf<B> }
      : { body: InputOf<B> }
    : object) &
  (R extends { upload: string } ? { body: UploadBody } : object) &
  (R extends { isIdempotent: true } ? { idempotencyKey?: string } : object)

/** What a handler gets: all of it checked. */
export interface RequestOf<R extends Route> {
  readonly params: R extends { params: infer P } ? OutputOf<P> : undefined
  readonly query: R extends { query: infer Q } ? OutputOf<Q> : undefined
  readonly body: R extends { body: infer B } ? OutputOf<B> : undefined
}

/** JSON body of the reply; undefined where there is none. */
export type ReplyOf<R extends Route> = R['reply'] extends { schema: infer S } ? OutputOf<S> : undefined
