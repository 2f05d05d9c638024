/** Serves the offline model in the protocol of a model server: server-sent events with reasoning, text, calls and usage. */
import { createHash } from 'node:crypto'
import { offlineModel } from '../providers/providers.ts'
import type { Upstream } from '../providers/upstream.ts'
import { answerOffline } from './model.ts'
import type { Reply } from './reply.ts'

/** Characters of one delta. */
const deltaMaxChars = 64
/** Bytes of text that count as one token: an estimate, as there is no tokeniser. */
const bytesPerToken = 4

export function createOfflineUpstream(): Upstream {
  return {
    async send(request) {
      const reply = answerOffline(request)
      const text = JSON.stringify(request.messages)
      const digest = createHash('sha256').update(text).digest('hex')
      const frame = { id: `chatcmpl-${digest.slice(0, 24)}`, created: 0, model: offlineModel }
      const message = toMessage(reply, digest)
      const usage = countTokens(text, JSON.stringify(message))
      const finish = reply.calls.length > 0 ? 'tool_calls' : 'stop'
      const streamed = request.stream === true
      const whole = {
        ...frame,
        object: 'chat.completion',
        choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: finish }],
        usage,
      }
      const parts = streamed ? streamParts(frame, message, finish, usage) : [JSON.stringify(whole)]
      return {
        ok: true,
        value: { streamed, headers: {}, requestBytes: Buffer.byteLength(text), body: toBytes(parts) },
      }
    },
    close: () => Promise.resolve(),
  }
}

interface WireMessage {
  readonly content: string | null
  readonly reasoning_content: string
  readonly tool_calls?: readonly {
    readonly id: string
    readonly type: 'function'
    readonly function: { readonly name: string; readonly arguments: string }
  }[]
}

/** Call ids come from the conversation, so that the same request gets the same bytes and no id comes twice in one. */
function toMessage(reply: Reply, digest: string): WireMessage {
  const calls = reply.calls.map((call, index) => ({
    id: `c${digest.slice(0, 6)}${String(index).padStart(2, '0')}`,
    type: 'function' as const,
    function: { name: call.name, arguments: JSON.stringify(call.arguments) },
  }))
  return {
    content: reply.text === '' ? null : reply.text,
    reasoning_content: reply.reasoning,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
  }
}

function* streamParts(frame: object, message: WireMessage, finish: string, usage: object): Generator<string> {
  const event = (rest: object): string =>
    `data: ${JSON.stringify({ ...frame, object: 'chat.completion.chunk', ...rest })}\n\n`
  const delta = (value: object): string =>
    event({ choices: [{ index: 0, delta: value, finish_reason: null }] })
  yield delta({ role: 'assistant', content: '' })
  for (const piece of pieces(message.reasoning_content)) yield delta({ reasoning_content: piece })
  for (const piece of pieces(message.content ?? '')) yield delta({ content: piece })
  for (const [index, { id, type, function: called }] of (message.tool_calls ?? []).entries()) {
    yield delta({ tool_calls: [{ index, id, type, function: { name: called.name, arguments: '' } }] })
    for (const piece of pieces(called.arguments, 2_048)) {
      yield delta({ tool_calls: [{ index, function: { arguments: piece } }] })
    }
  }
  yield event({ choices: [{ index: 0, delta: {}, finish_reason: finish }] })
  yield event({ choices: [], usage })
  yield 'data: [DONE]\n\n'
}

/** `text` in pieces that never part a surrogate pair. */
function* pieces(text: string, maxChars = deltaMaxChars): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const last = text.charCodeAt(at + maxChars - 1)
    const end = at + maxChars + (last >= 0xd800 && last <= 0xdbff ? 1 : 0)
    yield text.slice(at, end)
    at = end
  }
}

function countTokens(request: string, answer: string): object {
  const prompt = Math.ceil(Buffer.byteLength(request) / bytesPerToken)
  const completion = Math.ceil(Buffer.byteLength(answer) / bytesPerToken)
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

async function* toBytes(parts: Iterable<string>): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield Buffer.from(part)
}
