/**
 * A recording: what went between a run and its model, and the web, so that the run can be repeated without either. JSON
 * lines, `exchanges.jsonl` in the run's directory; the first is the header. A conversation grows by its end, so an
 * exchange names an earlier one and how many messages it shares with it, and a recording stays linear in the run. An image
 * has a line of its own before the first exchange with it, and messages name it by its digest.
 */
import { createHash } from 'node:crypto'
import * as z from 'zod'
import type { CompletionMessage, CompletionRequest } from '#specs/protocol/completion-request.ts'
import { splitImageUrl } from '#specs/protocol/image.ts'
import { Count, Line, Milliseconds, RunId, Sha256 } from '#specs/protocol/text.ts'

export const RecordingHeader = z.strictObject({
  version: z.literal(1),
  runId: RunId,
  /** Model id and provider of the run; the repetition asks for the same. */
  model: Line,
  provider: Line,
  at: Milliseconds,
})
export type RecordingHeader = z.infer<typeof RecordingHeader>

const Failure = z.strictObject({
  status: z.int().min(100).max(599),
  message: z.string(),
  type: z.string(),
  code: z.string(),
  retryAfterMs: Milliseconds.optional(),
})

const ModelAnswer = z.discriminatedUnion('ok', [
  z.strictObject({
    ok: z.literal(true),
    /** Whether `body` is a stream of server-sent events; else one JSON document. */
    streamed: z.boolean(),
    headers: z.record(z.string(), z.string()),
    /** The model that answered; absent: the run's own. */
    model: Line.optional(),
    /** The whole of it, after keys were taken out. */
    body: z.string(),
    /** The error with which it broke off; absent when it was whole. */
    broken: Failure.optional(),
  }),
  z.strictObject({ ok: z.literal(false), error: Failure }),
])
export type ModelAnswer = z.infer<typeof ModelAnswer>

/** What is recorded by its request and answer alone: the web tools, vectors of texts, and calls of host tools. */
const WebKind = z.enum(['fetch', 'search', 'embed', 'call'])
export type WebKind = z.infer<typeof WebKind>

export const Exchange = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('model'),
    /** Digest of the request, see {@link digestChat}. */
    key: Sha256,
    /** The exchange with which it shares its first `shared` messages, counted from 0; null for none. */
    parent: Count.nullable(),
    shared: Count,
    /** The messages behind those. */
    messages: z.array(z.unknown()),
    /** Tools and all else of the request; absent: as in the parent. */
    settings: z.unknown().optional(),
    answer: ModelAnswer,
  }),
  z.strictObject({
    kind: WebKind,
    key: Sha256,
    request: z.unknown(),
    answer: z.discriminatedUnion('ok', [
      z.strictObject({ ok: z.literal(true), value: z.unknown() }),
      z.strictObject({ ok: z.literal(false), error: Failure }),
    ]),
  }),
  /** An image of the messages behind it. */
  z.strictObject({
    kind: z.literal('image'),
    sha256: Sha256,
    /** Its bytes as a data URL. */
    url: z.string(),
  }),
  /** The last line, after the size limit was reached. */
  z.strictObject({ kind: z.literal('full') }),
])
export type Exchange = z.infer<typeof Exchange>

/** How long a command took, in the words of the agent's tools: never the same twice. */
const elapsed = /\[([^[\]\n]{0,80}), after [\d.]{1,10} m?s\]/g

/** The message with the digests of its images in the place of their data URLs; an image that has one keeps it. */
export function nameImages(
  message: CompletionMessage,
  onImage: (sha256: string, url: string) => void = () => undefined,
): CompletionMessage {
  if (message.role !== 'user' || typeof message.content === 'string') return message
  const content = message.content.map((part) => {
    if (part.type !== 'image_url') return part
    const { url } = part.image_url
    const split = splitImageUrl(url)
    if (split === null) return part
    const digest = createHash('sha256').update(Buffer.from(split.base64, 'base64')).digest('hex')
    onImage(digest, url)
    return { ...part, image_url: { ...part.image_url, url: `sha256:${digest}` } }
  })
  return { ...message, content }
}

/** A chat request by its parts: a digest for each message, one for the rest, and one for all. */
export interface ChatDigest {
  readonly key: string
  readonly messages: readonly string[]
  readonly settings: string
}

/**
 * Limits, reasoning, the ids of calls and the durations of commands are left out: the first are the host's choice, few
 * servers get the reasoning, an id that a server left out is drawn at random, and no command takes as long twice. Calls are
 * numbered in their order instead. A request has a model only where a step chose one.
 */
export function digestChat(request: CompletionRequest): ChatDigest {
  const { messages, settings } = splitChat(request)
  const numbers = new Map<string, string>()
  const numberOf = (id: string) => {
    if (!numbers.has(id)) numbers.set(id, `call-${numbers.size + 1}`)
    return numbers.get(id)
  }
  const digests = messages.map((message) => {
    if (message.role === 'tool') {
      const content = message.content.replace(elapsed, '[$1]')
      return sha256({ ...message, content, tool_call_id: numberOf(message.tool_call_id) })
    }
    if (message.role !== 'assistant') return sha256(nameImages(message))
    const { reasoning_content: _reasoning, ...said } = message
    if (said.tool_calls === undefined) return sha256(said)
    const calls = said.tool_calls.map((call) => ({ ...call, id: numberOf(call.id) }))
    return sha256({ ...said, tool_calls: calls })
  })
  const rest = sha256(settings)
  return { key: sha256([digests, rest]), messages: digests, settings: rest }
}

/** The messages, and what counts of the rest. */
export function splitChat(request: CompletionRequest): {
  readonly messages: CompletionRequest['messages']
  readonly settings: object
} {
  const { messages, max_tokens: _tokens, stream_options: _options, ...settings } = request
  return { messages, settings }
}

/** Digest of a request of the web tools. */
export function digestWeb(kind: WebKind, request: unknown): string {
  return sha256([kind, request])
}

/** Of a value's JSON; both sides of a comparison went through the same schema, which fixes the order of keys. */
function sha256(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex')
}
