/** What a scripted model says, as data, and short ways to write it. Holds no state; a reply may be used many times. */
import type { LLMUsage } from '../contract/contract.ts'

export interface ScriptedCall {
  readonly name: string
  /** A value goes as its JSON, text goes as it is: so arguments can be ill-formed too. Default `{}`. */
  readonly arguments?: unknown
  /** Default `call-1`, `call-2` and so on, counted by the model over its whole life. */
  readonly id?: string
}

export interface ScriptedReply {
  /** A list is streamed piece by piece. */
  readonly text?: string | readonly string[]
  readonly reasoning?: string
  readonly calls?: readonly ScriptedCall[]
  /** Default 10 tokens in, 5 out. */
  readonly usage?: Partial<LLMUsage>
  /** Why the model stops; default `tool` with calls, else `natural`. */
  readonly stop?: 'natural' | 'tool' | 'length' | 'content_filter'
  /** Pause before anything is said, in milliseconds. */
  readonly delayMs?: number
  /** The request fails; nothing is said. */
  readonly error?: ScriptedFailure
  /** After what is said: silence until the asker goes away, or a connection that breaks. */
  readonly broken?: 'hang' | 'cut'
}

export interface ScriptedFailure {
  /** HTTP status, such as 429. */
  readonly status: number
  readonly message: string
  /** The server's wish for a pause. */
  readonly retryAfterMs?: number
}

/** What goes with a reply beside what it says. */
export type ReplyTerms = Omit<ScriptedReply, 'text' | 'calls' | 'error'>

/** An answer in text; a list is streamed piece by piece. */
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

/** The whole text of a reply; empty when it has none. */
export function textOf({ text: content = '' }: ScriptedReply): string {
  return typeof content === 'string' ? content : content.join('')
}

/** The arguments of a call as the model wrote them. */
export function argumentsOf({ arguments: given = {} }: ScriptedCall): string {
  return typeof given === 'string' ? given : JSON.stringify(given)
}

/** A reply in a few words, for failures. */
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
