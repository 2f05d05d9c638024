/** A scripted model's replies as data, with short constructors. Stateless; a reply may be used many times. */
import type { LLMUsage } from '../contract/contract.ts'

export interface ScriptedCall {
  readonly name: string
  /** A value is serialized as JSON; text is used unchanged, so that arguments can be malformed. Default `{}`. */
  readonly arguments?: unknown
  /** Default `call-1`, `call-2` and so on, counted over the model's lifetime. */
  readonly id?: string
}

export interface ScriptedReply {
  /** A list is streamed in pieces. */
  readonly text?: string | readonly string[]
  readonly reasoning?: string
  readonly calls?: readonly ScriptedCall[]
  /** Default 10 tokens in, 5 out. */
  readonly usage?: Partial<LLMUsage>
  /** Finish reason; default `tool` with calls, else `natural`. */
  readonly stop?: 'natural' | 'tool' | 'length' | 'content_filter'
  /** Delay before the first output, in milliseconds. */
  readonly delayMs?: number
  /** The request fails without output. */
  readonly error?: ScriptedFailure
  /** After the output: silence until the client leaves, or a broken connection. */
  readonly broken?: 'hang' | 'cut'
}

export interface ScriptedFailure {
  /** HTTP status, such as 429. */
  readonly status: number
  readonly message: string
  /** Retry delay requested by the server. */
  readonly retryAfterMs?: number
}

/** Options of a reply besides its content. */
export type ReplyTerms = Omit<ScriptedReply, 'text' | 'calls' | 'error'>

/** A text answer; a list is streamed in pieces. */
export function text(content: string | readonly string[], terms: ReplyTerms = {}): ScriptedReply {
  return { text: content, ...terms }
}

/** An answer of tool calls. */
export function calls(...made: readonly ScriptedCall[]): ScriptedReply {
  return { calls: made }
}

/** A request that fails with this HTTP status. */
export function failure(
  status: number,
  message: string,
  terms: Pick<ScriptedFailure, 'retryAfterMs'> & Pick<ScriptedReply, 'delayMs'> = {},
): ScriptedReply {
  const { delayMs, ...rest } = terms
  return { error: { status, message, ...rest }, ...(delayMs === undefined ? {} : { delayMs }) }
}

/** The complete text of a reply; empty when it has none. */
export function textOf({ text: content = '' }: ScriptedReply): string {
  return typeof content === 'string' ? content : content.join('')
}

/** The arguments of a call as the model wrote them. */
export function argumentsOf({ arguments: given = {} }: ScriptedCall): string {
  return typeof given === 'string' ? given : JSON.stringify(given)
}

/** A short description of a reply, for failures. */
export function describeReply(reply: ScriptedReply): string {
  if (reply.error !== undefined) return `failure ${reply.error.status} ${shorten(reply.error.message)}`
  const said = textOf(reply)
  const parts = [
    ...(said === '' ? [] : [`text ${shorten(said)}`]),
    ...(reply.calls ?? []).map((call) => `call ${call.name}(${shorten(argumentsOf(call), false)})`),
    ...(reply.broken === undefined ? [] : [`then ${reply.broken}`]),
  ]
  return parts.length === 0 ? 'an empty reply' : parts.join(', ')
}

/** At most 120 characters of `content`, as a JSON string unless `quoted` is false. */
export function shorten(content: string, quoted = true): string {
  const cut = content.length > 120 ? `${content.slice(0, 119).toWellFormed()}…` : content
  return quoted ? JSON.stringify(cut) : cut
}
